"""The stops on the road from gated units to attention, as parts that a block mixes with (models.road tells the road).

    candidates h̃    gated, weights: f(x_t, h_{t-1}), one time after the other       candidates, keys, heads: f(x_i)
    attend          gated: weights from the gates                                   the others: a softmax

`attend` is a mechanism: it takes the candidates of all times at once, and gives for each time their weighted sum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from regard.attention.mask import CausalMask, DenseMask, Mask
from regard.attention.masked_softmax import upcast
from regard.attention.mechanisms.softmax import SoftmaxAttention
from regard.attention.multihead import MultiHeadAttention
from regard.attention.protocol import Mechanism, Traits
from regard.blocks.decoder_state import gather_beams
from regard.blocks.encoder import Encoder
from regard.core.layer_state import LayerState, PassState
from regard.core.positions import Bias, PositionInfo
from regard.core.scan import scan
from regard.core.shapes import Bool, Float, Int, Rows, Tensor
from regard.core.spec import Registry as Names

LAYERS: Names = {
    "gated": ("regard.blocks.gru_to_attention_layers", "GatedLayer"),
    "weights": ("regard.blocks.gru_to_attention_layers", "SoftmaxWeightsLayer"),
    "candidates": ("regard.blocks.gru_to_attention_layers", "ParallelCandidatesLayer"),
    "keys": ("regard.blocks.gru_to_attention_layers", "SingleHeadLayer"),
    "heads": ("regard.blocks.gru_to_attention_layers", "MultiHeadLayer"),
}


class GatedSum(Mechanism):
    """What a gated unit applies to its candidates: w_ti = (Π_{j>i} u_j) (1 - u_i), up to t. A channel is a head.

    Queries and keys are the gates u, B C N 1; values the candidates. `mix` is the recurrence, `map_rows` the unrolled
    sum: that they agree is the law of the road. Rows sum to 1 - Π_j u_j, as there is nothing before the first time.
    """

    traits = Traits(
        cost="N C log N", paper="1406.1078", masks=frozenset({"causal"}), bias=False, normalised=False, rowwise=False
    )

    def mix(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask | None,
        bias: Bias | None,
        layer_state: LayerState | None = None,
    ) -> Tensor:
        """h_t = u_t h_{t-1} + (1 - u_t) h̃_t."""
        gates = k.expand_as(v).mT
        return scan(gates, (1 - gates) * v.mT).mT

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
        """Each row is the one before times its gate, and one minus its gate is new."""
        gates, n = k[..., 0], k.shape[2]
        row, rows = torch.zeros_like(gates), []
        for t in range(n):
            row = row * gates[..., t : t + 1] + (1 - gates) * (torch.arange(n, device=k.device) == t)
            rows.append(row)
        return torch.stack(rows, 2)[:, :, queries]


class RecurrentLayer(nn.Module):
    """What the first two stops share: from the input and the last state, `parts` vectors of the width."""

    def __init__(self, width: int, parts: int) -> None:
        super().__init__()
        self.given = nn.Linear(width, parts * width)
        self.state = nn.Linear(width, parts * width, bias=False)
        nn.init.orthogonal_(self.state.weight)


class GatedLayer(RecurrentLayer):
    """A gated unit: h_t = u_t h_{t-1} + (1 - u_t) h̃_t. Remembers h."""

    kind = "self"

    def __init__(self, width: int) -> None:
        super().__init__(width, 2)
        self.attend = GatedSum()
        nn.init.constant_(self.given.bias[:width], 1.0)  # it begins by keeping more than it takes

    def forward(
        self,
        x: Float[Tensor, "B N C"],
        context: Tensor | None = None,
        mask: Mask | None = None,
        positions: PositionInfo | None = None,
        layer_state: LayerState | None = None,
    ) -> Float[Tensor, "B N C"]:
        """Gates and candidates, one time after the other; then their sum."""
        state, gates, candidates = torch.zeros_like(x[:, 0]), [], []
        for given in self.given(x).unbind(1):
            gate, new = self.next(given, state)
            state = gate * state + (1 - gate) * new
            gates.append(gate)
            candidates.append(new)
        u, new = (torch.stack(each, -1)[..., None] for each in (gates, candidates))  # B C N 1
        out: Tensor = self.attend(u, u, new, CausalMask()).squeeze(-1).mT
        return out

    def next(self, given: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """The gate u_t and the candidate h̃_t."""
        gate, new = upcast(given + self.state(state)).chunk(2, -1)  # what is carried on adds up
        return torch.sigmoid(gate), torch.tanh(new)

    def step(self, x: Float[Tensor, "B K C"], past: Any, real: Bool[Tensor, "B K t"]) -> tuple[Tensor, Any]:
        """One more time of every beam."""
        state = torch.zeros_like(x) if past is None else past[0]
        gate, new = self.next(self.given(x), state)
        state = torch.where(real[..., -1:], gate * state + (1 - gate) * new, state)
        return state, (state,)


class SoftmaxWeightsLayer(RecurrentLayer):
    """Step 1: a softmax over all candidates, which still depend on the state before. Remembers h, and candidates."""

    kind = "self"

    def __init__(self, width: int) -> None:
        super().__init__(width, 1)
        self.attend = SoftmaxAttention()

    def forward(
        self,
        x: Float[Tensor, "B N C"],
        context: Tensor | None = None,
        mask: Mask | None = None,
        positions: PositionInfo | None = None,
        layer_state: LayerState | None = None,
    ) -> Float[Tensor, "B N C"]:
        """Candidates, one time after the other; then all their sums at once, which are the states again."""
        state, known = torch.zeros_like(x[:, :1]), x[:, :0]
        for given, query in zip(self.given(x).split(1, 1), x.split(1, 1), strict=True):
            known = torch.cat([known, torch.tanh(given + self.state(state))], 1)
            state = (query @ known.mT * x.shape[-1] ** -0.5).softmax(-1) @ known
        return _single_head(self.attend, x, known, CausalMask())

    def step(self, x: Float[Tensor, "B K C"], past: Any, real: Bool[Tensor, "B K t"]) -> tuple[Tensor, Any]:
        """One more time of every beam."""
        state, known = (torch.zeros_like(x), x[:, :, None][:, :, :0]) if past is None else past
        known = torch.cat([known, torch.tanh(self.given(x) + self.state(state))[:, :, None]], 2)
        out = _attend_step(self.attend, x[:, :, None, None], known[:, :, None], known[:, :, None], real)
        return out, (torch.where(real[..., -1:], out, state), known)


class ParallelCandidatesLayer(nn.Module):
    """Step 2: candidates that depend on their own input only, so all times are computed at once. Remembers them."""

    kind = "self"

    def __init__(self, width: int) -> None:
        super().__init__()
        self.given = nn.Linear(width, width)
        self.attend = SoftmaxAttention()

    def forward(
        self,
        x: Float[Tensor, "B N C"],
        context: Tensor | None = None,
        mask: Mask | None = None,
        positions: PositionInfo | None = None,
        layer_state: LayerState | None = None,
    ) -> Float[Tensor, "B N C"]:
        """A softmax over the candidates."""
        return _single_head(self.attend, x, torch.tanh(self.given(x)), CausalMask() if mask is None else mask)

    def step(self, x: Float[Tensor, "B K C"], past: Any, real: Bool[Tensor, "B K t"]) -> tuple[Tensor, Any]:
        """One more time of every beam."""
        new = torch.tanh(self.given(x))[:, :, None]
        known = new if past is None else torch.cat([past[0], new], 2)
        return _attend_step(self.attend, x[:, :, None, None], known[:, :, None], known[:, :, None], real), (known,)


class ProjectedLayer(MultiHeadAttention):
    """What the last two stops share: queries from the tokens, keys and values from their candidates. Remembers both."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__(width, heads, cross=True)
        self.kind = "self"
        self.given = nn.Linear(width, width)

    def forward(
        self,
        x: Float[Tensor, "B N C"],
        context: Float[Tensor, "B M C"] | None = None,
        mask: Mask | None = None,
        positions: PositionInfo | None = None,
        layer_state: LayerState | None = None,
    ) -> Float[Tensor, "B N C"]:
        """Queries from the tokens, keys and values from their candidates."""
        known = torch.tanh(self.given(x if context is None else context))
        return self.cross_attend(x, self.project_kv(known), CausalMask() if mask is None else mask)

    def step(self, x: Float[Tensor, "B K C"], past: Any, real: Bool[Tensor, "B K t"]) -> tuple[Tensor, Any]:  # type: ignore[override]
        """One more time of every beam."""
        new = [part.transpose(1, 2)[..., None, :] for part in self.project_kv(torch.tanh(self.given(x)))]  # B K H 1 D
        known = new if past is None else [torch.cat([old, part], 3) for old, part in zip(past, new, strict=True)]
        query = self.project.project_q(x).transpose(1, 2)[..., None, :]
        heads = _attend_step(self.attend, query, known[0], known[1], real)
        return self.join(heads.unflatten(-1, (query.shape[2], -1)).transpose(1, 2)), tuple(known)


