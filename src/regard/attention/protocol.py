"""Three small protocols instead of one large class.

    Aligner     one step at a time, with state, for recurrent decoders        weights(query, keys, mask, state)
    Mechanism   headless, linear in v: q, k, v -> mixed values                 forward(q, k, v, mask, bias)
    Mixer       what a block sees: tokens in, tokens out                       forward(x, context, mask, positions)

`Traits` is data on the class. It may make a call raise `Unsupported`, with what was requested and what is supported; it
never selects another algorithm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import nn

from regard.attention.kv_cache import BeamTable, KVCache
from regard.attention.mask import Mask
from regard.core.errors import Unsupported
from regard.core.layer_state import LayerState
from regard.core.positions import Bias, PositionInfo
from regard.core.shapes import Bool, Float, Int, Rows, Tensor


@dataclass(frozen=True)
class Traits:
    """What a mechanism costs, supports and claims."""

    cost: str  # in the letters of core/shapes: "N M D"
    paper: str  # arXiv number, or author and year
    masks: frozenset[str] = frozenset({"any"})  # any, causal, padding
    bias: bool = True
    exact: bool = True  # the softmax attention itself, or something else in its place
    causality: str = "strict"  # strict: the prefix property, may step; values: no value from the future; none
    rowwise: bool = True  # a row of the weights depends on its own query only, so rows may be sliced before computing
    headwise: bool = True  # a head of the weights depends on its own q and k only
    normalised: bool = True  # rows of the weights sum to one
    square: bool = False  # self-attention only: N = M, and query n stands at the place of key n
    positional: bool = False  # the order of the tokens matters even without positions
    family: str = "full"  # of the survey: sparse by position, sparse by content, linearised, ...
    limit: str = ""  # arguments that make it dense softmax attention for up to 16 tokens: "window=16"
    budget: str = ""  # the argument that brings it closer to softmax attention the larger it is: "features"


def check_mask(mask: Mask | None, traits: Traits, name: str) -> None:
    """Raise `Unsupported` for a mask that these traits do not offer."""
    offered = traits.masks
    if mask is not None and "any" not in offered and not mask.kinds <= offered:
        kinds = ", ".join(sorted(mask.kinds - offered))
        raise Unsupported(f"{name} takes no mask of kind {kinds}; it supports {', '.join(sorted(offered))}")


class DecodingState(Protocol):
    """What a mechanism carries from step to step while decoding."""

    def select(self, rows: Int[Tensor, " R"] | None, beams: Int[Tensor, "R K"]) -> DecodingState:
        """Keep the inputs `rows` (None: all), of each the beams `beams`, whose number may change."""
        ...

    def freeze(self) -> DecodingState:
        """Return a state that steps write in place, so that a step can be captured in a CUDA graph and replayed."""
        ...


class Mechanism(nn.Module):
    """q B H N D, k B G M D, v B G M E -> B H N E, where G divides H; linear in v (in eval mode).

    A subclass writes `mix`, and `weights` if there is a formula for the matrix that it applies. Contract: weights(...)
    @ v == forward(...). Decoding uses a KV cache unless the subclass overrides `start`, `prefill` and `step`; contract:
    N steps == one forward. The constructor may take the sizes of its place by name (width, heads, kv_heads, head_dim,
    length, causal, layer, grid, prefix), dropout and scale.
    """

    traits: ClassVar[Traits]
    default_projection: str = "linear"  # of PROJECTIONS: how its q, k and v are made

    def forward(
        self,
        q: Float[Tensor, "B H N D"],
        k: Float[Tensor, "B G M D"],
        v: Float[Tensor, "B G M E"],
        mask: Mask | None = None,
        bias: Bias | None = None,
        *,
        layer_state: LayerState | None = None,
    ) -> Float[Tensor, "B H N E"]:
        """Attend, or refuse what the traits do not offer."""
        self.check(q, k, mask, bias)
        return self.mix(q, k, v, mask, bias, layer_state)

    def mix(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask | None,
        bias: Bias | None,
        layer_state: LayerState | None = None,
    ) -> Tensor:
        """Return the mixed values; arguments as in `forward`, already checked."""
        raise NotImplementedError

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
        """Return the matrix that `forward` applies to v, for the given query rows; here by attending to the identity.

        It reads the layer state and never writes to it.
        """
        m = k.shape[2]
        eye = torch.eye(m, dtype=q.dtype, device=q.device).expand(k.shape[0], k.shape[1], m, m)
        return self.forward(q, k, eye, mask, bias, layer_state=layer_state)[:, :, queries]

    def check(self, q: Tensor, k: Tensor, mask: Mask | None, bias: Bias | None) -> None:
        """Raise `Unsupported` for a mask, bias or number of heads that the mechanism does not take."""
        name = type(self).__name__
        check_mask(mask, self.traits, name)
        if bias is not None and not self.traits.bias:
            raise Unsupported(
                f"{name} cannot add a bias to its scores; use positions that are added to tokens or transform q and k"
            )
        stepping = mask is not None and mask.token_positions is not None  # the queries' places among the keys are known
        if self.traits.square and q.shape[2] != k.shape[2] and not stepping:
            raise Unsupported(
                f"{name} attends within one sequence, with as many queries as keys, got {q.shape[2]} queries and "
                f"{k.shape[2]} keys; use another mechanism for cross-attention"
            )
        if q.shape[1] % k.shape[1]:
            raise Unsupported(
                f"{name} got {q.shape[1]} query heads and {k.shape[1]} key heads; key heads must divide query heads"
            )

    # -- decoding, one token after another -----------------------------------------------------------------------------

    def start(self, batch: int, capacity: int) -> Any:
        """Return an empty decoding state for `capacity` slots (prompt and steps of all beams)."""
        self.check_steps()
        return KVCache(capacity)

    def check_steps(self) -> None:
        """Raise `Unsupported` unless the causality is strict, without which outputs change when more tokens follow."""
        if self.traits.causality != "strict":
            raise Unsupported(
                f"{type(self).__name__} cannot decode step by step: its causality is '{self.traits.causality}', and "
                "only 'strict' mechanisms give the same outputs token by token as all at once; use one of those"
            )

    def prefill(
        self,
        q: Float[Tensor, "B H N D"],
        k: Float[Tensor, "B G N D"],
        v: Float[Tensor, "B G N E"],
        state: Any,
        beam_table: BeamTable,
        mask: Mask | None = None,
        bias: Bias | None = None,
        *,
        layer_state: LayerState | None = None,
    ) -> tuple[Float[Tensor, "B H N E"], Any]:
        """Attend within a prompt of N tokens, which precedes all beams, and add it to the state."""
        state = state.allocate(k, v)
        k, v = state.append(k, v, beam_table)
        return self(q, k, v, mask, bias, layer_state=layer_state), state

    def step(
        self,
        q: Float[Tensor, "B H K D"],
        k: Float[Tensor, "B G K D"],
        v: Float[Tensor, "B G K E"],
        state: Any,
        beam_table: BeamTable,
        mask: Mask | None = None,
        bias: Bias | None = None,
        *,
        layer_state: LayerState | None = None,
    ) -> tuple[Float[Tensor, "B H K E"], Any]:
        """Attend from the newest token of each of the K beams to its own past, and add it to the state."""
        mask = self.step_mask(beam_table, mask)
        return Mechanism.prefill(self, q, k, v, state, beam_table, mask, bias, layer_state=layer_state)

    def step_mask(self, beam_table: BeamTable, mask: Mask | None) -> Mask | None:
        """Return the mask of a step, or refuse the step; a mechanism may need the positions of queries and keys."""
        return mask


@runtime_checkable
class Mixer(Protocol):
    """What a block sees: tokens in, tokens of the same width out. One that decodes has start, prefill and step too."""

    def __call__(
        self,
        x: Float[Tensor, "B N C"],
        context: Float[Tensor, "B M C"] | None = None,
        mask: Mask | None = None,
        positions: PositionInfo | None = None,
        layer_state: LayerState | None = None,
    ) -> Float[Tensor, "B N C"]:
        """Mix the tokens of x with one another, or with the context's."""
        ...


@runtime_checkable
class Aligner(Protocol):
    """One step at a time, with state. The context is weights @ memory, taken in one place: `context`.

    The state is None before the first step; then None, a tensor B K ..., or a tuple of such, so that beams can be
    reordered by indexing its first two axes.
    """

    normalised: ClassVar[bool]  # rows sum to one, unless everything is masked
    monotonic: ClassVar[bool]  # the attended place only moves forward

    def keys(self, memory: Float[Tensor, "B M C"]) -> Float[Tensor, "B M A"]:
        """Return what the scores need of the memory, once for each input."""
        ...

    def weights(
        self,
        query: Float[Tensor, "B K Q"],
        keys: Float[Tensor, "B M A"],
        mask: Bool[Tensor, "B M"] | None,
        state: Any,
        layer_state: LayerState | None = None,
    ) -> tuple[Float[Tensor, "B K M"], Any]:
        """Return the weights of each of the K queries over the memory, and the state for the next step."""
        ...


def context(weights: Float[Tensor, "B K M"], memory: Float[Tensor, "B M C"]) -> Float[Tensor, "B K C"]:
    """Return the memory averaged with these weights."""
    return weights @ memory
