"""GPT: a causal Transformer that predicts the next token at every position.

    tokens      one embedding table for input and output
    positions   a learned table, added to the tokens; any other by name
    attention   softmax with H heads, every token sees itself and what came before it; norm first
    head        linear, tied to the embedding, no bias

A modern variant: norm_kind="rms", positions="rotary", feedforward="swiglu", qk_norm="rms", bias=False.

Radford, Wu, Child, Luan, Amodei, Sutskever: Language Models are Unsupervised Multitask Learners (GPT-2). 2019
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from regard.attention.mask import PaddingMask
from regard.attention.mixers import build_mixer
from regard.blocks import FEEDFORWARDS, NORMS
from regard.blocks.autoregressive import AutoregressiveModel
from regard.blocks.causal import CausalBlock, CausalStack, State
from regard.blocks.encoder import build_positions
from regard.blocks.mixture_of_experts import GroupedLinear
from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.layer_state import PassState
from regard.core.shapes import Float, Int, Tensor, check_token_ids
from regard.core.spec import build_part, layer_spec
from regard.core.validation import validate
from regard.models.contract import ModelContract

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]  # hidden B N C, the head's weight V C, targets B N -> a sum


@dataclass(frozen=True)
class Config:
    """Hyperparameters of a GPT; the defaults are the smallest GPT-2."""

    vocab: int
    width: int = 768
    heads: int = 12
    kv_heads: int | None = None  # None: as many as query heads
    layers: int = 12
    ffn: int | None = None  # None: four times the width
    length: int = 1024  # maximum length with learned positions
    dropout: float = field(0.1, low=0, below=1)
    attention_dropout: float = field(0.1, low=0, below=1)
    bias: bool = True  # of linear layers and norms; the head has none
    norm_kind: str = "layer"
    qk_norm: str | None = None  # a norm of queries and keys of each head
    feedforward: str = "gelu_tanh"
    attention: Any = "softmax"  # a spec, a list of them (one a layer, cycled), or a module
    positions: str = "learned"
    tied: bool = True
    eos: int = field(0, low=0)  # the token that ends a text
    initializer_range: float = field(0.02, above=0)  # standard deviation of the weights at the start


# Table 2 of the paper; char and tiny are nanoGPT's for the characters of Shakespeare, on a GPU and on a CPU.
SIZES: dict[str, dict[str, Any]] = {
    "gpt2": {"vocab": 50257},
    "medium": {"vocab": 50257, "width": 1024, "heads": 16, "layers": 24},
    "large": {"vocab": 50257, "width": 1280, "heads": 20, "layers": 36},
    "xl": {"vocab": 50257, "width": 1600, "heads": 25, "layers": 48},
    "char": {
        "width": 384, "heads": 6, "layers": 6, "length": 256, "bias": False, "dropout": 0.2, "attention_dropout": 0.2
    },
    "tiny": {
        "width": 128, "heads": 4, "layers": 4, "length": 64, "bias": False, "dropout": 0.0, "attention_dropout": 0.0
    },
}  # fmt: skip


class GPT(AutoregressiveModel, ModelContract):
    """Tokens to logits of the next token at every position; decodes step by step (blocks.autoregressive)."""

    config: Config
    forward_methods = ("hidden",)  # methods besides forward that FSDP must wrap

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config = config
        self.embed = nn.Embedding(config.vocab, config.width)
        blocks = [_block(config, layer) for layer in range(config.layers)]
        self.decoder = CausalStack(blocks, build_positions(config, causal=True), _norm(config), config.dropout)
        self.head = nn.Linear(config.width, config.vocab, bias=False)
        self.reset()

    def forward(
        self,
        tokens: Int[Tensor, "B N"],
        lengths: Int[Tensor, " B"] | None = None,
        targets: Int[Tensor, "B N"] | None = None,
        loss: Loss | None = None,
        pass_state: PassState | None = None,
    ) -> Float[Tensor, "..."]:
        """Return the logits B N V of the token after each token; texts are padded on the right.

        With `loss`, return `loss(hidden, head.weight, targets)`; the full logits are never materialised.
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
        return self.decoder(self.embed(check_token_ids(tokens)), PaddingMask.from_lengths(tokens, lengths), pass_state)

    # -- decoding, one token at a time ---------------------------------------------------------------------------------

    def start(
        self, prompts: Int[Tensor, "B N"], lengths: Int[Tensor, " B"] | None = None, *, capacity: int
    ) -> tuple[Int[Tensor, "B 1"], State]:
        """Encode the prompts; return their last tokens, to step with, and a cache with `capacity` more slots."""
        ragged = self._checked(check_token_ids(prompts, "prompts"), lengths)
        if lengths is None or not ragged:
            last, before = prompts[:, -1:].clone(), None  # a search modifies it
        else:
            before = lengths.long() - 1
            last = prompts.gather(1, before[:, None])
        return last, self.decoder.start(self.embed(prompts[:, :-1]), before, capacity)

    def _checked(self, prompts: Tensor, lengths: Tensor | None) -> bool:
        """Whether prompts differ in length; raise `BadInput` for invalid ones, with one synchronisation."""
        n = prompts.shape[1]
        if not n:
            raise BadInput("the prompt is empty; give at least one token, such as the end token")
        ends = prompts.new_full((1,), n) if lengths is None else lengths
        low, high, least, most = (int(x) for x in torch.stack([*prompts.aminmax(), *ends.to(prompts).aminmax()]))
        if least < 1 or most > n:
            raise BadInput(f"lengths of prompts must be from 1 to {n}, got {least} to {most}")
        if low < 0 or high >= self.config.vocab:
            raise BadInput(f"token ids must be from 0 to {self.config.vocab - 1}, got {low if low < 0 else high}")
        return least < n

    @torch.no_grad()
    def reset(self) -> None:
        """Initialise the weights as GPT-2; residual projections are scaled by 1/√(2 layers)."""
        std = self.config.initializer_range
        for name, module in self.named_modules():
            if isinstance(module, (nn.Linear, nn.Embedding, GroupedLinear)):
                adds = name.endswith(("join.out", "feed.down"))
                module.weight.normal_(std=std / (2 * self.config.layers) ** 0.5 if adds else std)
                if getattr(module, "bias", None) is not None:
                    module.bias.zero_()  # type: ignore[operator, union-attr]
        if self.config.tied:
            self.head.weight = self.embed.weight


def _block(config: Config, layer: int) -> CausalBlock:
    return CausalBlock(_attention(config, layer), _feed(config), [_norm(config), _norm(config)], True, config.dropout)


def _attention(config: Config, layer: int) -> nn.Module:
    norms = None
    if config.qk_norm is not None:
        head_dim = config.width // config.heads
        norms = _norm(config, config.qk_norm, head_dim), _norm(config, config.qk_norm, head_dim)
    return build_mixer(
        layer_spec(config.attention, layer),
        layer=layer,
        width=config.width,
        heads=config.heads,
        kv_heads=config.kv_heads,
        length=config.length,
        causal=True,
        bias=config.bias,
        dropout=config.attention_dropout,
        norms=norms,
    )


def _feed(config: Config) -> nn.Module:
    hidden = 4 * config.width if config.ffn is None else config.ffn
    part: nn.Module = build_part(
        FEEDFORWARDS, config.feedforward, "feed-forward", width=config.width, hidden=hidden, bias=config.bias
    )
    return part


def _norm(config: Config, kind: str | None = None, width: int | None = None) -> nn.Module:
    part: nn.Module = build_part(
        NORMS, kind or config.norm_kind, "norm", normalized_shape=width or config.width, bias=config.bias
    )
    return part
