"""A stack that reads and writes one text: every token sees itself and what came before it.

`forward` reads a whole text at once, for training. `start` reads prompts into a cache, `replay_step` reads one more token of
every beam. All of them are the same two sublayers, so reading a prompt and N steps equal one forward.

Prompts of different lengths are padded on the right: no real token looks to the right, so reading them needs no mask
but causality, and afterwards the padding is ruled out with the table that also tells beams apart.

Under autocast the residual path has its type too: half the memory that norms and sums read and write, and what a block
adds was rounded to that type anyway. Norms still compute in float32.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from regard.attention.kv_cache import BeamTable, KVCache
from regard.attention.mask import CausalMask, Mask
from regard.blocks.encoder import Encoder, EncoderBlock
from regard.core.layer_state import PassState
from regard.core.positions import PositionInfo
from regard.core.precision import compute_dtype
from regard.core.shapes import Float, Int, Tensor

CACHE_ALIGNMENT = 16  # slots: a GPU's kernels need not pad the mask


class CausalBlock(EncoderBlock):
    """Mix with what came before, then feed forward."""

    def step(
        self, x: Tensor, cache: KVCache | None, beam_table: BeamTable, mask: Mask | None, positions: PositionInfo
    ) -> tuple[Tensor, KVCache]:
        """One block over the newest tokens, which the family has grown by already."""
        new_cache = cache

        def mix(x: Tensor) -> Tensor:
            nonlocal new_cache
            out, new_cache = self.mix.step(x, new_cache, beam_table, mask, positions)  # type: ignore[operator]
            return out

        x = self.residual(self.residual(x, self.mix_norm, mix), self.feed_norm, self.feed)
        assert new_cache is not None
        return x, new_cache


@dataclass(frozen=True, eq=False)
class State:
    """Everything that writing carries from step to step."""

    caches: list[KVCache | None]
    beam_table: BeamTable


class CausalStack(Encoder):
    """A stack of causal blocks over vectors."""

    def forward(
        self, x: Float[Tensor, "B N C"], mask: Mask | None = None, pass_state: PassState | None = None
    ) -> Float[Tensor, "B N C"]:
        """The whole text; every token sees itself and what came before."""
        return super().forward(x, CausalMask() if mask is None else CausalMask() & mask, pass_state)

    def add_positions(self, x: Tensor, index: Int[Tensor, "#B N"]) -> Tensor:
        """Tokens that know where they are, in the type of the products to come."""
        return super().add_positions(x, index).to(compute_dtype(x))

    def start(self, x: Float[Tensor, "B N C"], lengths: Int[Tensor, " B"] | None, capacity: int) -> State:
        """Read prompts, of which lengths[b] tokens are real (None: all), into a cache with room for `room` more slots.

        A prompt of no token is an empty cache.
        """
        batch, n = x.shape[:2]
        beam_table = BeamTable.start(batch, -(-(n + capacity) // CACHE_ALIGNMENT) * CACHE_ALIGNMENT, x.device)
        state = State([None] * len(self.blocks), beam_table)
        if n:
            beam_table.add_prompt(n, lengths)
            index = self.position_ids(n, x.device)
            _, state = self._advance(x, state, CausalMask(), index, index)
        return state

    def step(self, x: Float[Tensor, "B K C"], state: State) -> tuple[Float[Tensor, "B K C"], State]:
        """One more token of every beam."""
        state.beam_table.add_step(x.shape[1])
        return self._advance(x, state, state.beam_table.mask(), *state.beam_table.positions())

    def _advance(
        self, x: Tensor, state: State, mask: Mask | None, queries: Tensor, keys: Tensor
    ) -> tuple[Tensor, State]:
        x, where = self.add_positions(x, queries), self.position_info(queries, keys)
        caches: list[KVCache | None] = []
        for block, cache in zip(self.blocks, state.caches, strict=True):
            x, cache = block.step(x, cache, state.beam_table, mask, where)  # type: ignore[operator]
            caches.append(cache)
        return self.final_norm(x), replace(state, caches=caches)

    @staticmethod
    def select(state: State, rows: Int[Tensor, " R"] | None, beams: Int[Tensor, "R K"]) -> State:
        """Keep the inputs `rows` (None: all), of each the beams `beams`; only dropping inputs moves memory."""
        beam_table = state.beam_table.select(rows, beams)
        if rows is None:
            return replace(state, beam_table=beam_table)
        return State([None if cache is None else cache.select_rows(rows) for cache in state.caches], beam_table)

    @staticmethod
    def freeze(state: State) -> State:
        """From here on every shape is static, so that a step can be recorded and replayed."""
        state.beam_table.freeze()
        return state