class SingleHeadLayer(ProjectedLayer):
    """Step 3: queries, keys and values through maps of their own."""

    def __init__(self, width: int) -> None:
        super().__init__(width, 1)


class MultiHeadLayer(ProjectedLayer):
    """Step 4: several heads, which is the attention of a Transformer over candidates."""

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__(width, heads)


def _single_head(attend: nn.Module, x: Tensor, known: Tensor, mask: Mask) -> Tensor:
    """One head as wide as everything, whose keys are its values."""
    out: Tensor = attend(x[:, None], known[:, None], known[:, None], mask)[:, 0]
    return out


def _attend_step(attend: nn.Module, query: Tensor, keys: Tensor, values: Tensor, real: Bool[Tensor, "B K t"]) -> Tensor:
    """One query of every beam, B K H 1 D, over what it has behind it, B K H t D; heads side by side, B K C."""
    mask = DenseMask(real.flatten(0, 1)[:, None])
    out: Tensor = attend(*(part.flatten(0, 1) for part in (query, keys, values)), mask)
    return out.flatten(1).unflatten(0, real.shape[:2])


@dataclass(frozen=True, eq=False)
class State:
    """What writing carries from step to step; every tensor begins with B K."""

    at: Int[Tensor, "B K"]  # the place of the next token
    real: Bool[Tensor, "B K t"]  # which of the tokens so far are no padding
    layer_states: tuple[Any, ...]  # what each layer remembers

    def select(self, rows: Int[Tensor, " R"] | None, beams: Int[Tensor, "R K"]) -> State:
        """Keep the inputs `rows` (None: all), of each the beams `beams`."""
        return State(*gather_beams((self.at, self.real, self.layer_states), rows, beams))


