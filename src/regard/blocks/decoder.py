"""The decoder: blocks of causal self-attention, attention to the encoder's output, and feed-forward.

`forward` reads a whole target at once, for training; `replay_step` reads one more token of every beam, for writing. Both are
the same three sublayers, so N steps equal one forward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from torch import nn

from regard.attention.kv_cache import BeamTable, KVCache
from regard.attention.mask import CausalMask, DenseMask, Mask
from regard.attention.multihead import KeyValue
from regard.blocks.encoder import Stack
from regard.blocks.residual import ResidualBlock
from regard.core.layer_state import LayerState, PassState
from regard.core.positions import PositionInfo
from regard.core.shapes import Float, Int, Tensor


class DecoderBlock(ResidualBlock):
    """Mix with what was written, read the memory, feed forward."""

    def __init__(
        self,
        mix: nn.Module,
        cross: nn.Module,
        feed: nn.Module,
        norms: Sequence[nn.Module],
        pre_norm: bool,
        dropout: float,
    ) -> None:
        super().__init__(pre_norm, dropout)
        self.mix, self.cross, self.feed = mix, cross, feed
        self.mix_norm, self.cross_norm, self.feed_norm = norms

    def sublayers(self, x: Tensor, mix: Callable[[Tensor], Tensor], cross: Callable[[Tensor], Tensor]) -> Tensor:
        """The three sublayers, however the first two come by their keys."""
        x = self.residual(x, self.mix_norm, mix)
        x = self.residual(x, self.cross_norm, cross)
        return self.residual(x, self.feed_norm, self.feed)

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        mask: Mask | None,
        memory_mask: Mask | None,
        positions: PositionInfo | None = None,
        layer_state: LayerState | None = None,
    ) -> Tensor:
        """One block over a whole target."""
        return self.sublayers(
            x,
            lambda x: self.mix(x, mask=mask, positions=positions, layer_state=layer_state),
            lambda x: self.cross(x, memory, memory_mask),
        )

    def step(
        self,
        x: Tensor,
        cache: KVCache | None,
        keys: KeyValue,
        beam_table: BeamTable,
        masks: Masks,
        positions: PositionInfo,
    ) -> tuple[Tensor, KVCache]:
        """One block over the newest token of every beam."""
        new_cache = cache

        def mix(x: Tensor) -> Tensor:
            nonlocal new_cache
            out, new_cache = self.mix.step(x, new_cache, beam_table, masks.self_attention, positions)  # type: ignore[operator]
            return out

        x = self.sublayers(x, mix, lambda x: self.cross.cross_attend(x, keys, masks.memory))  # type: ignore[operator]
        assert new_cache is not None
        return x, new_cache


@dataclass(frozen=True, eq=False)
class Masks:
    """What the newest tokens may see of what was written, and of the memory."""

    self_attention: Mask | None
    memory: Mask | None


@dataclass(frozen=True, eq=False)
class State:
    """Everything that decoding carries from step to step."""

    caches: list[KVCache | None]
    keys: list[KeyValue]  # of the memory, a pair for each layer, computed once and shared by the beams
    beam_table: BeamTable
    memory_mask: DenseMask | None


class Decoder(Stack):
    """A stack of decoder blocks over vectors."""

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        memory: Float[Tensor, "B N C"],
        mask: Mask | None = None,
        memory_mask: Mask | None = None,
        pass_state: PassState | None = None,
    ) -> Float[Tensor, "B T C"]:
        """The whole target; every token sees itself and what came before."""
        pass_state = PassState() if pass_state is None else pass_state
        mask = CausalMask() if mask is None else CausalMask() & mask
        index = self.position_ids(x.shape[1], x.device)
        x, where = self.add_positions(x, index), self.position_info(index, index)
        for depth, block in enumerate(self.blocks):
            x = block(x, memory, mask, memory_mask, where, pass_state.layer(depth))
        return self.final_norm(x)

    def start(self, memory: Float[Tensor, "B N C"], memory_mask: DenseMask | None, capacity: int) -> State:
        """Keys of the memory, an empty cache with room for `room` slots."""
        keys = [block.cross.project_kv(memory) for block in self.blocks]  # type: ignore[union-attr, operator]
        if memory.device.type == "cpu":  # read at every step: heads apart, in the order in which they are read
            keys = [(k.mT.contiguous().mT, v.contiguous()) for k, v in keys]
        beam_table = BeamTable.start(memory.shape[0], capacity, memory.device)
        return State([None] * len(self.blocks), keys, beam_table, memory_mask)

    def step(self, x: Float[Tensor, "B K C"], state: State) -> tuple[Float[Tensor, "B K C"], State]:
        """One more token of every beam."""
        beam_table = state.beam_table
        beam_table.add_step(x.shape[1])
        queries, keys = beam_table.positions()
        x, where, masks = (
            self.add_positions(x, queries),
            self.position_info(queries, keys),
            Masks(beam_table.mask(), state.memory_mask),
        )
        caches: list[KVCache | None] = []
        for block, cache, memory in zip(self.blocks, state.caches, state.keys, strict=True):
            x, cache = block.step(x, cache, memory, beam_table, masks, where)  # type: ignore[operator]
            caches.append(cache)
        return self.final_norm(x), replace(state, caches=caches)

    def select(self, state: State, rows: Int[Tensor, " R"] | None, beams: Int[Tensor, "R K"]) -> State:
        """Keep the inputs `rows` (None: all), of each the beams `beams`; only dropping inputs moves memory."""
        beam_table = state.beam_table.select(rows, beams)
        if rows is None:
            return replace(state, beam_table=beam_table)
        return State(
            [None if cache is None else cache.select_rows(rows) for cache in state.caches],
            [(k[rows], v[rows]) for k, v in state.keys],
            beam_table,
            None if state.memory_mask is None else state.memory_mask.select_rows(rows),
        )

    @staticmethod
    def freeze(state: State) -> State:
        """From here on every shape is static, so that a step can be recorded and replayed."""
        state.beam_table.freeze()
        return state
