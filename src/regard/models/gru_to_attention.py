"""The road from gated units to attention, in four steps: one small model, and a part for each stop on the way.

    tokens      one embedding table for input and output
    positions   a learned table, added to the tokens
    attention   every token sees itself and what came before it, through the part that `replay_step` names
    head        linear, tied to the embedding

A gated unit adds to what it kept. Unrolled, it is a weighted sum of all its candidates h̃:

    gated        h_t = u_t h_{t-1} + (1 - u_t) h̃_t  =  Σ_i (Π_{j>i} u_j) (1 - u_i) h̃_i        h̃_t = f(x_t, h_{t-1})
    weights      h_t = Σ_i α_i h̃_i          α_i ∝ exp(ATT(h̃_i, x_t))                         h̃_t = f(x_t, h_{t-1})
    candidates   h_t = Σ_i α_i f(x_i)       α_i ∝ exp(ATT(f(x_i), x_t))
    keys         h_t = Σ_i α_i V f(x_i)     α_i ∝ exp(ATT(K f(x_i), Q x_t))
    heads        the same several times side by side, with maps of their own

The first step frees the weights from the gates, the second the candidates from the states (from here on all times are
computed at once), the third separates what is looked for from what is given, the fourth looks in several ways. f is one
layer and tanh, ATT the scaled product. Every part makes its candidates and then attends to them, so that `watch` sees
the weights of each; those of the gated unit by channel, one head each.

Cho, Gulcehre, van Merriënboer, Bahdanau, Bougares, Schwenk, Bengio: Learning Phrase Representations using RNN
Encoder-Decoder. EMNLP 2014. arXiv:1406.1078; the steps are a lecture's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from regard.attention.mask import PaddingMask
from regard.blocks import FEEDFORWARDS, NORMS
from regard.blocks.encoder import EncoderBlock, build_positions
from regard.blocks.gru_to_attention_layers import LAYERS, RecurrentStack, State
from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.layer_state import PassState
from regard.core.shapes import Float, Int, Tensor, check_token_ids
from regard.core.spec import build_part
from regard.core.validation import validate

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]  # vectors B N C, the head's matrix V C, wanted tokens B N -> a sum


@dataclass(frozen=True)
class Config:
    """Everything that shapes a model on the road."""

    vocab: int
    variant: str = "heads"  # gated, weights, candidates, keys or heads
    width: int = 128
    heads: int = 4  # of the last step; the others have one
    layers: int = 2
    ffn: int | None = None  # None: twice the width
    length: int = 64  # the longest text that learned positions know
    dropout: float = field(0.0, low=0, below=1)
    positions: str = "learned"  # what is added to tokens: the recurrent parts count for themselves
    tied: bool = True
    eos: int = field(0, low=0)  # the token that ends a text


SIZES: dict[str, dict[str, Any]] = {"small": {"width": 256, "layers": 4, "length": 256}, "tiny": {}}


class GRUToAttention(nn.Module):
    """Tokens in, logits of the next token out, at every place."""

    forward_methods = ("hidden",)  # what is called on a model beside itself

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config = config
        self.embed = nn.Embedding(config.vocab, config.width)
        positions = build_positions(config, causal=True)
        if positions.kind != "added":
            raise BadInput(f"on the road positions are added to tokens, which '{config.positions}' are not")
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
        """Logits B N V of the token after each token; with a loss, its value for these targets. Padding stands on the
        right, where nobody sees it."""
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
        """The vectors of which the head makes logits."""
        PaddingMask.from_lengths(check_token_ids(tokens), lengths)  # looked over; nobody sees what is on the right
        return self.decoder(self.embed(tokens), pass_state=pass_state)

    # -- writing, one token after another ------------------------------------------------------------------------------

    @property
    def eos(self) -> int:
        """The token that ends a text."""
        return self.config.eos

    def start(
        self, prompts: Int[Tensor, "B N"], lengths: Int[Tensor, " B"] | None = None, *, capacity: int
    ) -> tuple[Int[Tensor, "B 1"], State]:
        """Read all prompts but their last tokens, which are the first to step with. What is remembered grows by itself:
        it needs no room."""
        if not prompts.shape[1]:
            raise BadInput("a prompt is empty; begin with at least one token, such as the end token")
        ends = prompts.new_full((prompts.shape[0],), prompts.shape[1]) if lengths is None else lengths.to(prompts)
        last = prompts.gather(1, ends[:, None] - 1)
        return last, self.decoder.start(self.embed(prompts[:, :-1]), ends - 1)

    def step(self, tokens: Int[Tensor, "B K"], state: State) -> tuple[Float[Tensor, "B K V"], State]:
        """Logits of the next token of every beam."""
        x, state = self.decoder.step(self.embed(tokens), state)
        return self.head(x), state

    def select(self, state: State, rows: Int[Tensor, " R"] | None, beams: Int[Tensor, "R K"]) -> State:
        """Keep the inputs `rows` (None: all), of each the beams `beams`."""
        return state.select(rows, beams)


def _block(config: Config) -> EncoderBlock:
    mix = build_part(LAYERS, config.variant, "variant", width=config.width, heads=config.heads)
    hidden = 2 * config.width if config.ffn is None else config.ffn
    feed = build_part(FEEDFORWARDS, "gelu", "feed-forward", width=config.width, hidden=hidden, bias=True)
    return EncoderBlock(mix, feed, [_norm(config), _norm(config)], True, config.dropout)


def _norm(config: Config) -> nn.Module:
    part: nn.Module = build_part(NORMS, "layer", "norm", normalized_shape=config.width)
    return part
