"""Parts by head: the heads of one layer are shared out among several mechanisms.

    softmax     head_h = softmax(q_h k_hᵀ / √D) v_h                       for all h                O(N M D)
    per_head    head_h = part_p(q_h, k_h, v_h)                            for the heads h of part p; at the cost of p

Heads that look at different places complete one another at no extra cost. The Routing Transformer routes half of its
heads and gives the other half a window: `per_head(parts=('window(window=256)', 'routing'))`. The Sparse Transformer may
give each part of its pattern to some heads: `per_head(parts=('window(window=32)', "axial(axis='column')"))`. Heads of
Longformer may have dilations of their own: `per_head(parts=('window(window=64)', 'window(window=64, dilation=4)'))`.

It takes the masks, biases and cross-attention that every part takes, and is as causal as the least causal one. Parts
that ask for different projections do not go together.

Roy, Saffar, Vaswani, Grangier: Efficient Content-Based Sparse Attention with Routing Transformers. TACL 2021.
arXiv:2003.05997; Child, Gray, Radford, Sutskever: Generating Long Sequences with Sparse Transformers. 2019.
arXiv:1904.10509 (section 4.3)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from regard.attention.kv_cache import BeamTable
from regard.attention.mask import Mask
from regard.attention.mechanisms import MECHANISMS
from regard.attention.mechanisms.dense import repeat_kv
from regard.attention.protocol import Mechanism, Traits
from regard.core.errors import BadInput
from regard.core.layer_state import LayerState
from regard.core.positions import Bias, TensorBias
from regard.core.shapes import Float, Int, Rows, Tensor
from regard.core.spec import build_part
from regard.core.validation import Fraction

CAUSALITIES = ("none", "values", "strict")


class PerHeadAttention(Mechanism):
    """Mechanisms that share the heads out among them, evenly and in order; `parts` are their specs."""

    traits = Traits(  # of the default parts; each object has those of its own
        cost="N M D",
        paper="2003.05997",
        headwise=False,
        square=True,
        positional=True,
        family="heads",
        limit="parts=('softmax', 'window(window=32)')",
    )

    def __init__(
        self,
        heads: int,
        parts: tuple[str, ...] = ("softmax", "window"),
        dropout: Fraction = 0.0,
        scale: float | None = None,
        *,
        width: int | None = None,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        length: int | None = None,
        causal: bool = False,
        layer: int = 0,
        grid: tuple[int, int] | None = None,
        prefix: int = 0,
    ) -> None:
        super().__init__()
        if not 1 <= len(parts) <= heads:
            raise BadInput(f"per_head shares {heads} heads out among its parts, got {len(parts)}; name 1 to {heads}")
        ends = [round(heads * i / len(parts)) for i in range(len(parts) + 1)]
        self.shares = list(pairwise(ends))
        place: dict[str, Any] = {"width": width, "head_dim": head_dim, "length": length, "grid": grid}
        given = {name: value for name, value in place.items() if value is not None}
        given |= {"causal": causal, "layer": layer, "prefix": prefix, "dropout": dropout, "scale": scale}
        each = heads // (kv_heads or heads)
        self.parts = nn.ModuleList(
            build_part(
                MECHANISMS,
                spec,
                "attention",
                heads=end - begin,
                kv_heads=(end - begin) // each if _is_whole(begin, end, each) else end - begin,
                **given,
            )
            for spec, (begin, end) in zip(parts, self.shares, strict=True)
        )
        asked = {part.default_projection for part in self._mechanisms()} - {"linear"}
        if len(asked) > 1:
            raise BadInput(
                f"per_head has one projection for all heads, but its parts need {' and '.join(sorted(asked))}"
            )
        self.default_projection = asked.pop() if asked else "linear"
        self.traits = _combine(type(self).traits, [part.traits for part in self._mechanisms()])  # type: ignore[misc]

    def mix(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask | None,
        bias: Bias | None,
        layer_state: LayerState | None = None,
    ) -> Tensor:
        shares = self._share(q, (k, v), bias, layer_state)
        return torch.cat([part(q, k, v, mask, bias, layer_state=s) for part, q, (k, v), bias, s in shares], 1)

    def weights(
        self,
        q: Float[Tensor, "B H N D"],
        k: Float[Tensor, "B G M D"],
        mask: Mask | None = None,
        bias: Bias | None = None,
        *,
        layer_state: LayerState | None = None,
        queries: Rows = slice(None),
    ) -> Float[Tensor, "B H rows M"]:
        self.check(q, k, mask, bias)
        shares = self._share(q, (k,), bias, layer_state)
        found = [part.weights(q, k, mask, bias, layer_state=s, queries=queries) for part, q, (k,), bias, s in shares]
        return torch.cat(found, 1)

    def start(self, batch: int, capacity: int) -> PartStates:
        self.check_steps()
        return PartStates([part.start(batch, capacity) for part in self._mechanisms()])

    def prefill(
        self,
        q: Float[Tensor, "B H N D"],
        k: Float[Tensor, "B G N D"],
        v: Float[Tensor, "B G N E"],
        state: PartStates,
        beam_table: BeamTable,
        mask: Mask | None = None,
        bias: Bias | None = None,
        *,
        layer_state: LayerState | None = None,
    ) -> tuple[Float[Tensor, "B H N E"], PartStates]:
        return self._step("prefill", q, k, v, state, beam_table, mask, bias, layer_state)

    def step(
        self,
        q: Float[Tensor, "B H K D"],
        k: Float[Tensor, "B G K D"],
        v: Float[Tensor, "B G K E"],
        state: PartStates,
        beam_table: BeamTable,
        mask: Mask | None = None,
        bias: Bias | None = None,
        *,
        layer_state: LayerState | None = None,
    ) -> tuple[Float[Tensor, "B H K E"], PartStates]:
        return self._step("step", q, k, v, state, beam_table, mask, bias, layer_state)

    def _step(
        self,
        method: str,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        state: PartStates,
        beam_table: BeamTable,
        mask: Mask | None,
        bias: Bias | None,
        layer_state: LayerState | None,
    ) -> tuple[Tensor, PartStates]:
        """Let every part take its step."""
        shares = zip(self._share(q, (k, v), bias, layer_state), state.states, strict=True)
        done = [
            getattr(part, method)(q, k, v, own, beam_table, mask, bias, layer_state=s)
            for (part, q, (k, v), bias, s), own in shares
        ]
        return torch.cat([out for out, _ in done], 1), PartStates([own for _, own in done])

    def _share(
        self, q: Tensor, keys: tuple[Tensor, ...], bias: Bias | None, layer_state: LayerState | None
    ) -> Iterator[tuple[Mechanism, Tensor, list[Tensor], Bias | None, LayerState | None]]:
        """Yield every part with its heads of q, of the keys (and values) and of the bias, and a scope of its own."""
        each = q.shape[1] // keys[0].shape[1]
        for index, (part, (begin, end)) in enumerate(zip(self._mechanisms(), self.shares, strict=True)):
            if _is_whole(begin, end, each):
                own = [x[:, begin // each : end // each] for x in keys]
            else:
                own = [repeat_kv(x, q.shape[1])[:, begin:end] for x in keys]
            scope = None if layer_state is None else layer_state.scope(f"part{index}")
            yield part, q[:, begin:end], own, None if bias is None else HeadsBias(bias, begin, end), scope

    def _mechanisms(self) -> Iterator[Mechanism]:
        for part in self.parts:
            assert isinstance(part, Mechanism)
            yield part


@dataclass(frozen=True, eq=False)
class HeadsBias:
    """A bias for some of the heads that it was made for."""

    bias: Bias
    begin: int
    end: int

    def dense(self, rows: Rows = slice(None)) -> Float[Tensor, "#B #H N M"]:
        found = self.bias.dense(rows)
        return found if found.shape[1] == 1 else found[:, self.begin : self.end]

    def score_mod(self) -> Callable[..., Tensor]:
        inner = self.bias.score_mod() or TensorBias(self.bias.dense()).score_mod()
        return lambda score, b, h, n, m: inner(score, b, h + self.begin, n, m)


@dataclass(eq=False)
class PartStates:
    """The decoding states of the parts."""

    states: list[Any]

    def select(self, rows: Int[Tensor, " R"] | None, beams: Int[Tensor, "R K"]) -> PartStates:
        """Keep the inputs `rows` (None: all), of each the beams `beams`."""
        return PartStates([state.select(rows, beams) for state in self.states])

    def freeze(self) -> PartStates:
        """Return states that steps write in place."""
        return PartStates([state.freeze() for state in self.states])


def _is_whole(begin: int, end: int, each: int) -> bool:
    """Whether these query heads are all those of some key heads, of which `each` share one."""
    return begin % each == 0 and end % each == 0


def _combine(base: Traits, parts: list[Traits]) -> Traits:
    """Return the traits of an attention whose heads have these."""
    masks = [part.masks for part in parts if "any" not in part.masks]
    return replace(
        base,
        cost=" + ".join(dict.fromkeys(part.cost for part in parts)),
        masks=frozenset.intersection(*masks) if masks else frozenset({"any"}),
        bias=all(part.bias for part in parts),
        exact=all(part.exact for part in parts),
        causality=min((part.causality for part in parts), key=CAUSALITIES.index),
        rowwise=all(part.rowwise for part in parts),
        normalised=all(part.normalised for part in parts),
        square=any(part.square for part in parts),
        positional=any(part.positional for part in parts),
    )
