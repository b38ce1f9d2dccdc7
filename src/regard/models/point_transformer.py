"""Point Transformer: every point attends to its nearest points, with a weight for every channel.

    tokens      points B N 3 (further numbers of a point are features); thinned out by farthest-point sampling
    positions   δ = θ(p_i - p_j), an MLP of the difference, added to the scores and to the values
    attention   y_i = Σ_j softmax_j(γ(φ(x_i) - ψ(x_j) + δ)) ⊙ (α(x_j) + δ),   j the k nearest points of i;  O(N k C²)
    head        mean over the points and an MLP (a class for the cloud), or the decoder of a U-Net (one for each point)

Scores are vectors: γ of a difference, not a product, so every channel has weights of its own, which sum to one over
the neighbours (`watch` records a map for each channel, on the points of the input). On a GPU Triton kernels compute
it without a tensor of all pairs (blocks/vector_attention_triton); elsewhere points are taken in chunks. A cloud is
padded to the largest of its batch, beyond `lengths`; a batch gives what its clouds give one by one. A permutation of
the points permutes the result.

Batch norm takes its statistics from real points only. What differs from the paper: the hidden layer of θ is as wide as
the layer's features. `share` channels may share a weight, as 8 do in the authors' code.

Zhao, Jiang, Jia, Torr, Koltun: Point Transformer. ICCV 2021. arXiv:2012.09164
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from regard.attention.masked_softmax import masked_softmax
from regard.attention.observed_weights import ObservedWeights
from regard.blocks.points import (
    PointBatchNorm,
    PointLinear,
    farthest_point_sampling,
    gather_points,
    interpolate,
    knn,
    mean_of_points,
    padding_mask,
    real_points,
)
from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.shapes import Bool, Float, Int, Tensor
from regard.core.trace import Geometry, Slots
from regard.core.validation import validate
from regard.models.contract import ModelContract

HAS_TRITON = find_spec("triton") is not None  # PyTorch for CPUs comes without it
CHUNK = 2**23  # numbers of a tensor over pairs of points that are computed at a time
MAX_KEPT = 2**25  # of all pairs of a layer; of more, nothing is kept for the backward pass
NO_RANDOMNESS: dict[str, Any] = {"preserve_rng_state": False}


@dataclass(frozen=True)
class Config:
    """Hyperparameters of a Point Transformer; the defaults are the paper's classifier."""

    num_classes: int = 40
    input_dim: int = field(3, low=3)  # numbers of a point: three coordinates, then features
    widths: tuple[int, ...] = (32, 64, 128, 256, 512)  # of the stages
    layers: tuple[int, ...] = (1, 2, 3, 5, 2)  # attention blocks of each stage
    neighbors: int = 16
    stride: int = field(4, low=2)  # points of a stage for each point of the next
    share: int = 1  # neighbouring channels that share a weight
    head: Literal["cloud", "points"] = "cloud"  # one row of logits for the cloud, or one for every point
    dropout: float = field(0.0, low=0, below=1)  # in the head


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"num_classes": 5, "widths": (8, 12), "layers": (1, 1), "neighbors": 4},
    "small": {"widths": (32, 64, 128), "layers": (1, 1, 1)},
    "base": {},
}


@dataclass(frozen=True, eq=False)
class PointSet:
    """The points of a stage with their features and neighbours."""

    x: Float[Tensor, "B N C"]
    points: Float[Tensor, "B N 3"]
    lengths: Int[Tensor, " B"] | None
    cells: Int[Tensor, "B N"]  # which point of the input each one is
    index: Int[Tensor, "B N K"]  # its nearest points, itself among them
    exists: Bool[Tensor, "B N K"]  # a small cloud has fewer
    size: int  # points of the input

    @property
    def real(self) -> Bool[Tensor, "B N"] | None:
        """Which points are no padding; None where all are."""
        return padding_mask(self.points, self.lengths)


