"""From the GRU to attention in four steps: one small model, with a mixer for each step.

    tokens      one embedding table for input and output
    positions   a learned table, added to the tokens
    attention   causal, by the mixer that `variant` names
    head        linear, tied to the embedding

The state of a gated unit, unrolled, is a weighted sum of all candidates h̃:

    gated        h_t = u_t h_{t-1} + (1 - u_t) h̃_t  =  Σ_i (Π_{j>i} u_j) (1 - u_i) h̃_i        h̃_t = f(x_t, h_{t-1})
    weights      h_t = Σ_i α_i h̃_i          α_i ∝ exp(ATT(h̃_i, x_t))                         h̃_t = f(x_t, h_{t-1})
    candidates   h_t = Σ_i α_i f(x_i)       α_i ∝ exp(ATT(f(x_i), x_t))
    keys         h_t = Σ_i α_i V f(x_i)     α_i ∝ exp(ATT(K f(x_i), Q x_t))
    heads        the same several times in parallel, with projections of their own

The first step replaces the gates by free weights, the second makes candidates independent of the states (from here on
all times are computed in parallel), the third separates queries, keys and values, the fourth adds heads. f is one layer
and tanh, ATT the scaled dot product. Every mixer computes its candidates and then attends to them, so that `watch` sees
its weights; those of the gated unit have one head a channel.

Cho, Gulcehre, van Merriënboer, Bahdanau, Bougares, Schwenk, Bengio: Learning Phrase Representations using RNN
Encoder-Decoder. EMNLP 2014. arXiv:1406.1078; the steps are a lecture's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from regard.attention.joins.concat import OutputProjection
from regard.attention.mask import CausalMask, DenseMask, Mask, PaddingMask
from regard.attention.masked_softmax import upcast
from regard.attention.mechanisms.softmax import SoftmaxAttention
from regard.attention.projections import CrossProjection
from regard.attention.protocol import Mechanism, Traits
from regard.blocks import FEEDFORWARDS, NORMS
from regard.blocks.decoder_state import gather_beams
from regard.blocks.encoder import Encoder, EncoderBlock, build_positions
from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.layer_state import LayerState, PassState
from regard.core.positions import Bias, PositionInfo
from regard.core.scan import scan
from regard.core.shapes import Bool, Float, Int, Rows, Tensor, check_token_ids
from regard.core.spec import Registry, build_part
from regard.core.validation import validate
from regard.models.contract import ModelContract

LAYERS: Registry = {
    "gated": ("regard.models.gru_to_attention", "GatedLayer"),
    "weights": ("regard.models.gru_to_attention", "SoftmaxWeightsLayer"),
    "candidates": ("regard.models.gru_to_attention", "ParallelCandidatesLayer"),
    "keys": ("regard.models.gru_to_attention", "SingleHeadLayer"),
    "heads": ("regard.models.gru_to_attention", "MultiHeadLayer"),
}

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]  # hidden B N C, the head's weight V C, targets B N -> a sum


@dataclass(frozen=True)
class Config:
    """Hyperparameters of all variants."""

    vocab: int
    variant: str = "heads"  # gated, weights, candidates, keys or heads
    width: int = 128
    heads: int = 4  # of the variant heads; the others have one
    layers: int = 2
    ffn: int | None = None  # None: twice the width
    length: int = 64  # maximum length with learned positions
    dropout: float = field(0.0, low=0, below=1)
    positions: str = "learned"  # added to tokens
    tied: bool = True
    eos: int = field(0, low=0)  # the token that ends a text


SIZES: dict[str, dict[str, Any]] = {"small": {"width": 256, "layers": 4, "length": 256}, "tiny": {}}


class GRUToAttention(ModelContract):
    """Tokens to logits of the next token at every position."""

    forward_methods = ("hidden",)  # methods besides forward that FSDP must wrap

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config = config
        self.embed = nn.Embedding(config.vocab, config.width)
        positions = build_positions(config, causal=True)
        if positions.kind != "added":
            raise BadInput(f"positions must be added to tokens ('learned', 'sinusoidal'), got '{config.positions}'")
        blocks = [_block(config) for _ in range(config.layers)]
        self.decoder = RecurrentStack(blocks, positions, _norm(config), config.dropout)
        self.head = nn.Linear(config.width, config.vocab, bias=False)
        nn.init.normal_(self.embed.weight, std=config.width**-0.5)
        nn.init.normal_(self.head.weight, std=config.width**-0.5)
        if config.tied:
            self.head.weight = self.embed.weight

    def forward(
        self,
        tokens: Int[Tensor, "B N"],
        lengths: Int[Tensor, " B"] | None = None,
        targets: Int[Tensor, "B N"] | None = None,
        loss: Loss | None = None,
        pass_state: PassState | None = None,
    ) -> Float[Tensor, "..."]:
        """Return the logits B N V of the token after each token; with `loss`, its value for `targets`.

        Texts are padded on the right.
        """
        x = self.hidden(tokens, lengths, pass_state)
        if loss is None:
            return self.head(x)
        assert targets is not None
        return loss(x, self.head.weight, targets)

    def hidden(
        self,
        tokens: Int[Tensor, "B N"],
        lengths: Int[Tensor, " B"] | None = None,
        pass_state: PassState | None = None,
    ) -> Float[Tensor, "B N C"]:
        """Return the hidden states before the head."""
        PaddingMask.from_lengths(check_token_ids(tokens), lengths)  # only checked: causality hides padding
        return self.decoder(self.embed(tokens), pass_state=pass_state)

    # -- decoding, one token at a time ---------------------------------------------------------------------------------

    @property
    def eos(self) -> int:
        return self.config.eos

    def start(
        self, prompts: Int[Tensor, "B N"], lengths: Int[Tensor, " B"] | None = None, *, capacity: int
    ) -> tuple[Int[Tensor, "B 1"], State]:
        """Encode the prompts; return their last tokens, to step with, and a state that grows as needed."""
        if not prompts.shape[1]:
            raise BadInput("the prompt is empty; give at least one token, such as the end token")
        ends = prompts.new_full((prompts.shape[0],), prompts.shape[1]) if lengths is None else lengths.to(prompts)
        last = prompts.gather(1, ends[:, None] - 1)
        return last, self.decoder.start(self.embed(prompts[:, :-1]), ends - 1)

    def step(self, tokens: Int[Tensor, "B K"], state: State) -> tuple[Float[Tensor, "B K V"], State]:
        x, state = self.decoder.step(self.embed(tokens), state)
        return self.head(x), state

    def select(self, state: State, rows: Int[Tensor, " R"] | None, beams: Int[Tensor, "R K"]) -> State:
        return state.select(rows, beams)


def _block(config: Config) -> EncoderBlock:
    mix = build_part(LAYERS, config.variant, "variant", width=config.width, heads=config.heads)
    hidden = 2 * config.width if config.ffn is None else config.ffn
    feed = build_part(FEEDFORWARDS, "gelu", "feed-forward", width=config.width, hidden=hidden, bias=True)
    return EncoderBlock(mix, feed, [_norm(config), _norm(config)], True, config.dropout)


def _norm(config: Config) -> nn.Module:
    part: nn.Module = build_part(NORMS, "layer", "norm", normalized_shape=config.width)
    return part


# -- layers ------------------------------------------------------------------------------------------------------------


class GatedSum(Mechanism):
    """The sum that a gated unit takes over its candidates: w_ti = (Π_{j>i} u_j) (1 - u_i), i ≤ t. A channel is a head.

    Queries and keys are the gates u, B C N 1, values the candidates. `mix` is the recurrence, `weights` the unrolled
    sum; a contract test shows that they agree. Rows sum to 1 - Π_j u_j, since nothing comes before the first step.
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
        gates, n = k[..., 0], k.shape[2]
        row, rows = torch.zeros_like(gates), []
        for t in range(n):
            row = row * gates[..., t : t + 1] + (1 - gates) * (torch.arange(n, device=k.device) == t)
            rows.append(row)
        return torch.stack(rows, 2)[:, :, queries]


