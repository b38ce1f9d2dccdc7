"""Gated convolutions in a stack, where every layer of a decoder looks at the source by itself.

    encoder    x' = (glu(conv(x)) + x) √½                        the places around
    decoder    h = glu(conv(x))                                  the places before
               q = (W h + b + word) √½                           what was done here, and the word that was read
               c = √m Σ_m softmax_m(q · z_m) v_m                 z: the encoder's output; v = (z + e) √½
               x' = ((U c + b' + h) √½ + x) √½

All maps are weight-normed and begin so that the variance that goes in comes out.

Gehring, Auli, Grangier, Yarats, Dauphin: Convolutional Sequence to Sequence Learning. ICML 2017. arXiv:1705.03122
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from regard.attention import MECHANISMS
from regard.attention.mask import Mask
from regard.blocks.convolution import CausalConvolution, Convolution, WeightNormLinear, materialize_weights
from regard.core.shapes import Bool, Float, Int, Tensor
from regard.core.spec import build_part, layer_spec

SQRT_HALF = 0.5**0.5


@dataclass(frozen=True, eq=False)
class ConvMemory:
    """What a source left to look at; the beams of an input share it."""

    keys: Float[Tensor, "B M C"]  # z
    values: Float[Tensor, "B M C"]  # z + e
    mask: Any
    scale: Float[Tensor, "B 1 1"]  # √m

    def select_rows(self, rows: Int[Tensor, " R"]) -> ConvMemory:
        """Keep these inputs."""
        mask = None if self.mask is None else self.mask.select_rows(rows)
        return ConvMemory(self.keys[rows], self.values[rows], mask, self.scale[rows])


class ConvStack(nn.Module):
    """Into the width of the layers, through all of them, and back to the width of the embeddings."""

    def __init__(self, config: Any, block: type[ConvEncoderBlock], layers: int) -> None:
        super().__init__()
        sizes = [(config.hidden, config.kernel)] * layers + [(hidden, kernel) for hidden, kernel in config.extra_layers]
        widths = [sizes[0][0], *(hidden for hidden, _ in sizes)]
        self.input_proj = weight_norm_linear(config.width, widths[0], config)
        self.blocks = nn.ModuleList(
            block(config, layer, width, *size) for layer, (width, size) in enumerate(zip(widths, sizes, strict=False))
        )
        self.output_proj = weight_norm_linear(widths[-1], config.width, None)

    def forward(self, words: Float[Tensor, "B N C"], *inputs: Any) -> Float[Tensor, "B N C"]:
        """All layers; `compare_outputs` is what each of them is given too."""
        x = self.input_proj(words)
        for block in self.blocks:
            x = block(x, *inputs)
        return self.output_proj(x)

    def empty_rings(self, like: Tensor) -> tuple[Tensor, ...]:
        """An empty past for every layer."""
        every: Any = self.blocks
        return tuple(block.conv.empty_ring(like) for block in every)

    def step(
        self,
        words: Float[Tensor, "B K C"],
        memory: ConvMemory,
        empty_rings: tuple[Tensor, ...],
        time: Int[Tensor, ""],
        matrices: dict[str, Tensor],
        frozen: bool,
    ) -> tuple[Float[Tensor, "B K C"], tuple[Tensor, ...]]:
        """The newest word of every beam through all layers, and their rings with it; `matrices` are `folded`."""
        every: Any = self.blocks
        x, moved = self.input_proj(words, matrices["input_proj"]), []
        for layer, (block, ring) in enumerate(zip(every, empty_rings, strict=True)):
            own = {name: matrices[f"blocks.{layer}.{name}"] for name in block.maps}
            x, ring = block.step(x, words, memory, ring, time, own, frozen)
            moved.append(ring)
        return self.output_proj(x, matrices["output_proj"]), tuple(moved)


class ConvEncoderBlock(nn.Module):
    """A gated convolution over the places around, and the way around it."""

    kind: type[Convolution] = Convolution

    def __init__(self, config: Any, layer: int, width: int, hidden: int, kernel: int) -> None:
        super().__init__()
        self.skip = None if width == hidden else weight_norm_linear(width, hidden, None)
        self.conv = self.kind(width, 2 * hidden, kernel, linear=glu_linear(kernel * width, hidden, config))
        self.drop = nn.Dropout(config.dropout)

    def forward(self, x: Float[Tensor, "B N C"], real: Bool[Tensor, "B N"] | None = None) -> Float[Tensor, "B N D"]:
        """What is not real is zero to its neighbours."""
        x = x if real is None else x * real[..., None]
        around = x if self.skip is None else self.skip(x)
        return (F.glu(self.conv(self.drop(x)), -1) + around) * SQRT_HALF


class ConvDecoderBlock(ConvEncoderBlock):
    """A gated convolution over the places before, a look at the source, and the way around both."""

    kind = CausalConvolution

    def __init__(self, config: Any, layer: int, width: int, hidden: int, kernel: int) -> None:
        super().__init__(config, layer, width, hidden, kernel)
        self.cross = CrossAttention(hidden, config.width, layer_spec(config.attention, layer))
        self.maps = list(materialize_weights(self))

    def forward(  # type: ignore[override]
        self, x: Float[Tensor, "B T C"], words: Float[Tensor, "B T E"], memory: ConvMemory
    ) -> Float[Tensor, "B T D"]:
        """All words at once."""
        around = x if self.skip is None else self.skip(x)
        h = F.glu(self.conv(self.drop(x)), -1)
        return (self.cross(h, words, memory.keys, memory.values, memory.mask, memory.scale) + around) * SQRT_HALF

    def step(
        self,
        x: Float[Tensor, "B K C"],
        words: Float[Tensor, "B K E"],
        memory: ConvMemory,
        empty_ring: Float[Tensor, "B K P C"],
        time: Int[Tensor, ""],
        own: dict[str, Tensor],
        frozen: bool,
    ) -> tuple[Float[Tensor, "B K D"], Float[Tensor, "B K P C"]]:
        """The newest word of every beam; the beams of an input are so many queries of its memory."""
        around = x if self.skip is None else self.skip(x, own["skip"])
        h, empty_ring = self.conv.step(self.drop(x), empty_ring, time, frozen, weight=own["conv.map"])  # type: ignore[operator]
        seen = self.cross(
            F.glu(h, -1),
            words,
            memory.keys,
            memory.values,
            memory.mask,
            memory.scale,
            own["cross.query"],
            own["cross.output"],
        )
        return (seen + around) * SQRT_HALF, empty_ring


class CrossAttention(nn.Module):
    """One layer's look at the source: d = W h + g asks, Σ_m a_m (z_m + e_m) is taken, both beside what was there."""

    kind = "cross"

    def __init__(self, hidden: int, width: int, attention: Any) -> None:
        super().__init__()
        self.query, self.output = weight_norm_linear(hidden, width, None), weight_norm_linear(width, hidden, None)
        self.attend = build_part(MECHANISMS, attention, "attention", scale=1.0)

    def forward(
        self,
        h: Float[Tensor, "B T D"],
        words: Float[Tensor, "B T C"],
        keys: Float[Tensor, "B M C"],
        values: Float[Tensor, "B M C"],
        mask: Mask | None,
        scale: Float[Tensor, "B 1 1"],
        query_weight: Tensor | None = None,
        output_weight: Tensor | None = None,
    ) -> Float[Tensor, "B T D"]:
        """The state with what it saw; `query_weight` and `output_weight` are the matrices of its maps, where they were made before."""
        q = ((self.query(h, query_weight) + words) * SQRT_HALF).to(keys.dtype)
        seen = self.attend(q[:, None], keys[:, None], values[:, None], mask)[:, 0]
        return (self.output(seen * scale, output_weight) + h) * SQRT_HALF


class ScaleGradient(torch.autograd.Function):
    """The same values, and a gradient divided by a number."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, by: int) -> Tensor:  # noqa: D102
        ctx.by = by
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:  # noqa: D102
        return gradients[0] / ctx.by, None


# -- fresh maps: the variance that goes in comes out -------------------------------------------------------------------


def weight_norm_linear(width: int, out: int, dropped: Any) -> WeightNormLinear:
    """A map; where its input is dropped out, what is left of it is larger, and the weights are smaller."""
    return WeightNormLinear(width, out, ((1 - dropped.dropout if dropped else 1.0) / width) ** 0.5)


def glu_linear(width: int, out: int, config: Any) -> WeightNormLinear:
    """A map to twice the width, of which a gate leaves a quarter of the variance."""
    return WeightNormLinear(width, 2 * out, (4 * (1 - config.dropout) / width) ** 0.5)
