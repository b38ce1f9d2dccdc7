"""Local relation layer: every cell of a grid attends to the k x k cells around it, in place of a convolution.

    convolution      y_n = Σ_m W_(m - n) x_m                                                   O(N k² C²)
    local relation   y_n = W Σ_m softmax_m( q_n k_m + g(m - n) ) x_m      m: the k x k cells   O(N (k² C + C²))

q and k are scalars: one of each for a group of 8 adjacent channels, which share their weights (a last group may be
smaller). The geometry prior g is a small network of the offset, so that the number of its parameters does not grow
with k. Values are not transformed before the sum, only after it (W). Cells outside the grid are no keys.

The neighbourhoods are never copied: for each of the k² offsets the grid is shifted, multiplied and added in place,
forwards and backwards. The form with copies (`unfold`) has 8 times as many numbers as there are weights.

On a GPU Triton kernels do all of it in one pass (local_relation_triton), unless the weights are watched.

The paper leaves open how wide the hidden layer of g is (here: one unit a group), how offsets are scaled (here: -1 to 1)
and what lies outside the grid.

Hu, Zhang, Xie, Lin: Local Relation Networks for Image Recognition. ICCV 2019. arXiv:1904.11491
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable

from regard.attention.observed_weights import ObservedWeights
from regard.core.errors import BadInput
from regard.core.shapes import Bool, Float, Pair, Tensor
from regard.core.trace import Geometry, Slots, receptive_fields

HAS_TRITON = find_spec("triton") is not None  # PyTorch for CPUs comes without it


class LocalRelation(nn.Module):
    """Attention of each cell of a grid B C Y X to the `kernel` x `kernel` cells around it; with a stride, of some."""

    def __init__(self, channels: int, kernel: int = 7, stride: int = 1, shared: int = 8) -> None:
        super().__init__()
        if kernel % 2 == 0:
            raise BadInput(f"kernel must be odd, so that a cell is in the middle of its neighbourhood, got {kernel}")
        self.kernel, self.stride, self.shared = kernel, stride, shared
        groups = -(-channels // shared)
        self.query, self.key = nn.Conv2d(channels, groups, 1), nn.Conv2d(channels, groups, 1)
        self.prior = GeometryPrior(kernel, groups)
        self.observed = ObservedWeights("self", _to_bhnm)
        self.out = nn.Conv2d(channels, channels, 1, bias=False)

    def forward(self, x: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B C Z W"]:
        q, k = self.query(x[:, :, :: self.stride, :: self.stride]), self.key(x)
        out: Tensor = self.out(self.fused(q, k, x) if self._can_fuse(x) else self.mix(q, k, x))
        return out

    def fused(
        self, q: Float[Tensor, "B G Z W"], k: Float[Tensor, "B G Y X"], x: Float[Tensor, "B C Y X"]
    ) -> Float[Tensor, "B C Z W"]:
        """Return what `mix` does, by the kernels of local_relation_triton: no weights are ever in memory."""
        from regard.blocks.local_relation_triton import fused_local_relation

        return fused_local_relation(q, k, x, self.prior(), self.kernel, self.stride, self.shared)

    def _can_fuse(self, x: Tensor) -> bool:
        """Whether the kernels run here: on a GPU with Triton, not in float64, and not while somebody watches."""
        if x.device.type != "cuda" or x.dtype == torch.float64 or not HAS_TRITON:
            return False
        return not self.observed._forward_hooks and not torch.compiler.is_exporting()

    def mix(
        self, q: Float[Tensor, "B G Z W"], k: Float[Tensor, "B G Y X"], x: Float[Tensor, "B C Y X"]
    ) -> Float[Tensor, "B C Z W"]:
        """Return the weighted sums over the neighbours of each cell, in PyTorch's operations."""
        scores = local_products(q.unsqueeze(2), k.unsqueeze(2), self.kernel, self.stride)  # K² B G Z W
        scores = scores + self.prior()[:, None, :, None, None]
        inside = neighbours_inside((x.shape[2], x.shape[3]), self.kernel, self.stride, x.device)
        weights = self.observed(scores.masked_fill(~inside[:, None, None], float("-inf")).softmax(0)).to(x.dtype)
        missing = -x.shape[1] % self.shared  # channels of the last group
        values = F.pad(x, (0, 0, 0, 0, 0, missing)).unflatten(1, (-1, self.shared))
        return local_sums(weights, values, self.kernel, self.stride).flatten(1, 2)[:, : x.shape[1]]

    def geometry(self, x: Float[Tensor, "B C Y X"]) -> Geometry:
        """Return where queries and keys are: a group for every query, with the cells around it."""
        grid, stride = (x.shape[2], x.shape[3]), self.stride
        cells = receptive_fields(grid, (self.kernel,) * 2, (stride,) * 2, x.device)  # N K²
        own = torch.arange(len(cells), device=x.device)[None, :, None, None]
        middle = cells[:, self.kernel**2 // 2]
        queries = Slots(own, (-(-grid[0] // stride), -(-grid[1] // stride)))
        skip = None if stride == 1 else Slots(middle[None, None, :, None], grid)
        return Geometry(queries, Slots(cells[None, :, :, None], grid), skip)

    def extra_repr(self) -> str:
        return f"kernel={self.kernel}, stride={self.stride}, shared={self.shared}"


class GeometryPrior(nn.Module):
    """A score for every offset and group: two linear layers, with a ReLU between them, of the offset from -1 to 1."""

    def __init__(self, kernel: int, groups: int) -> None:
        super().__init__()
        self.hidden, self.score = nn.Linear(2, groups), nn.Linear(groups, groups)
        side = torch.linspace(-1, 1, kernel) if kernel > 1 else torch.zeros(1)
        self.register_buffer("offsets", torch.cartesian_prod(side, side), persistent=False)

    def forward(self) -> Float[Tensor, "K G"]:
        scores: Tensor = self.score(F.relu(self.hidden(self.offsets)))
        return scores


# -- sums over neighbourhoods ------------------------------------------------------------------------------------------
# With S_n the shift by offset n: products = Σ_c a S_n(b), sums = Σ_n w_n S_n(b), and both have the other as gradient.


def local_products(
    a: Float[Tensor, "B G m Z W"], b: Float[Tensor, "B G m Y X"], kernel: int, stride: int = 1
) -> Float[Tensor, "K B G Z W"]:
    """Return the products of each cell of a with the cells of b around it, summed over m."""
    out: Tensor = _LocalProducts.apply(a, b, kernel, stride)
    return out


def local_sums(
    weights: Float[Tensor, "K B G Z W"], b: Float[Tensor, "B G m Y X"], kernel: int, stride: int = 1
) -> Float[Tensor, "B G m Z W"]:
    """Return the sums of the cells of b around each cell, with weights that the m channels of a group share."""
    out: Tensor = _LocalSums.apply(weights, b, kernel, stride)
    return out


def neighbours_inside(grid: Pair, kernel: int, stride: int, device: torch.device) -> Bool[Tensor, "K Z W"]:
    """Return which of the neighbours of each cell are in the grid."""
    offset = torch.arange(kernel, device=device)[:, None] - kernel // 2
    rows, columns = (torch.arange(0, n, stride, device=device) + offset for n in grid)  # kernel Z, kernel W
    rows, columns = (rows >= 0) & (rows < grid[0]), (columns >= 0) & (columns < grid[1])
    return (rows[:, None, :, None] & columns[None, :, None, :]).flatten(0, 1)


class _LocalProducts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, kernel: int, stride: int) -> Tensor:
        ctx.save_for_backward(a, b)
        ctx.sizes = kernel, stride
        return _products(a, b, kernel, stride)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        a, b = ctx.saved_tensors
        return _sums(grad, b, *ctx.sizes), _spread(grad, a, b, *ctx.sizes), None, None


class _LocalSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, b: Tensor, kernel: int, stride: int) -> Tensor:
        ctx.save_for_backward(weights, b)
        ctx.sizes = kernel, stride
        return _sums(weights, b, kernel, stride)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        weights, b = ctx.saved_tensors
        grad = grad.contiguous()
        return _products(grad, b, *ctx.sizes), _spread(weights, grad, b, *ctx.sizes), None, None


def _products(a: Tensor, b: Tensor, kernel: int, stride: int) -> Tensor:
    a, padded = a.contiguous(), _pad(b, kernel)
    return torch.stack([(a * near).sum(2) for near in _shifts(padded, a, kernel, stride)])


def _sums(weights: Tensor, b: Tensor, kernel: int, stride: int) -> Tensor:
    out = b.new_zeros((*b.shape[:3], *weights.shape[3:]))
    for w, near in zip(weights, _shifts(_pad(b, kernel), out, kernel, stride), strict=True):
        out.addcmul_(w[:, :, None], near)
    return out


def _spread(weights: Tensor, a: Tensor, b: Tensor, kernel: int, stride: int) -> Tensor:
    """Return the gradient with respect to b, which is added to the cells that were read."""
    into, around = torch.zeros_like(_pad(b, kernel)), kernel // 2
    for w, near in zip(weights, _shifts(into, a, kernel, stride), strict=True):
        near.addcmul_(w[:, :, None], a)
    return into[..., around : around + b.shape[3], around : around + b.shape[4]]


def _pad(x: Tensor, kernel: int) -> Tensor:
    return F.pad(x, (kernel // 2,) * 4).contiguous()  # slices of a channels-last grid are slow


def _shifts(padded: Tensor, like: Tensor, kernel: int, stride: int) -> Iterator[Tensor]:
    """Yield the views of a padded grid at each offset, row by row, at the cells of `like`."""
    rows, columns = ((n - 1) * stride + 1 for n in like.shape[3:])
    for y in range(kernel):
        for x in range(kernel):
            yield padded[..., y : y + rows : stride, x : x + columns : stride]


def _to_bhnm(weights: Float[Tensor, "K B G Z W"]) -> Float[Tensor, "BN G 1 K"]:
    """Return a map for every query, the queries of an image one after the other."""
    return weights.permute(1, 3, 4, 2, 0).flatten(0, 2).unsqueeze(2)
