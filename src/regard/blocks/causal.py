"""A causal stack, for decoder-only models: every token sees itself and earlier ones.

`forward` reads a whole text at once, for training. `start` reads prompts into a cache, `step` reads one more token
of every beam. All of them are the same two sublayers, so reading a prompt and N steps equal one forward.

Prompts of different lengths are padded on the right: no real token sees what comes later, so reading them needs only
the causal mask, and afterwards the beam table masks the padding.

Under autocast the residual path has the autocast dtype too: norms and sums read and write half the memory, and what a
block adds was rounded to that dtype anyway. Norms still compute in float32.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from regard.attention.kv_cache import BeamTable
from regard.attention.mask import CausalMask, Mask
from regard.blocks.encoder import Encoder, EncoderBlock, feed_forward, mixer_states
from regard.core.layer_state import LayerState, PassState
from regard.core.positions import PositionInfo
from regard.core.precision import compute_dtype
from regard.core.shapes import Float, Int, Tensor

CACHE_ALIGNMENT = 16  # slots, so that GPU kernels need not pad the mask


class CausalBlock(EncoderBlock):
    """An encoder block that can step."""

    def step(
        self,
        x: Tensor,
        cache: Any,
        beam_table: BeamTable,
        mask: Mask | None,
        positions: PositionInfo,
        layer_state: LayerState | None = None,
        prompt: bool = False,
    ) -> tuple[Tensor, Any]:
        """Apply the block to the newest tokens, one of each beam or those of a prompt; they are in the beam table
        already. Returns the new decoding state of the mixer too."""
        advance: Any = self.mix.prefill if prompt else self.mix.step

        def mix(x: Tensor) -> Tensor:
            nonlocal cache
            out: Tensor
            out, cache = advance(x, cache, beam_table, mask, positions, layer_state)
            return out

        x = self.residual(x, self.mix_norm, mix)
        return self.residual(x, self.feed_norm, lambda x: feed_forward(self.feed, x, layer_state)), cache


@dataclass(frozen=True, eq=False)
class State:
    """Everything that decoding carries from step to step."""

    caches: list[Any]  # the state of each mixer, of a kind that its mechanism decides
    beam_table: BeamTable


class CausalStack(Encoder):
    """A stack of causal blocks over vectors."""

    def forward(
        self,
        x: Float[Tensor, "B N C"],
        mask: Mask | None = None,
        pass_state: PassState | None = None,
        position_vectors: Float[Tensor, "#B N C"] | None = None,
    ) -> Float[Tensor, "B N C"]:
        """Return the vectors of a whole text; every token sees itself and earlier ones."""
        mask = CausalMask() if mask is None else CausalMask() & mask
        return super().forward(x, mask, pass_state, position_vectors)

    def add_positions(self, x: Tensor, index: Int[Tensor, "#B N"]) -> Tensor:
        """Return the tokens with positions added, in the dtype of the products that follow."""
        return super().add_positions(x, index).to(compute_dtype(x))

    def start(self, x: Float[Tensor, "B N C"], lengths: Int[Tensor, " B"] | None, capacity: int) -> State:
        """Read prompts, of which lengths[b] tokens are real (None: all), into a state for `capacity` more slots.

        Prompts may have no tokens.
        """
        return self.read_prompt(x, lengths, capacity)[1] if x.shape[1] else self._empty(len(x), capacity, x.device)

    def read_prompt(
        self, x: Float[Tensor, "B N C"], lengths: Int[Tensor, " B"] | None, capacity: int
    ) -> tuple[Float[Tensor, "B N C"], State]:
        """Return the vectors of prompts of at least one token too, not only the state after them."""
        n, state = x.shape[1], self._empty(x.shape[0], x.shape[1] + capacity, x.device)
        state.beam_table.add_prompt(n, lengths)
        index = self.position_ids(n, x.device)
        return self._advance(x, state, CausalMask(), index, index, prompt=True)

    def _empty(self, batch: int, capacity: int, device: torch.device) -> State:
        """Return a state in which nothing has been read."""
        slots = -(-capacity // CACHE_ALIGNMENT) * CACHE_ALIGNMENT
        return State(mixer_states(self.blocks, batch, slots), BeamTable.start(batch, slots, device))

    def step(self, x: Float[Tensor, "B K C"], state: State) -> tuple[Float[Tensor, "B K C"], State]:
        """Read one more token of every beam."""
        state.beam_table.add_step(x.shape[1])
        return self._advance(x, state, state.beam_table.mask(), *state.beam_table.positions())

    def _advance(
        self, x: Tensor, state: State, mask: Mask | None, queries: Tensor, keys: Tensor, prompt: bool = False
    ) -> tuple[Tensor, State]:
        x, where, pass_state = self.add_positions(x, queries), self.position_info(queries, keys), PassState()
        caches = []
        for depth, (block, cache) in enumerate(zip(self.blocks, state.caches, strict=True)):
            layer_state = pass_state.layer(depth)
            x, cache = block.step(x, cache, state.beam_table, mask, where, layer_state, prompt)  # type: ignore[operator]
            caches.append(cache)
        return self.final_norm(x), replace(state, caches=caches)

    @staticmethod
    def select(state: State, rows: Int[Tensor, " R"] | None, beams: Int[Tensor, "R K"]) -> State:
        """Keep the inputs `rows` (None: all), of each the beams `beams`; only dropping inputs moves KV caches."""
        return State([cache.select(rows, beams) for cache in state.caches], state.beam_table.select(rows, beams))

    @staticmethod
    def freeze(state: State) -> State:
        """Make every shape static, so that a step can be captured and replayed."""
        state.beam_table.freeze()
        return replace(state, caches=[cache.freeze() for cache in state.caches])
