"""The decoder: blocks of self-attention, attention to the encoder's output, and feed-forward.

`forward` reads a whole target at once, for training; `step` reads one more token of every beam, for decoding. Both are
the same three sublayers, so N steps equal one forward. A decoder that is not causal (DETR) reads all of its tokens at
once and does not step. Position vectors may be added to the inputs of q and k in every layer, those of the target and
those of the memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from regard.attention.kv_cache import BeamTable
from regard.attention.mask import CausalMask, DenseMask, Mask
from regard.attention.projections import KeyValue
from regard.blocks.encoder import Stack, feed_forward, mixer_states
from regard.blocks.residual import ResidualBlock
from regard.core.errors import Unsupported
from regard.core.layer_state import LayerState, PassState
from regard.core.positions import PositionInfo
from regard.core.shapes import Float, Int, Tensor


class DecoderBlock(ResidualBlock):
    """Self-attention, attention to the memory, feed-forward."""

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

    def sublayers(
        self,
        x: Tensor,
        mix: Callable[[Tensor], Tensor],
        cross: Callable[[Tensor], Tensor],
        layer_state: LayerState | None,
    ) -> Tensor:
        """Apply the three sublayers, of which the first two differ between a whole target and a step."""
        x = self.residual(x, self.mix_norm, mix)
        x = self.residual(x, self.cross_norm, cross)
        return self.residual(x, self.feed_norm, lambda x: feed_forward(self.feed, x, layer_state))

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        mask: Mask | None,
        memory_mask: Mask | None,
        positions: PositionInfo | None = None,
        layer_state: LayerState | None = None,
        cross_positions: PositionInfo | None = None,
    ) -> Tensor:
        """Apply the block to a whole target; several targets in a row may share one memory."""
        targets = x.shape[0] // max(1, memory.shape[0])

        def cross(x: Tensor) -> Tensor:
            queries = x if targets == 1 else x.unflatten(0, (-1, targets)).flatten(1, 2)
            out: Tensor = self.cross(queries, memory, memory_mask, cross_positions, _cross_scope(layer_state))
            return out if targets == 1 else out.unflatten(1, (targets, -1)).flatten(0, 1)

        return self.sublayers(
            x,
            lambda x: self.mix(x, mask=mask, positions=positions, layer_state=layer_state),
            cross,
            layer_state,
        )

    def step(
        self,
        x: Tensor,
        cache: Any,
        keys: KeyValue,
        beam_table: BeamTable,
        masks: Masks,
        positions: PositionInfo,
        layer_state: LayerState | None = None,
    ) -> tuple[Tensor, Any]:
        """Apply the block to the newest token of every beam; also returns the new state of its self-attention."""

        def mix(x: Tensor) -> Tensor:
            nonlocal cache
            out: Tensor
            out, cache = self.mix.step(x, cache, beam_table, masks.self_attention, positions, layer_state)  # type: ignore[operator]
            return out

        def cross(x: Tensor) -> Tensor:
            out: Tensor = self.cross.cross_attend(x, keys, masks.memory, None, _cross_scope(layer_state))  # type: ignore[operator]
            return out

        x = self.sublayers(x, mix, cross, layer_state)
        return x, cache


@dataclass(frozen=True, eq=False)
class Masks:
    """What the newest tokens may see of the target so far, and of the memory."""

    self_attention: Mask | None
    memory: Mask | None


@dataclass(frozen=True, eq=False)
class State:
    """Everything that decoding carries from step to step."""

    caches: list[Any]  # the state of each layer's self-attention, of a kind that its mechanism decides
    keys: list[KeyValue]  # of the memory, a pair for each layer, computed once and shared by the beams
    beam_table: BeamTable
    memory_mask: DenseMask | None


class Decoder(Stack):
    """A stack of decoder blocks over vectors; `causal`: every token sees itself and earlier ones only."""

    def __init__(
        self,
        blocks: Sequence[nn.Module],
        positions: Any,
        norm: nn.Module | None,
        dropout: float,
        causal: bool = True,
    ) -> None:
        super().__init__(blocks, positions, norm, dropout)
        self.causal = causal

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        memory: Float[Tensor, "G N C"],
        mask: Mask | None = None,
        memory_mask: Mask | None = None,
        pass_state: PassState | None = None,
        query_positions: Float[Tensor, "#B T C"] | None = None,
        memory_positions: Float[Tensor, "#B N C"] | None = None,
    ) -> Float[Tensor, "B T C"]:
        """Return the vectors of a whole target. With fewer memories than targets, B / G targets in a row share one.

        `query_positions` are added in every layer to the inputs of q and k in self-attention and of q in
        cross-attention, `memory_positions` to the input of k in cross-attention (DETR).
        """
        layers = self._layers(x, memory, mask, memory_mask, pass_state, query_positions, memory_positions)
        return self.final_norm(deque(layers, maxlen=1).pop())

    def forward_layers(
        self,
        x: Float[Tensor, "B T C"],
        memory: Float[Tensor, "B N C"],
        mask: Mask | None = None,
        memory_mask: Mask | None = None,
        pass_state: PassState | None = None,
        query_positions: Float[Tensor, "#B T C"] | None = None,
        memory_positions: Float[Tensor, "#B N C"] | None = None,
    ) -> Float[Tensor, "L B T C"]:
        """Return the vectors after every block, each through the last norm: what auxiliary losses read (DETR)."""
        layers = self._layers(x, memory, mask, memory_mask, pass_state, query_positions, memory_positions)
        return self.final_norm(torch.stack(list(layers)))

    def _layers(
        self,
        x: Tensor,
        memory: Tensor,
        mask: Mask | None,
        memory_mask: Mask | None,
        pass_state: PassState | None,
        query_positions: Tensor | None,
        memory_positions: Tensor | None,
    ) -> Iterator[Tensor]:
        """Yield the vectors after each block, not normed."""
        pass_state = PassState() if pass_state is None else pass_state
        if self.causal:
            mask = CausalMask() if mask is None else CausalMask() & mask
        mask, memory_mask = (None if one is None else one.for_pass() for one in (mask, memory_mask))
        index = self.position_ids(x.shape[1], x.device)
        x, where = self.add_positions(x, index), self.position_info(index, index, query_positions)
        cross = None
        if query_positions is not None or memory_positions is not None:
            memory_index = torch.arange(memory.shape[1], device=memory.device)[None]
            cross = PositionInfo(index, memory_index, query_vectors=query_positions, key_vectors=memory_positions)
        for depth, block in enumerate(self.blocks):
            x = block(x, memory, mask, memory_mask, where, pass_state.layer(depth), cross)
            yield x

    def start(self, memory: Float[Tensor, "B N C"], memory_mask: DenseMask | None, capacity: int) -> State:
        """Return a state with the keys of the memory and empty caches for `capacity` slots."""
        if not self.causal:
            raise Unsupported(
                "this decoder is not causal and reads all tokens at once; build it with causal=True to step"
            )
        keys = [block.cross.project_kv(memory) for block in self.blocks]  # type: ignore[union-attr, operator]
        if memory.device.type == "cpu":  # read at every step: store each head contiguously
            keys = [(k.mT.contiguous().mT, v.contiguous()) for k, v in keys]
        beam_table = BeamTable.start(memory.shape[0], capacity, memory.device)
        return State(mixer_states(self.blocks, memory.shape[0], capacity), keys, beam_table, memory_mask)

    def step(self, x: Float[Tensor, "B K C"], state: State) -> tuple[Float[Tensor, "B K C"], State]:
        """Read one more token of every beam."""
        state.beam_table.add_step(x.shape[1])
        queries, keys = state.beam_table.positions()
        x, caches = self.step_blocks(self.add_positions(x, queries), state, self.position_info(queries, keys))
        return self.final_norm(x), replace(state, caches=caches)

    def step_blocks(
        self, x: Float[Tensor, "B K C"], state: State, positions: PositionInfo
    ) -> tuple[Float[Tensor, "B K C"], list[Any]]:
        """Return the vectors after all blocks, not normed, and the new states of their self-attention."""
        beam_table, pass_state, caches = state.beam_table, PassState(), []
        masks = Masks(beam_table.mask(), state.memory_mask)
        for depth, (block, cache, memory) in enumerate(zip(self.blocks, state.caches, state.keys, strict=True)):
            x, cache = block.step(x, cache, memory, beam_table, masks, positions, pass_state.layer(depth))  # type: ignore[operator]
            caches.append(cache)
        return x, caches

    def select(self, state: State, rows: Int[Tensor, " R"] | None, beams: Int[Tensor, "R K"]) -> State:
        """Keep the inputs `rows` (None: all), of each the beams `beams`; only dropping inputs moves KV caches."""
        caches = [cache.select(rows, beams) for cache in state.caches]
        beam_table = state.beam_table.select(rows, beams)
        if rows is None:
            return replace(state, caches=caches, beam_table=beam_table)
        mask = None if state.memory_mask is None else state.memory_mask.select_rows(rows)
        return State(caches, [(k[rows], v[rows]) for k, v in state.keys], beam_table, mask)

    @staticmethod
    def freeze(state: State) -> State:
        """Make every shape static, so that a step can be captured and replayed."""
        state.beam_table.freeze()
        return replace(state, caches=[cache.freeze() for cache in state.caches])


def _cross_scope(layer_state: LayerState | None) -> LayerState | None:
    return None if layer_state is None else layer_state.scope("cross")