class RecurrentLayer(nn.Module):
    """Base class of recurrent layers: `parts` vectors of the width from the input and the last state."""

    def __init__(self, width: int, parts: int) -> None:
        super().__init__()
        self.input_projection = nn.Linear(width, parts * width)
        self.state = nn.Linear(width, parts * width, bias=False)
        nn.init.orthogonal_(self.state.weight)


class GatedLayer(RecurrentLayer):
    """A gated unit: h_t = u_t h_{t-1} + (1 - u_t) h̃_t. Its state is h."""

    kind = "self"

    def __init__(self, width: int) -> None:
        super().__init__(width, 2)
        self.attend = GatedSum()
        nn.init.constant_(self.input_projection.bias[:width], 1.0)  # it starts by keeping more than it takes

    def forward(
        self,
        x: Float[Tensor, "B N C"],
        context: Tensor | None = None,
        mask: Mask | None = None,
        positions: PositionInfo | None = None,
        layer_state: LayerState | None = None,
    ) -> Float[Tensor, "B N C"]:
        """Compute gates and candidates step by step, then their sum."""
        state, gates, candidates = torch.zeros_like(x[:, 0]), [], []
        for projected in self.input_projection(x).unbind(1):
            gate, new = self.next(projected, state)
            state = gate * state + (1 - gate) * new
            gates.append(gate)
            candidates.append(new)
        u, new = (torch.stack(each, -1)[..., None] for each in (gates, candidates))  # B C N 1
        out: Tensor = self.attend(u, u, new, CausalMask()).squeeze(-1).mT
        return out

    def next(self, projected: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gate u_t and the candidate h̃_t."""
        gate, new = upcast(projected + self.state(state)).chunk(
            2, -1
        )  # in float32: rounding errors of the state would add up
        return torch.sigmoid(gate), torch.tanh(new)

    def step(self, x: Float[Tensor, "B K C"], past: Any, real: Bool[Tensor, "B K t"]) -> tuple[Tensor, Any]:
        """Advance every beam by one token."""
        state = torch.zeros_like(x) if past is None else past[0]
        gate, new = self.next(self.input_projection(x), state)
        state = torch.where(real[..., -1:], gate * state + (1 - gate) * new, state)
        return state, (state,)


class SoftmaxWeightsLayer(RecurrentLayer):
    """Step 1: a softmax over all candidates, which still depend on the last state; state: h and the candidates."""

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
        """Compute the candidates step by step, then all their sums at once, which are the states again."""
        state, known = torch.zeros_like(x[:, :1]), x[:, :0]
        for projected, query in zip(self.input_projection(x).split(1, 1), x.split(1, 1), strict=True):
            known = torch.cat([known, torch.tanh(projected + self.state(state))], 1)
            state = (query @ known.mT * x.shape[-1] ** -0.5).softmax(-1) @ known
        return _single_head(self.attend, x, known, CausalMask())

    def step(self, x: Float[Tensor, "B K C"], past: Any, real: Bool[Tensor, "B K t"]) -> tuple[Tensor, Any]:
        """Advance every beam by one token."""
        state, known = (torch.zeros_like(x), x[:, :, None][:, :, :0]) if past is None else past
        known = torch.cat([known, torch.tanh(self.input_projection(x) + self.state(state))[:, :, None]], 2)
        out = _attend_step(self.attend, x[:, :, None, None], known[:, :, None], known[:, :, None], real)
        return out, (torch.where(real[..., -1:], out, state), known)


class ParallelCandidatesLayer(nn.Module):
    """Step 2: candidates that depend on their own input only, all computed at once. They are its state."""

    kind = "self"

    def __init__(self, width: int) -> None:
        super().__init__()
        self.input_projection = nn.Linear(width, width)
        self.attend = SoftmaxAttention()

    def forward(
        self,
        x: Float[Tensor, "B N C"],
        context: Tensor | None = None,
        mask: Mask | None = None,
        positions: PositionInfo | None = None,
        layer_state: LayerState | None = None,
    ) -> Float[Tensor, "B N C"]:
        return _single_head(
            self.attend, x, torch.tanh(self.input_projection(x)), CausalMask() if mask is None else mask
        )

    def step(self, x: Float[Tensor, "B K C"], past: Any, real: Bool[Tensor, "B K t"]) -> tuple[Tensor, Any]:
        """Advance every beam by one token."""
        new = torch.tanh(self.input_projection(x))[:, :, None]
        known = new if past is None else torch.cat([past[0], new], 2)
        return _attend_step(self.attend, x[:, :, None, None], known[:, :, None], known[:, :, None], real), (known,)


class ProjectedLayer(nn.Module):
    """Base class of the last two: queries from the tokens, keys and values, its state, from their candidates."""

    kind = "self"

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.project = CrossProjection(width, heads)
        self.attend = SoftmaxAttention()
        self.join = OutputProjection(width)
        self.input_projection = nn.Linear(width, width)

    def forward(
        self,
        x: Float[Tensor, "B N C"],
        context: Float[Tensor, "B M C"] | None = None,
        mask: Mask | None = None,
        positions: PositionInfo | None = None,
        layer_state: LayerState | None = None,
    ) -> Float[Tensor, "B N C"]:
        k, v = self.project.project_kv(torch.tanh(self.input_projection(x if context is None else context)))
        out: Tensor = self.join(self.attend(self.project.project_q(x), k, v, CausalMask() if mask is None else mask))
        return out

    def step(self, x: Float[Tensor, "B K C"], past: Any, real: Bool[Tensor, "B K t"]) -> tuple[Tensor, Any]:
        """Advance every beam by one token."""
        kv = self.project.project_kv(torch.tanh(self.input_projection(x)))
        new = [part.transpose(1, 2)[..., None, :] for part in kv]  # B K H 1 D
        known = new if past is None else [torch.cat([old, part], 3) for old, part in zip(past, new, strict=True)]
        query = self.project.project_q(x).transpose(1, 2)[..., None, :]
        heads = _attend_step(self.attend, query, known[0], known[1], real)
        return self.join(heads.unflatten(-1, (query.shape[2], -1)).transpose(1, 2)), tuple(known)


class SingleHeadLayer(ProjectedLayer):
    """Step 3: queries, keys and values through linear maps of their own."""

    def __init__(self, width: int) -> None:
        super().__init__(width, 1)


class MultiHeadLayer(ProjectedLayer):
    """Step 4: several heads: the attention of a Transformer, over candidates."""

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__(width, heads)


def _single_head(attend: nn.Module, x: Tensor, known: Tensor, mask: Mask) -> Tensor:
    """Attend with one head of full width whose keys are its values."""
    out: Tensor = attend(x[:, None], known[:, None], known[:, None], mask)[:, 0]
    return out


def _attend_step(attend: nn.Module, query: Tensor, keys: Tensor, values: Tensor, real: Bool[Tensor, "B K t"]) -> Tensor:
    """Attend from one query of every beam, B K H 1 D, to its own past, B K H t D; returns the heads joined, B K C."""
    mask = DenseMask(real.flatten(0, 1)[:, None])
    out: Tensor = attend(*(part.flatten(0, 1) for part in (query, keys, values)), mask)
    return out.flatten(1).unflatten(0, real.shape[:2])


@dataclass(frozen=True, eq=False)
class State:
    """What decoding carries from step to step; every tensor begins with B K."""

    at: Int[Tensor, "B K"]  # the position of the next token
    real: Bool[Tensor, "B K t"]  # which of the tokens so far are not padding
    layer_states: tuple[Any, ...]  # the state of each layer

    def select(self, rows: Int[Tensor, " R"] | None, beams: Int[Tensor, "R K"]) -> State:
        """Keep the inputs `rows` (None: all), of each the beams `beams`."""
        return State(*gather_beams((self.at, self.real, self.layer_states), rows, beams))


class RecurrentStack(Encoder):
    """A causal stack of blocks that steps with the states of its layers."""

    def forward(
        self,
        x: Float[Tensor, "B N C"],
        mask: Mask | None = None,
        pass_state: PassState | None = None,
        position_vectors: Float[Tensor, "#B N C"] | None = None,
    ) -> Float[Tensor, "B N C"]:
        return super().forward(x, CausalMask(), pass_state, position_vectors)

    def start(self, x: Float[Tensor, "B N C"], lengths: Int[Tensor, " B"]) -> State:
        """Read prompts, of which lengths[b] tokens are real, token by token."""
        at = lengths.new_zeros(x.shape[0], 1)
        state = State(at, at.new_zeros(x.shape[0], 1, 0, dtype=torch.bool), (None,) * len(self.blocks))
        for t in range(x.shape[1]):
            _, state = self.step(x[:, t : t + 1], state, (t < lengths)[:, None])
        return state

    def step(
        self, x: Float[Tensor, "B K C"], state: State, real: Bool[Tensor, "B K"] | None = None
    ) -> tuple[Float[Tensor, "B K C"], State]:
        """Read one more token of every beam; padding (not `real`) leaves the state as it was."""
        real = torch.ones_like(state.at, dtype=torch.bool) if real is None else real
        seen = torch.cat([state.real, real[..., None]], -1)
        x, layer_states = self.add_positions(x, state.at), []
        for block, past in zip(self.blocks, state.layer_states, strict=True):
            x, past = _step_block(block, x, past, seen)
            layer_states.append(past)
        return self.final_norm(x), replace(state, at=state.at + real, real=seen, layer_states=tuple(layer_states))


def _step_block(block: Any, x: Tensor, past: Any, seen: Bool[Tensor, "B K t"]) -> tuple[Tensor, Any]:
    """Apply one block to the newest tokens."""
    new_state = past

    def mix(x: Tensor) -> Tensor:
        nonlocal new_state
        out: Tensor
        out, new_state = block.mix.step(x, past, seen)
        return out

    return block.residual(block.residual(x, block.mix_norm, mix), block.feed_norm, block.feed), new_state