class RecurrentStack(Encoder):
    """A stack of blocks over vectors, each of which sees what came before; steps with what its parts remember."""

    def forward(
        self, x: Float[Tensor, "B N C"], mask: Mask | None = None, pass_state: PassState | None = None
    ) -> Float[Tensor, "B N C"]:
        """The whole text."""
        return super().forward(x, CausalMask(), pass_state)

    def start(self, x: Float[Tensor, "B N C"], lengths: Int[Tensor, " B"]) -> State:
        """Read prompts, of which lengths[b] tokens are real, one token after the other."""
        at = lengths.new_zeros(x.shape[0], 1)
        state = State(at, at.new_zeros(x.shape[0], 1, 0, dtype=torch.bool), (None,) * len(self.blocks))
        for t in range(x.shape[1]):
            _, state = self.step(x[:, t : t + 1], state, (t < lengths)[:, None])
        return state

    def step(
        self, x: Float[Tensor, "B K C"], state: State, real: Bool[Tensor, "B K"] | None = None
    ) -> tuple[Float[Tensor, "B K C"], State]:
        """One more token of every beam; where it is not `real` (padding), nothing of it is remembered."""
        real = torch.ones_like(state.at, dtype=torch.bool) if real is None else real
        seen = torch.cat([state.real, real[..., None]], -1)
        x, layer_states = self.add_positions(x, state.at), []
        for block, past in zip(self.blocks, state.layer_states, strict=True):
            x, past = _step_block(block, x, past, seen)
            layer_states.append(past)
        return self.final_norm(x), replace(state, at=state.at + real, real=seen, layer_states=tuple(layer_states))


def _step_block(block: Any, x: Tensor, past: Any, seen: Bool[Tensor, "B K t"]) -> tuple[Tensor, Any]:
    """One block over the newest tokens."""
    new_state = past

    def mix(x: Tensor) -> Tensor:
        nonlocal new_state
        out: Tensor
        out, new_state = block.mix.step(x, past, seen)
        return out

    return block.residual(block.residual(x, block.mix_norm, mix), block.feed_norm, block.feed), new_state
