"""A stack that reads and writes one text: every token sees itself and what came before it.

`forward` reads a whole text at once, for training. `start` reads prompts into a cache, `step` reads one more token of
every beam. All of them are the same two sublayers, so reading a prompt and N steps equal one forward.

Prompts of different lengths are padded on the right: no real token looks to the right, so reading them needs no mask
but causality, and afterwards the padding is ruled out with the table that also tells beams apart.

Under autocast the residual path has its type too: half the memory that norms and sums read and write, and what a block
adds was rounded to that type anyway. Norms still compute in float32.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from regard.attention.cache import KV, Family
from regard.attention.mask import Causal, Mask
from regard.blocks.encoder import Encoder, EncoderBlock
from regard.core.memo import Memo
from regard.core.precision import product_dtype
from regard.core.shapes import Float, Int, Tensor
from regard.core.where import Where

ALIGNED = 16  # slots: a GPU's kernels need not pad the mask


class CausalBlock(EncoderBlock):
    """Mix with what came before, then feed forward."""

    def step(
        self, x: Tensor, cache: KV | None, family: Family, mask: Mask | None, positions: Where
    ) -> tuple[Tensor, KV]:
        """One block over the newest tokens, which the family has grown by already."""
        kept = cache

        def mix(x: Tensor) -> Tensor:
            nonlocal kept
            out, kept = self.mix.step(x, kept, family, mask, positions)  # type: ignore[operator]
            return out

        x = self.around(self.around(x, self.mix_norm, mix), self.feed_norm, self.feed)
        assert kept is not None
        return x, kept


@dataclass(frozen=True, eq=False)
class State:
    """Everything that writing carries from step to step."""

    caches: list[KV | None]
    family: Family


class CausalStack(Encoder):
    """A stack of causal blocks over vectors."""

    def forward(
        self, x: Float[Tensor, "B N C"], mask: Mask | None = None, memo: Memo | None = None
    ) -> Float[Tensor, "B N C"]:
        """The whole text; every token sees itself and what came before."""
        return super().forward(x, Causal() if mask is None else Causal() & mask, memo)

    def enter(self, x: Tensor, index: Int[Tensor, "#B N"]) -> Tensor:
        """Tokens that know where they are, in the type of the products to come."""
        return super().enter(x, index).to(product_dtype(x))

    def start(self, x: Float[Tensor, "B N C"], lengths: Int[Tensor, " B"] | None, room: int) -> State:
        """Read prompts, of which lengths[b] tokens are real (None: all), into a cache with room for `room` more slots.

        A prompt of no token is an empty cache.
        """
        batch, n = x.shape[:2]
        family = Family.start(batch, -(-(n + room) // ALIGNED) * ALIGNED, x.device)
        state = State([None] * len(self.blocks), family)
        if n:
            family.read(n, lengths)
            index = self.line(n, x.device)
            _, state = self._advance(x, state, Causal(), index, index)
        return state

    def step(self, x: Float[Tensor, "B K C"], state: State) -> tuple[Float[Tensor, "B K C"], State]:
        """One more token of every beam."""
        state.family.grow(x.shape[1])
        return self._advance(x, state, state.family.mask(), *state.family.places())

    def _advance(
        self, x: Tensor, state: State, mask: Mask | None, queries: Tensor, keys: Tensor
    ) -> tuple[Tensor, State]:
        x, where = self.enter(x, queries), self.where(queries, keys)
        caches: list[KV | None] = []
        for block, cache in zip(self.blocks, state.caches, strict=True):
            x, cache = block.step(x, cache, state.family, mask, where)  # type: ignore[operator]
            caches.append(cache)
        return self.leave(x), replace(state, caches=caches)

    @staticmethod
    def select(state: State, rows: Int[Tensor, " R"] | None, beams: Int[Tensor, "R K"]) -> State:
        """Keep the inputs `rows` (None: all), of each the beams `beams`; only dropping inputs moves memory."""
        family = state.family.select(rows, beams)
        if rows is None:
            return replace(state, family=family)
        return State([None if cache is None else cache.rows(rows) for cache in state.caches], family)

    @staticmethod
    def freeze(state: State) -> State:
        """From here on every shape is static, so that a step can be recorded and replayed."""
        state.family.freeze()
        return state
