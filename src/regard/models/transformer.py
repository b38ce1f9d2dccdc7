"""Transformer: an encoder-decoder with attention only, no recurrence.

    tokens      one embedding table for source, target and output (inputs are scaled by √C)
    positions   sinusoids added to the tokens; others by name
    attention   softmax with H heads: encoder self-attention, causal decoder self-attention, cross-attention
    head        linear, tied to the embedding

Vaswani et al.: Attention Is All You Need. NeurIPS 2017. arXiv:1706.03762
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from regard.attention.mask import PaddingMask
from regard.attention.mixers import build_mixer
from regard.blocks import FEEDFORWARDS, NORMS
from regard.blocks.autoregressive import EncoderDecoder
from regard.blocks.decoder import Decoder, DecoderBlock
from regard.blocks.encoder import Encoder, EncoderBlock, build_positions
from regard.core.config import field
from regard.core.layer_state import PassState, branch
from regard.core.shapes import Float, Int, Tensor, check_token_ids
from regard.core.spec import build_part, layer_spec
from regard.core.validation import validate
from regard.models.contract import ModelContract


@dataclass(frozen=True)
class Config:
    """Hyperparameters of a Transformer; the defaults are the paper's base model."""

    vocab: int
    width: int = 512
    heads: int = 8
    kv_heads: int | None = None  # None: as many as query heads
    ffn: int = 2048
    encoder_layers: int = 6
    decoder_layers: int = 6
    dropout: float = field(0.1, low=0, below=1)
    attention_dropout: float = field(0.0, low=0, below=1)
    activation_dropout: float = field(0.0, low=0, below=1)
    norm: Literal["post", "pre"] = "post"
    norm_kind: str = "layer"
    final_norm: bool | None = None  # None: if norm is "pre"
    feedforward: str = "relu"
    attention: Any = "softmax"  # a spec, a list of them (one a layer, cycled), or a module
    decoder_attention: Any = None  # of the decoder to itself; None: as `attention`
    cross_attention: Any = "softmax"  # of the decoder to the encoder's output
    positions: str = "sinusoidal"
    length: int = 512  # maximum length with learned positions
    tied: bool = True
    head_bias: bool = False
    pad: int = field(0, low=0, below="vocab")
    bos: int = field(1, low=0)
    eos: int = field(2, low=0)


# Table 3 of the paper; tiny is the Multi30k model of Wu et al. 2021, small is for training on a laptop.
SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "big": {"width": 1024, "heads": 16, "ffn": 4096, "dropout": 0.3},
    "small": {"width": 256, "heads": 4, "ffn": 1024, "encoder_layers": 3, "decoder_layers": 3},
    "tiny": {"width": 128, "heads": 4, "ffn": 256, "encoder_layers": 4, "decoder_layers": 4, "dropout": 0.3},
}


class Transformer(EncoderDecoder, ModelContract):
    """Source and target tokens to logits of the next target token; decodes step by step (blocks.autoregressive)."""

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config = config
        self.embed = nn.Embedding(config.vocab, config.width, padding_idx=config.pad)
        self.encoder = Encoder(
            [_encoder_block(config, layer) for layer in range(config.encoder_layers)],
            *_positions_norm_dropout(config, causal=False),
        )
        self.decoder = Decoder(
            [_decoder_block(config, layer) for layer in range(config.decoder_layers)],
            *_positions_norm_dropout(config, causal=True),
        )
        self.head = nn.Linear(config.width, config.vocab, bias=config.head_bias)
        self.reset()

    def forward(
        self,
        source: Int[Tensor, "B N"],
        target: Int[Tensor, "B T"],
        source_lengths: Int[Tensor, " B"] | None = None,
        target_lengths: Int[Tensor, " B"] | None = None,
        pass_state: PassState | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Return the logits of the token after each target token; texts are padded on the right."""
        memory = self.encode(source, source_lengths, pass_state)
        mask = PaddingMask.from_lengths(source, source_lengths)
        vectors = self.embed_tokens(check_token_ids(target, "target tokens"))
        return self.head(self.decoder(vectors, memory, None, mask, branch(pass_state, "decoder")))

    def encode(
        self,
        source: Int[Tensor, "B N"],
        source_lengths: Int[Tensor, " B"] | None = None,
        pass_state: PassState | None = None,
    ) -> Float[Tensor, "B N C"]:
        vectors = self.embed_tokens(check_token_ids(source, "source tokens"))
        mask = PaddingMask.from_lengths(source, source_lengths)
        return self.encoder(vectors, mask, branch(pass_state, "encoder"))

    def embed_tokens(self, tokens: Int[Tensor, "B N"]) -> Float[Tensor, "B N C"]:
        """Return token embeddings scaled by √C."""
        return self.embed(tokens) * self.config.width**0.5

    def reset(self) -> None:
        """Initialise matrices by Xavier; a fused qkv matrix is initialised as three."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        nn.init.normal_(self.embed.weight, std=self.config.width**-0.5)
        with torch.no_grad():
            self.embed.weight[self.config.pad].zero_()
        if self.config.tied:
            self.head.weight = self.embed.weight


def _encoder_block(config: Config, layer: int) -> EncoderBlock:
    norms = [_norm(config) for _ in range(2)]
    return EncoderBlock(
        _attention(config, config.attention, layer), _feed(config), norms, config.norm == "pre", config.dropout
    )


def _decoder_block(config: Config, layer: int) -> DecoderBlock:
    norms = [_norm(config) for _ in range(3)]
    own = config.attention if config.decoder_attention is None else config.decoder_attention
    mix = _attention(config, own, layer, causal=True)
    cross = _attention(config, config.cross_attention, layer, cross=True)
    return DecoderBlock(mix, cross, _feed(config), norms, config.norm == "pre", config.dropout)


def _attention(config: Config, spec: Any, layer: int, causal: bool = False, cross: bool = False) -> nn.Module:
    return build_mixer(
        layer_spec(spec, layer),
        layer=layer,
        width=config.width,
        heads=config.heads,
        kv_heads=config.kv_heads,
        length=config.length,
        causal=causal,
        dropout=config.attention_dropout,
        cross=cross,
    )


def _feed(config: Config) -> nn.Module:
    part: nn.Module = build_part(
        FEEDFORWARDS,
        config.feedforward,
        "feed-forward",
        width=config.width,
        hidden=config.ffn,
        dropout=config.activation_dropout,
    )
    return part


def _norm(config: Config) -> nn.Module:
    part: nn.Module = build_part(NORMS, config.norm_kind, "norm", normalized_shape=config.width)
    return part


def _positions_norm_dropout(config: Config, causal: bool) -> tuple[nn.Module, nn.Module | None, float]:
    """Return positions, last norm and dropout of a stack."""
    last = config.norm == "pre" if config.final_norm is None else config.final_norm
    return build_positions(config, causal), _norm(config) if last else None, config.dropout
