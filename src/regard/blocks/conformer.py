"""The Conformer's blocks: attention for the whole recording and a convolution for its details, between two half-steps.

    x = x + ½ feed-forward(norm x)            the half-steps, as in the Macaron network
    x = x + attention(norm x)                 relative positions of Transformer-XL (positions.bias.transformer_xl)
    x = x + convolution(norm x)               W₂ swish(norm(depthwise(W₁a x · σ(W₁b x))))
    x = norm(x + ½ feed-forward(norm x))

O(N² C + N C² + N C K) for a kernel of K frames. Padding changes nothing, in value and in the statistics of batch norm:
it is masked in attention, set to zero before the depthwise convolution, and left out of the means.

With `chunk_size`, frames come in chunks: attention sees the own chunk and `left_chunks` before it (None: all), and the
convolution only the past. Then `step` reads a chunk after another, and N steps equal one `forward`.

Gulati et al.: Conformer: Convolution-augmented Transformer for Speech Recognition. Interspeech 2020. arXiv:2005.08100
Zhang et al.: Unified Streaming and Non-streaming Two-pass End-to-end Model (chunk masks). 2020. arXiv:2012.05481
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import nn

from regard.attention.joins.concat import OutputProjection
from regard.attention.mask import ChunkMask, Mask, PaddingMask
from regard.attention.mechanisms import MECHANISMS
from regard.attention.projections import QKVProjection
from regard.blocks.feedforward import SiluFeedForward
from regard.blocks.residual import ResidualBlock, drop_path_rates
from regard.core.errors import BadInput, RegardError
from regard.core.layer_state import LayerState, PassState
from regard.core.shapes import Bool, Float, Int, Tensor
from regard.core.spec import build_part
from regard.core.validation import Fraction
from regard.positions.added.sinusoidal import SinusoidalPositions
from regard.positions.bias.transformer_xl import TransformerXLPositions, distance_vectors


@dataclass(frozen=True, eq=False)
class BlockState:
    """What a block remembers of earlier chunks: keys and values, and the last frames before its convolution."""

    keys: Float[Tensor, "B H L D"]
    values: Float[Tensor, "B H L D"]
    tail: Float[Tensor, "B K C"]


class ConformerEncoder(nn.Module):
    """A stack of Conformer blocks, B N C -> B N hidden; `width` is that of the input."""

    def __init__(
        self,
        width: int,
        hidden: int | None = None,  # width of the blocks; None: as the input
        layers: int = 16,
        heads: int = 4,
        ffn: int | None = None,  # None: 4 hidden
        kernel: int = 31,
        dropout: Fraction = 0.1,
        attention_dropout: Fraction = 0.0,
        drop_path: Fraction = 0.0,
        conv_norm: Literal["batch", "layer"] = "batch",
        bias: bool = True,  # of feed-forward and attention
        conv_bias: bool = True,
        final_norm: bool = False,  # one more norm after the last block
        attention: Any = "softmax",
        chunk_size: int | None = None,
        left_chunks: int | None = None,
    ) -> None:
        super().__init__()
        hidden = width if hidden is None else hidden
        if kernel % 2 == 0:
            raise RegardError(f"the convolution's kernel must have an odd number of frames, got {kernel}")
        if left_chunks is not None and chunk_size is None:
            raise RegardError("left_chunks counts chunks: set chunk_size too")
        self.hidden = self.width = hidden
        self.chunk_size, self.left_chunks = chunk_size, left_chunks
        self.project = None if width == hidden else nn.Linear(width, hidden)
        self.distances = SinusoidalPositions(hidden)
        self.blocks = nn.ModuleList(
            ConformerBlock(
                RelativeAttention(hidden, heads, attention, attention_dropout, bias),
                ConvolutionModule(hidden, kernel, conv_norm, conv_bias, causal=chunk_size is not None),
                [SiluFeedForward(hidden, ffn or 4 * hidden, dropout, bias) for _ in range(2)],
                [nn.LayerNorm(hidden) for _ in range(5)],
                dropout,
                rate,
            )
            for rate in drop_path_rates(drop_path, layers)
        )
        self.norm = nn.LayerNorm(hidden) if final_norm else None

    def forward(
        self,
        x: Float[Tensor, "B N C"],
        lengths: Int[Tensor, " B"] | None = None,
        pass_state: PassState | None = None,
    ) -> Float[Tensor, "B N hidden"]:
        """Return the frames after all blocks; zeros at padding."""
        pass_state = PassState() if pass_state is None else pass_state
        x = x if self.project is None else self.project(x)
        padding = PaddingMask.from_lengths(x, lengths)
        real = None if padding is None else padding.real(x.shape[1])[..., None]
        mask: Mask | None = padding
        if self.chunk_size is not None:
            chunks = ChunkMask(self.chunk_size, self.left_chunks)
            mask = chunks if padding is None else chunks & padding
        distances = distance_vectors(self.distances, x.shape[1], x.shape[1], x.device, x.dtype)
        for depth, block in enumerate(self.blocks):
            x = block(x, distances, mask, real, pass_state.layer(depth))
        x = x if self.norm is None else self.norm(x)
        return x if real is None else x * real

    def final_states(
        self, states: Float[Tensor, "B N C"], lengths: Int[Tensor, " B"] | None = None
    ) -> Float[Tensor, "B 1 C"]:
        """Return the mean of the frames: what a recurrent decoder begins with, since there is no last state."""
        count = states.new_tensor(states.shape[1]) if lengths is None else lengths[:, None, None]
        return states.sum(1, keepdim=True) / count.clamp(min=1)

    # -- one chunk after another ---------------------------------------------------------------------------------------

    def start(self, batch: int) -> list[BlockState]:
        """Return the state before the first chunk."""
        if self.chunk_size is None:
            raise BadInput("this encoder reads whole recordings and cannot stream; build it with chunk_size")
        return [block.start(batch) for block in self.blocks]  # type: ignore[operator]

    def step(self, x: Float[Tensor, "B S C"], states: list[BlockState]) -> tuple[Tensor, list[BlockState]]:
        """Return the frames of one more chunk (the last may be shorter) after all blocks, and the new state."""
        assert self.chunk_size is not None
        x = x if self.project is None else self.project(x)
        keys = states[0].keys.shape[2] + x.shape[1]
        distances = distance_vectors(self.distances, x.shape[1], keys, x.device, x.dtype)
        most, after = None if self.left_chunks is None else self.left_chunks * self.chunk_size, []
        for block, state in zip(self.blocks, states, strict=True):
            x, new = block.step(x, distances, state, most)  # type: ignore[operator]
            after.append(new)
        return x if self.norm is None else self.norm(x), after


class ConformerBlock(ResidualBlock):
    """Half a feed-forward, attention, convolution, half a feed-forward, and a norm."""

    def __init__(
        self,
        mix: RelativeAttention,
        convolve: ConvolutionModule,
        feeds: list[SiluFeedForward],
        norms: list[nn.LayerNorm],
        dropout: float,
        drop_path: float = 0.0,
    ) -> None:
        super().__init__(True, dropout, drop_path)
        self.feed_before, self.feed_after = feeds
        self.mix, self.convolve = mix, convolve
        self.feed_before_norm, self.mix_norm, self.convolve_norm, self.feed_after_norm, self.norm = norms

    def forward(
        self,
        x: Float[Tensor, "B N C"],
        distances: Float[Tensor, "1 P C"],
        mask: Mask | None = None,
        real: Bool[Tensor, "B N 1"] | None = None,
        layer_state: LayerState | None = None,
    ) -> Float[Tensor, "B N C"]:
        x = self.residual(x, self.feed_before_norm, lambda x: 0.5 * self.feed_before(x))
        x = self.residual(x, self.mix_norm, lambda x: self.mix(x, distances, mask, layer_state))
        x = self.residual(x, self.convolve_norm, lambda x: self.convolve(x, real))
        x = self.residual(x, self.feed_after_norm, lambda x: 0.5 * self.feed_after(x))
        out: Tensor = self.norm(x)
        return out

    def start(self, batch: int) -> BlockState:
        """Return the state before the first chunk."""
        like = self.mix.positions.content_bias
        empty = like.new_zeros(batch, like.shape[0], 0, like.shape[1])
        return BlockState(empty, empty, self.convolve.start(batch))

    def step(
        self, x: Float[Tensor, "B S C"], distances: Float[Tensor, "1 P C"], state: BlockState, most: int | None
    ) -> tuple[Tensor, BlockState]:
        """Return one more chunk, and the state with at most `most` keys of earlier ones (None: all)."""
        x = self.residual(x, self.feed_before_norm, lambda x: 0.5 * self.feed_before(x))
        mixed, keys, values = self.mix.step(self.mix_norm(x), distances, state.keys, state.values)
        x = x + mixed
        convolved, tail = self.convolve.step(self.convolve_norm(x), state.tail)
        x = x + convolved
        x = self.residual(x, self.feed_after_norm, lambda x: 0.5 * self.feed_after(x))
        first = 0 if most is None else max(0, keys.shape[2] - most)
        return self.norm(x), BlockState(keys[:, :, first:], values[:, :, first:], tail)


class RelativeAttention(nn.Module):
    """Self-attention whose scores have Transformer-XL's relative positions."""

    kind = "self"

    def __init__(
        self, width: int, heads: int, attention: Any = "softmax", dropout: Fraction = 0.0, bias: bool = True
    ) -> None:
        super().__init__()
        if width % heads:
            raise RegardError(f"width {width} is not divisible by {heads} heads; change one of them")
        head_dim = width // heads
        self.scale = head_dim**-0.5
        sizes: dict[str, Any] = {"width": width, "heads": heads, "kv_heads": heads, "head_dim": head_dim}
        self.project = QKVProjection(width, heads, bias=bias)
        self.positions = TransformerXLPositions(width, heads, head_dim)
        self.attend = build_part(
            MECHANISMS, attention, "attention", **sizes, causal=False, dropout=dropout, scale=self.scale
        )
        self.join = OutputProjection(width, heads, head_dim, bias)

    def forward(
        self,
        x: Float[Tensor, "B N C"],
        distances: Float[Tensor, "1 P C"],
        mask: Mask | None = None,
        layer_state: LayerState | None = None,
    ) -> Float[Tensor, "B N C"]:
        q, k, v = self.project(x)
        q, bias = self.positions.bias(q, distances, k.shape[2], self.scale)
        out: Tensor = self.join(self.attend(q, k, v, mask, bias, layer_state=layer_state))
        return out

    def step(
        self, x: Float[Tensor, "B S C"], distances: Float[Tensor, "1 P C"], keys: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Attend from a chunk to itself and to earlier keys; return the output, and all keys and values."""
        q, k, v = self.project(x)
        k, v = torch.cat([keys.to(k), k], 2), torch.cat([values.to(v), v], 2)
        q, bias = self.positions.bias(q, distances, k.shape[2], self.scale)
        return self.join(self.attend(q, k, v, None, bias)), k, v


class ConvolutionModule(nn.Module):
    """Pointwise with a gate, depthwise, norm, swish, pointwise; `causal`: the depthwise one sees no later frame."""

    def __init__(
        self,
        width: int,
        kernel: int,
        norm: Literal["batch", "layer"] = "batch",
        bias: bool = True,
        causal: bool = False,
    ) -> None:
        super().__init__()
        self.causal, self.kernel = causal, kernel
        self.up = nn.Linear(width, 2 * width, bias=bias)
        self.depthwise = nn.Conv1d(width, width, kernel, groups=width, bias=bias)
        self.norm = MaskedBatchNorm(width) if norm == "batch" else nn.LayerNorm(width)
        self.down = nn.Linear(width, width, bias=bias)

    def forward(self, x: Float[Tensor, "B N C"], real: Bool[Tensor, "B N 1"] | None = None) -> Float[Tensor, "B N C"]:
        x = F.glu(self.up(x), -1)
        x = x if real is None else x * real
        before = self.kernel - 1 if self.causal else self.kernel // 2
        return self._finish(F.pad(x, (0, 0, before, self.kernel - 1 - before)), real)

    def start(self, batch: int) -> Float[Tensor, "B K C"]:
        """Return the frames before the first: zeros."""
        return self.up.weight.new_zeros(batch, self.kernel - 1, self.up.in_features)

    def step(self, x: Float[Tensor, "B S C"], tail: Float[Tensor, "B K C"]) -> tuple[Tensor, Tensor]:
        """Return one more chunk, and the frames that the next one begins with."""
        wide = F.glu(self.up(x), -1)
        wide = torch.cat([tail.to(wide), wide], 1)
        return self._finish(wide, None), wide[:, wide.shape[1] - self.kernel + 1 :]

    def _finish(self, x: Tensor, real: Tensor | None) -> Tensor:
        x = self.depthwise(x.mT).mT
        x = self.norm(x, real) if isinstance(self.norm, MaskedBatchNorm) else self.norm(x)
        out: Tensor = self.down(F.silu(x))
        return out


class MaskedBatchNorm(nn.BatchNorm1d):
    """Batch norm over the frames of all recordings of a batch, B N C; padding is no part of its statistics."""

    def forward(self, x: Float[Tensor, "B N C"], real: Bool[Tensor, "B N 1"] | None = None) -> Float[Tensor, "B N C"]:
        if real is None or not self.training:
            return super().forward(x.flatten(0, 1)).view_as(x)
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        wide = x.float() if x.dtype.itemsize < 4 else x
        count = real.sum().clamp(min=1)
        mean = (wide * real).sum((0, 1)) / count
        variance = ((wide - mean).square() * real).sum((0, 1)) / count
        with torch.no_grad():
            unbiased = variance * count / (count - 1).clamp(min=1)
            self.running_mean.lerp_(mean.to(self.running_mean), self.momentum or 0.1)
            self.running_var.lerp_(unbiased.to(self.running_var), self.momentum or 0.1)
            self.num_batches_tracked += 1
        return ((wide - mean) * ((variance + self.eps).rsqrt() * self.weight) + self.bias).to(x.dtype)
