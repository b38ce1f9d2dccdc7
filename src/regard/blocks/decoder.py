"""The decoder: blocks of causal self-attention, attention to the encoder's output, and feed-forward.

`forward` reads a whole target at once, for training; `step` reads one more token of every beam, for writing. Both are
the same three sublayers, so N steps equal one forward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from torch import nn

from regard.attention.cache import KV, Family
from regard.attention.mask import Causal, Mask, Table
from regard.attention.multihead import Keys
from regard.blocks.encoder import Stack
from regard.blocks.residual import Residual
from regard.core.memo import Memo, Place
from regard.core.shapes import Float, Int, Tensor
from regard.core.where import Where


class DecoderBlock(Residual):
    """Mix with what was written, read the memory, feed forward."""

    def __init__(
        self,
        mix: nn.Module,
        cross: nn.Module,
        feed: nn.Module,
        norms: Sequence[nn.Module],
        pre: bool,
        dropout: float,
    ) -> None:
        super().__init__(pre, dropout)
        self.mix, self.cross, self.feed = mix, cross, feed
        self.mix_norm, self.cross_norm, self.feed_norm = norms

    def flow(self, x: Tensor, mix: Callable[[Tensor], Tensor], cross: Callable[[Tensor], Tensor]) -> Tensor:
        """The three sublayers, however the first two come by their keys."""
        x = self.around(x, self.mix_norm, mix)
        x = self.around(x, self.cross_norm, cross)
        return self.around(x, self.feed_norm, self.feed)

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        mask: Mask | None,
        memory_mask: Mask | None,
        positions: Where | None = None,
        memo: Place | None = None,
    ) -> Tensor:
        """One block over a whole target."""
        return self.flow(
            x,
            lambda x: self.mix(x, mask=mask, positions=positions, memo=memo),
            lambda x: self.cross(x, memory, memory_mask),
        )

    def step(
        self, x: Tensor, cache: KV | None, keys: Keys, family: Family, masks: Masks, positions: Where
    ) -> tuple[Tensor, KV]:
        """One block over the newest token of every beam."""
        kept = cache

        def mix(x: Tensor) -> Tensor:
            nonlocal kept
            out, kept = self.mix.step(x, kept, family, masks.written, positions)  # type: ignore[operator]
            return out

        x = self.flow(x, mix, lambda x: self.cross.read(x, keys, masks.memory))  # type: ignore[operator]
        assert kept is not None
        return x, kept


@dataclass(frozen=True, eq=False)
class Masks:
    """What the newest tokens may see of what was written, and of the memory."""

    written: Mask | None
    memory: Mask | None


@dataclass(frozen=True, eq=False)
class State:
    """Everything that decoding carries from step to step."""

    caches: list[KV | None]
    keys: list[Keys]  # of the memory, a pair for each layer, computed once and shared by the beams
    family: Family
    memory_mask: Table | None


class Decoder(Stack):
    """A stack of decoder blocks over vectors."""

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        memory: Float[Tensor, "B N C"],
        mask: Mask | None = None,
        memory_mask: Mask | None = None,
        memo: Memo | None = None,
    ) -> Float[Tensor, "B T C"]:
        """The whole target; every token sees itself and what came before."""
        memo = Memo() if memo is None else memo
        mask = Causal() if mask is None else Causal() & mask
        index = self.line(x.shape[1], x.device)
        x, where = self.enter(x, index), self.where(index, index)
        for depth, block in enumerate(self.blocks):
            x = block(x, memory, mask, memory_mask, where, memo.at(depth))
        return self.leave(x)

    def start(self, memory: Float[Tensor, "B N C"], memory_mask: Table | None, room: int) -> State:
        """Keys of the memory, an empty cache with room for `room` slots."""
        keys = [block.cross.keys(memory) for block in self.blocks]  # type: ignore[union-attr, operator]
        if memory.device.type == "cpu":  # read at every step: heads apart, in the order in which they are read
            keys = [(k.mT.contiguous().mT, v.contiguous()) for k, v in keys]
        family = Family.start(memory.shape[0], room, memory.device)
        return State([None] * len(self.blocks), keys, family, memory_mask)

    def step(self, x: Float[Tensor, "B K C"], state: State) -> tuple[Float[Tensor, "B K C"], State]:
        """One more token of every beam."""
        family = state.family
        family.grow(x.shape[1])
        queries, keys = family.places()
        x, where, masks = self.enter(x, queries), self.where(queries, keys), Masks(family.mask(), state.memory_mask)
        caches: list[KV | None] = []
        for block, cache, memory in zip(self.blocks, state.caches, state.keys, strict=True):
            x, cache = block.step(x, cache, memory, family, masks, where)  # type: ignore[operator]
            caches.append(cache)
        return self.leave(x), replace(state, caches=caches)

    def select(self, state: State, rows: Int[Tensor, " R"] | None, beams: Int[Tensor, "R K"]) -> State:
        """Keep the inputs `rows` (None: all), of each the beams `beams`; only dropping inputs moves memory."""
        family = state.family.select(rows, beams)
        if rows is None:
            return replace(state, family=family)
        return State(
            [None if cache is None else cache.rows(rows) for cache in state.caches],
            [(k[rows], v[rows]) for k, v in state.keys],
            family,
            None if state.memory_mask is None else state.memory_mask.take(rows),
        )

    @staticmethod
    def freeze(state: State) -> State:
        """From here on every shape is static, so that a step can be recorded and replayed."""
        state.family.freeze()
        return state
