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


class GRUToAttention(nn.Module):
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