class PointTransformer(ModelContract):
    """Clouds of points to logits, of the cloud or of every point."""

    forward_methods = ("pooled", "encode")

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        if len(config.layers) != len(config.widths) or not config.widths:
            raise BadInput(f"widths and layers need one number for each stage, got {config.widths}, {config.layers}")
        if any(width % config.share for width in config.widths):
            raise BadInput(f"share={config.share} does not divide the widths {config.widths}")
        self.config = config
        self.embed = PointLinear(config.input_dim, config.widths[0])
        self.stages = nn.ModuleList(_blocks(config, w, n) for w, n in zip(config.widths, config.layers, strict=True))
        pairs = list(zip(config.widths[:-1], config.widths[1:], strict=True))
        self.down = nn.ModuleList(TransitionDown(a, b, config.stride, config.neighbors) for a, b in pairs)
        last = config.widths[-1]
        self.up, self.up_stages = nn.ModuleList(), nn.ModuleList()
        if config.head == "points":
            self.bottom = PointLinear(last, last)
            self.up.extend(TransitionUp(b, a) for a, b in reversed(pairs))
            self.up_stages.extend(_blocks(config, a, 1) for a, _ in reversed(pairs))
            last = config.widths[0]
        self.head = nn.Sequential(
            nn.Linear(last, last), nn.ReLU(), nn.Dropout(config.dropout), nn.Linear(last, config.num_classes)
        )

    def forward(self, elements: Float[Tensor, "B N F"], lengths: Int[Tensor, " B"] | None = None) -> Tensor:
        """Return logits: B K of every cloud, or B N K of every point. Points beyond `lengths` are padding."""
        stages = self.encode(elements, lengths)
        if self.config.head == "cloud":
            cloud: Tensor = self.head(mean_of_points(stages[-1].x, stages[-1].lengths))
            return cloud
        s = replace(stages[-1], x=self.bottom(stages[-1].x, stages[-1].real))
        for fine, up, blocks in zip(stages[-2::-1], self.up, self.up_stages, strict=True):
            s = _apply(blocks, up(s, fine))
        logits: Tensor = self.head(s.x)
        return logits

    def pooled(self, elements: Float[Tensor, "B N F"], lengths: Int[Tensor, " B"] | None = None) -> Tensor:
        """Return the mean of the last stage's features, B C."""
        last = self.encode(elements, lengths)[-1]
        return mean_of_points(last.x, last.lengths)

    def encode(self, elements: Float[Tensor, "B N F"], lengths: Int[Tensor, " B"] | None = None) -> list[PointSet]:
        """Return the points of every stage with their features."""
        points = elements[..., :3]
        cells = torch.arange(points.shape[1], device=points.device).expand(points.shape[:2])
        near = knn(points, points, self.config.neighbors, lengths)
        x = self.embed(elements, padding_mask(points, lengths))
        s = _apply(self.stages[0], PointSet(x, points, lengths, cells, *near, points.shape[1]))
        found = [s]
        for down, blocks in zip(self.down, self.stages[1:], strict=True):
            s = _apply(blocks, down(s))
            found.append(s)
        return found


class PointBlock(nn.Module):
    """x + W₂ attention(W₁ x), each with a norm."""

    def __init__(self, width: int, share: int) -> None:
        super().__init__()
        self.before = PointLinear(width, width)
        self.mix = VectorAttention(width, share)
        self.norm = PointBatchNorm(width)
        self.after, self.after_norm = nn.Linear(width, width, bias=False), PointBatchNorm(width)

    def forward(self, s: PointSet) -> PointSet:
        real = s.real
        mixed = torch.relu(self.norm(self.mix(replace(s, x=self.before(s.x, real))), real))
        return replace(s, x=torch.relu(s.x + self.after_norm(self.after(mixed), real)))


