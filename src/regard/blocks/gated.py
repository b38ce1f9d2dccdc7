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
from regard.blocks.convolution import CausalConvolution, Convolution, NormedLinear, folded
from regard.core.shapes import Bool, Float, Int, Tensor
from regard.core.spec import cycle, make

HALF = 0.5**0.5


@dataclass(frozen=True, eq=False)
class Memory:
    """What a source left to look at; the beams of an input share it."""

    keys: Float[Tensor, "B M C"]  # z
    values: Float[Tensor, "B M C"]  # z + e
    mask: Any
    reach: Float[Tensor, "B 1 1"]  # √m

    def rows(self, rows: Int[Tensor, " R"]) -> Memory:
        """Keep these inputs."""
        mask = None if self.mask is None else self.mask.take(rows)
        return Memory(self.keys[rows], self.values[rows], mask, self.reach[rows])


class Stack(nn.Module):
    """Into the width of the layers, through all of them, and back to the width of the embeddings."""

    def __init__(self, config: Any, block: type[EncoderBlock], layers: int) -> None:
        super().__init__()
        sizes = [(config.hidden, config.kernel)] * layers + [(hidden, kernel) for hidden, kernel in config.wider]
        widths = [sizes[0][0], *(hidden for hidden, _ in sizes)]
        self.enter = normed(config.width, widths[0], config)
        self.blocks = nn.ModuleList(
            block(config, layer, width, *size) for layer, (width, size) in enumerate(zip(widths, sizes, strict=False))
        )
        self.leave = normed(widths[-1], config.width, None)

    def forward(self, words: Float[Tensor, "B N C"], *beside: Any) -> Float[Tensor, "B N C"]:
        """All layers; `beside` is what each of them is given too."""
        x = self.enter(words)
        for block in self.blocks:
            x = block(x, *beside)
        return self.leave(x)

    def rings(self, like: Tensor) -> tuple[Tensor, ...]:
        """An empty past for every layer."""
        every: Any = self.blocks
        return tuple(block.conv.ring(like) for block in every)

    def step(
        self,
        words: Float[Tensor, "B K C"],
        memory: Memory,
        rings: tuple[Tensor, ...],
        time: Int[Tensor, ""],
        matrices: dict[str, Tensor],
        frozen: bool,
    ) -> tuple[Float[Tensor, "B K C"], tuple[Tensor, ...]]:
        """The newest word of every beam through all layers, and their rings with it; `matrices` are `folded`."""
        every: Any = self.blocks
        x, moved = self.enter(words, matrices["enter"]), []
        for layer, (block, ring) in enumerate(zip(every, rings, strict=True)):
            own = {name: matrices[f"blocks.{layer}.{name}"] for name in block.maps}
            x, ring = block.step(x, words, memory, ring, time, own, frozen)
            moved.append(ring)
        return self.leave(x, matrices["leave"]), tuple(moved)


class EncoderBlock(nn.Module):
    """A gated convolution over the places around, and the way around it."""

    kind: type[Convolution] = Convolution

    def __init__(self, config: Any, layer: int, width: int, hidden: int, kernel: int) -> None:
        super().__init__()
        self.skip = None if width == hidden else normed(width, hidden, None)
        self.conv = self.kind(width, 2 * hidden, kernel, mapped=gated(kernel * width, hidden, config))
        self.drop = nn.Dropout(config.dropout)

    def forward(self, x: Float[Tensor, "B N C"], real: Bool[Tensor, "B N"] | None = None) -> Float[Tensor, "B N D"]:
        """What is not real is zero to its neighbours."""
        x = x if real is None else x * real[..., None]
        around = x if self.skip is None else self.skip(x)
        return (F.glu(self.conv(self.drop(x)), -1) + around) * HALF


class DecoderBlock(EncoderBlock):
    """A gated convolution over the places before, a look at the source, and the way around both."""

    kind = CausalConvolution

    def __init__(self, config: Any, layer: int, width: int, hidden: int, kernel: int) -> None:
        super().__init__(config, layer, width, hidden, kernel)
        self.cross = Look(hidden, config.width, cycle(config.attention, layer))
        self.maps = list(folded(self))

    def forward(  # type: ignore[override]
        self, x: Float[Tensor, "B T C"], words: Float[Tensor, "B T E"], memory: Memory
    ) -> Float[Tensor, "B T D"]:
        """All words at once."""
        around = x if self.skip is None else self.skip(x)
        h = F.glu(self.conv(self.drop(x)), -1)
        return (self.cross(h, words, memory.keys, memory.values, memory.mask, memory.reach) + around) * HALF

    def step(
        self,
        x: Float[Tensor, "B K C"],
        words: Float[Tensor, "B K E"],
        memory: Memory,
        ring: Float[Tensor, "B K P C"],
        time: Int[Tensor, ""],
        own: dict[str, Tensor],
        frozen: bool,
    ) -> tuple[Float[Tensor, "B K D"], Float[Tensor, "B K P C"]]:
        """The newest word of every beam; the beams of an input are so many queries of its memory."""
        around = x if self.skip is None else self.skip(x, own["skip"])
        h, ring = self.conv.step(self.drop(x), ring, time, frozen, weight=own["conv.map"])  # type: ignore[operator]
        seen = self.cross(
            F.glu(h, -1),
            words,
            memory.keys,
            memory.values,
            memory.mask,
            memory.reach,
            own["cross.ask"],
            own["cross.take"],
        )
        return (seen + around) * HALF, ring


class Look(nn.Module):
    """One layer's look at the source: d = W h + g asks, Σ_m a_m (z_m + e_m) is taken, both beside what was there."""

    kind = "cross"

    def __init__(self, hidden: int, width: int, attention: Any) -> None:
        super().__init__()
        self.ask, self.take = normed(hidden, width, None), normed(width, hidden, None)
        self.attend = make(MECHANISMS, attention, "attention", scale=1.0)

    def forward(
        self,
        h: Float[Tensor, "B T D"],
        words: Float[Tensor, "B T C"],
        keys: Float[Tensor, "B M C"],
        values: Float[Tensor, "B M C"],
        mask: Mask | None,
        reach: Float[Tensor, "B 1 1"],
        ask: Tensor | None = None,
        take: Tensor | None = None,
    ) -> Float[Tensor, "B T D"]:
        """The state with what it saw; `ask` and `take` are the matrices of its maps, where they were made before."""
        q = ((self.ask(h, ask) + words) * HALF).to(keys.dtype)
        seen = self.attend(q[:, None], keys[:, None], values[:, None], mask)[:, 0]
        return (self.take(seen * reach, take) + h) * HALF


class Divided(torch.autograd.Function):
    """The same values, and a gradient divided by a number."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, by: int) -> Tensor:  # noqa: D102
        ctx.by = by
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:  # noqa: D102
        return gradients[0] / ctx.by, None


# -- fresh maps: the variance that goes in comes out -------------------------------------------------------------------


def normed(width: int, out: int, dropped: Any) -> NormedLinear:
    """A map; where its input is dropped out, what is left of it is larger, and the weights are smaller."""
    return NormedLinear(width, out, ((1 - dropped.dropout if dropped else 1.0) / width) ** 0.5)


def gated(width: int, out: int, config: Any) -> NormedLinear:
    """A map to twice the width, of which a gate leaves a quarter of the variance."""
    return NormedLinear(width, 2 * out, (4 * (1 - config.dropout) / width) ** 0.5)
