"""Three small protocols instead of one large class.

    Aligner     one step at a time, with state, for recurrent decoders        weights(query, keys, mask, state)
    Mechanism   headless, linear in v: q, k, v -> mixed values                 forward(q, k, v, mask, bias)
    Mixer       what a block sees: tokens in, tokens out                       forward(x, context, mask, positions)

`Traits` is data on the class. It may make a call refuse, with what was asked and what is offered; it never makes a call
take another road.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import nn

from regard.attention.mask import Mask
from regard.core.errors import Unsupported
from regard.core.layer_state import LayerState
from regard.core.positions import Bias, PositionInfo
from regard.core.shapes import Bool, Float, Rows, Tensor


@dataclass(frozen=True)
class Traits:
    """What a mechanism costs, honours and claims."""

    cost: str  # in the letters of the house: "N M D"
    paper: str  # arXiv number, or author and year
    masks: frozenset[str] = frozenset({"any"})  # any, causal, padding
    bias: bool = True
    exact: bool = True  # the softmax attention itself, or an approximation of it
    causality: str = "strict"  # strict: the prefix property, may step; values: no value from the future; none
    rowwise: bool = True  # a row of the weights depends on its own query only, so rows may be sliced before computing
    headwise: bool = True  # a head of the weights depends on its own q and k only
    normalised: bool = True  # rows of the weights sum to one


class Mechanism(nn.Module):
    """q B H N D, k B G M D, v B G M E -> B H N E, where G divides H; linear in v (in eval mode).

    A mechanism writes `mix`, and `map_rows` where it has a formula for the matrix it applies. Law: weights(...) @ v ==
    forward(...).
    """

    traits: ClassVar[Traits]

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
        return self.mix(q, k, v, mask, bias)

    def mix(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | None, bias: Bias | None) -> Tensor:
        """The mechanism itself."""
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
        """The matrix that `forward` applies to v, for the asked query rows; had by attending to the identity."""
        m = k.shape[2]
        eye = torch.eye(m, dtype=q.dtype, device=q.device).expand(k.shape[0], k.shape[1], m, m)
        return self.forward(q, k, eye, mask, bias, layer_state=layer_state)[:, :, queries]

    def check(self, q: Tensor, k: Tensor, mask: Mask | None, bias: Bias | None) -> None:
        """Refuse what is not offered, with what was asked and what is offered."""
        name, offered = type(self).__name__, self.traits.masks
        if mask is not None and "any" not in offered and not mask.kinds <= offered:
            asked = ", ".join(sorted(mask.kinds - offered))
            raise Unsupported(f"{name} was given a mask of kind {asked}; it honours {', '.join(sorted(offered))}")
        if bias is not None and not self.traits.bias:
            raise Unsupported(f"{name} cannot add a bias to its scores; use positions that are added or turned")
        if q.shape[1] % k.shape[1]:
            raise Unsupported(f"{name} was given {q.shape[1]} query heads for {k.shape[1]} key heads; G must divide H")


@runtime_checkable
class Mixer(Protocol):
    """What a block sees: tokens in, tokens of the same width out."""

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

    normalised: ClassVar[bool]  # rows sum to one, where there is a place to look at
    monotonic: ClassVar[bool]  # where it looks only moves forward

    def keys(self, memory: Float[Tensor, "B M C"]) -> Float[Tensor, "B M A"]:
        """What the scores need of the memory, once for each input."""
        ...

    def weights(
        self, query: Float[Tensor, "B K Q"], keys: Float[Tensor, "B M A"], mask: Bool[Tensor, "B M"] | None, state: Any
    ) -> tuple[Float[Tensor, "B K M"], Any]:
        """How much each of the K queries looks at each place of the memory, and the state for the next step."""
        ...


def context(weights: Float[Tensor, "B K M"], memory: Float[Tensor, "B M C"]) -> Float[Tensor, "B K C"]:
    """What was looked at: the memory, weighted."""
    return weights @ memory