class VectorAttention(nn.Module):
    """Attend to the nearest points, with weights for every channel (or every `share` channels)."""

    def __init__(self, width: int, share: int = 1) -> None:
        super().__init__()
        self.share = share
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.position = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, width))
        self.weigh = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width // share))
        self.observed = ObservedWeights("self", _channels_as_heads)

    def forward(self, s: PointSet) -> Float[Tensor, "B N C"]:
        if self._can_fuse(s):
            return self.fused(s)
        q, k, v = self.q(s.x), self.k(s.x), self.v(s.x)
        (b, n, neighbors), width = s.index.shape, q.shape[2]
        rows = max(1, CHUNK // max(1, b * neighbors * width))
        if rows >= n or self._is_observed():
            return self.mix(q, s.points, s.index, s.exists, k, v, s.points)
        keeps = torch.is_grad_enabled() and b * n * neighbors * width > MAX_KEPT
        parts = []
        for begin in range(0, n, rows):
            inputs: list[Any] = [x[:, begin : begin + rows] for x in (q, s.points, s.index, s.exists)]
            inputs += k, v, s.points
            if keeps:  # computed again in the backward pass
                parts.append(checkpoint(self.mix, *inputs, use_reentrant=False, **NO_RANDOMNESS))
            else:
                parts.append(self.mix(*inputs))
        return torch.cat(parts, 1)

    def mix(
        self,
        q: Float[Tensor, "B N C"],
        own: Float[Tensor, "B N 3"],
        index: Int[Tensor, "B N K"],
        exists: Bool[Tensor, "B N K"],
        k: Float[Tensor, "B M C"],
        v: Float[Tensor, "B M C"],
        points: Float[Tensor, "B M 3"],
    ) -> Float[Tensor, "B N C"]:
        """Return the weighted sums over the neighbours of some points, in PyTorch's operations."""
        difference = own[:, :, None] - gather_points(points, index)
        position = self.position(difference.to(q.dtype))
        scores = self.weigh(q[:, :, None] - gather_points(k, index) + position)
        weights = self.observed(masked_softmax(scores.transpose(2, 3), exists[:, :, None]).transpose(2, 3))
        values = (gather_points(v, index) + position).unflatten(-1, (-1, self.share))
        return (weights[..., None].to(values.dtype) * values).sum(2).flatten(2)

    def fused(self, s: PointSet) -> Float[Tensor, "B N C"]:
        """Return what `mix` does, by the kernels of vector_attention_triton: nothing of the pairs is kept."""
        from regard.blocks.vector_attention_triton import fused_vector_attention

        (first, _, second), (third, _, fourth) = cast(Iterable[Any], self.position), cast(Iterable[Any], self.weigh)
        b, n = s.index.shape[:2]
        start = n * torch.arange(b, device=s.index.device)[:, None, None]
        index = (s.index + start).masked_fill(~s.exists, -1)
        queries = F.linear(self.q(s.x) + second.bias, third.weight, third.bias)
        values = self.v(s.x) + second.bias + 0 * fourth.bias.sum()  # a bias of all scores changes nothing
        out = fused_vector_attention(
            s.points.flatten(0, 1),
            index.flatten(0, 1),
            queries.flatten(0, 1),
            F.linear(self.k(s.x), third.weight).flatten(0, 1),
            values.flatten(0, 1),
            first.weight,
            first.bias,
            third.weight @ second.weight,
            second.weight,
            fourth.weight.repeat_interleave(self.share, 0),
        )
        return out.unflatten(0, (b, n))

    def _is_observed(self) -> bool:
        return bool(self.observed._forward_hooks) or torch.compiler.is_exporting()

    def _can_fuse(self, s: PointSet) -> bool:
        """Whether the kernels run here: on a GPU with Triton, for layers that are not too wide, unless somebody watches
        or asks for the gradient of the coordinates."""
        device = s.x.device.type
        if device != "cuda" or not HAS_TRITON or self._is_observed() or s.points.requires_grad:
            return False
        if max(s.x.numel(), s.index.numel()) >= 2**31:  # offsets are 32-bit
            return False
        from regard.blocks.vector_attention_triton import max_width

        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else s.x.dtype
        return dtype != torch.float64 and self.q.out_features <= max_width(dtype)

    def geometry(self, s: PointSet) -> Geometry:
        """Return which points of the input the rows and columns are: a group for each point, its neighbours as keys."""
        own = s.cells.where(real_points(s.points, s.lengths), -1)
        near = s.cells[:, None].expand(-1, s.index.shape[1], -1).gather(2, s.index)
        near = near.where(s.exists & (own >= 0)[..., None], -1)
        return Geometry(Slots(own[..., None, None], (s.size,)), Slots(near[..., None], (s.size,)))


class TransitionDown(nn.Module):
    """Keep every `stride`-th point by farthest-point sampling, with the maximum over its neighbours' features."""

    def __init__(self, width: int, out: int, stride: int, neighbors: int) -> None:
        super().__init__()
        self.stride, self.neighbors, self.linear = stride, neighbors, PointLinear(width, out)

    def forward(self, s: PointSet) -> PointSet:
        count = -(-s.points.shape[1] // self.stride)
        lengths = None if s.lengths is None else (s.lengths + self.stride - 1) // self.stride
        chosen = farthest_point_sampling(s.points, count, s.lengths)
        points, cells = gather_points(s.points, chosen), s.cells.gather(1, chosen)
        index, exists = (x.gather(1, chosen[..., None].expand(-1, -1, x.shape[2])) for x in (s.index, s.exists))
        near = gather_points(self.linear(s.x, s.real), index)
        x = near.masked_fill(~exists[..., None], 0).amax(2)  # after a ReLU nothing is below zero
        return PointSet(x, points, lengths, cells, *knn(points, points, self.neighbors, lengths), s.size)


class TransitionUp(nn.Module):
    """Carry features to the finer points by interpolation, and add those that were there."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.coarse, self.fine = PointLinear(width, out), PointLinear(out, out)

    def forward(self, coarse: PointSet, fine: PointSet) -> PointSet:
        spread = interpolate(self.coarse(coarse.x, coarse.real), coarse.points, fine.points, coarse.lengths)
        return replace(fine, x=self.fine(fine.x, fine.real) + spread)


def _blocks(config: Config, width: int, count: int) -> nn.ModuleList:
    return nn.ModuleList(PointBlock(width, config.share) for _ in range(count))


def _apply(blocks: Any, s: PointSet) -> PointSet:
    for block in blocks:
        s = block(s)
    return s


def _channels_as_heads(weights: Float[Tensor, "B N K H"]) -> Float[Tensor, "BN H 1 K"]:
    return weights.flatten(0, 1).mT[:, :, None]
