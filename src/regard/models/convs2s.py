"""ConvS2S: gated convolutions instead of recurrence, with attention in every decoder layer.

    tokens      an embedding table for each side (or one for both and the output, tied)
    positions   a learned table for each side, added to the tokens
    attention   softmax with one head, in every decoder layer: keys are the encoder's output z, values z + e, the output
                plus its embedding
    head        linear, after a map back to the embedding's width

Every layer is a convolution over k tokens to twice the width, a gated linear unit and a residual connection. Sums are
scaled by √½ and contexts by √m (m: the source length), initial weights preserve the variance, and the gradient that
reaches the encoder from the L attentions is divided by L.

Gehring, Auli, Grangier, Yarats, Dauphin: Convolutional Sequence to Sequence Learning. ICML 2017. arXiv:1705.03122
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from regard.attention.mask import DenseMask, PaddingMask
from regard.blocks.convolution import materialize_weights
from regard.blocks.decoder_state import CapturableDecodable, DecoderState, initial_time
from regard.blocks.gated_convolution import (
    SQRT_HALF,
    ConvDecoderBlock,
    ConvEncoderBlock,
    ConvMemory,
    ConvStack,
    ScaleGradient,
    weight_norm_linear,
)
from regard.core.config import field
from regard.core.errors import Unsupported
from regard.core.shapes import Float, Int, Tensor
from regard.core.spec import build_part
from regard.core.validation import validate
from regard.positions import POSITIONS


@dataclass(frozen=True)
class Config:
    """Hyperparameters of a ConvS2S; the defaults are the paper's model for English and Romanian."""

    vocab: int
    width: int = 512  # of embeddings, queries, keys and values
    hidden: int = 512  # of the layers
    kernel: int = 3
    encoder_layers: int = 20
    decoder_layers: int = 20
    extra_layers: tuple[tuple[int, int], ...] = ()  # further layers of both stacks: (hidden, kernel)
    dropout: float = field(0.1, low=0, below=1)  # of embeddings and of the inputs of convolutions and head
    attention: Any = "softmax"  # a spec, or a list of them (one a layer, cycled)
    positions: str = "learned"
    length: int = 1024  # maximum length with learned positions
    tied: bool = False  # one embedding table for source, target and output
    pad: int = field(0, low=0, below="vocab")
    bos: int = field(1, low=0)
    eos: int = field(2, low=0)


# Base and large are the paper's for WMT'16 EN-RO and WMT'14 EN-DE; small is for some ten thousand pairs.
SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "large": {
        "width": 768,
        "encoder_layers": 9,
        "decoder_layers": 9,
        "extra_layers": ((1024, 3),) * 4 + ((2048, 1),) * 2,
    },
    "small": {"width": 256, "hidden": 512, "encoder_layers": 6, "decoder_layers": 5, "dropout": 0.3, "tied": True},
    "tiny": {"width": 128, "hidden": 128, "encoder_layers": 3, "decoder_layers": 3, "dropout": 0.2, "tied": True},
}


class ConvS2S(CapturableDecodable, nn.Module):
    """Source and target tokens in, logits of the next target token out."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config = config
        self.embed = nn.Embedding(config.vocab, config.width, padding_idx=config.pad)
        self.positions = _positions(config)
        self.encoder = ConvStack(config, ConvEncoderBlock, config.encoder_layers)
        self.embed_target = nn.Embedding(config.vocab, config.width, padding_idx=config.pad)
        self.target_positions = _positions(config)
        self.decoder = ConvStack(config, ConvDecoderBlock, config.decoder_layers)
        sizes = config.width, config.vocab
        self.head: Any = nn.Linear(*sizes) if config.tied else weight_norm_linear(*sizes, config)
        self.drop = nn.Dropout(config.dropout)
        self.reset()

    def forward(
        self,
        source: Int[Tensor, "B N"],
        target: Int[Tensor, "B T"],
        source_lengths: Int[Tensor, " B"] | None = None,
        target_lengths: Int[Tensor, " B"] | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Return the logits of the token after each target token; targets are padded on the right."""
        memory = self.encode(source, source_lengths)
        index = torch.arange(target.shape[1], device=target.device)[None]
        words = self.drop(self.target_positions(self.embed_target(target), index))
        return self.head(self.drop(self.decoder(words, words, memory)))

    def encode(self, source: Int[Tensor, "B N"], source_lengths: Int[Tensor, " B"] | None = None) -> ConvMemory:
        """Return the keys, values and mask that every decoder layer attends to."""
        n = source.shape[1]
        real = None if source_lengths is None else PaddingMask(source_lengths).real(n)
        index = torch.arange(n, device=source.device)[None]
        words = self.drop(self.positions(self.embed(source), index))
        keys = ScaleGradient.apply(self.encoder(words, real), len(self.decoder.blocks))
        values = (keys + words) * SQRT_HALF
        m = keys.new_full(source.shape[:1], n) if source_lengths is None else source_lengths.to(keys.dtype)
        mask = None if source_lengths is None else PaddingMask(source_lengths)
        return ConvMemory(keys, values, mask, m.sqrt()[:, None, None])

    # -- decoding, one token at a time ---------------------------------------------------------------------------------

    def initial_state(
        self, source: Int[Tensor, "B N"], source_lengths: Int[Tensor, " B"] | None = None
    ) -> DecoderState:
        """Return the memory, the materialised weights and empty rings."""
        padded = source_lengths is not None and int(source_lengths.min()) < source.shape[1]
        memory = self.encode(source, source_lengths if padded else None)
        if isinstance(memory.mask, PaddingMask):  # dense, so that rows can be selected
            memory = replace(memory, mask=DenseMask(memory.mask.real(source.shape[1])[:, None]))
        constants = DecoderConstants(memory, materialize_weights(self.decoder), materialize_weights(self.head))
        return DecoderState(constants, self.decoder.empty_rings(memory.values), time=initial_time(source))

    def step(self, tokens: Int[Tensor, "B K"], state: DecoderState) -> tuple[Float[Tensor, "B K V"], DecoderState]:
        constants, time = state.memory, state.time
        words = self.drop(self.target_positions(self.embed_target(tokens), time.expand(1, tokens.shape[1])))
        x, rings = self.decoder.step(words, constants.source, state.hidden, time, constants.decoder, state.frozen)
        return self.head(self.drop(x), *constants.head.values()), state.updated(rings, time=time + 1)

    def reset(self) -> None:
        """Initialise the embeddings as in the paper; the layers initialise themselves."""
        tables = [self.embed, self.embed_target]
        tables += [part.table for part in (self.positions, self.target_positions) if hasattr(part, "table")]
        for table in tables:
            nn.init.normal_(table.weight, std=0.1)
        if self.config.tied:
            nn.init.zeros_(self.head.bias)
            self.embed_target.weight = self.head.weight = self.embed.weight
        with torch.no_grad():
            self.embed.weight[self.config.pad].zero_()
            self.embed_target.weight[self.config.pad].zero_()


@dataclass(frozen=True, eq=False)
class DecoderConstants:
    """What every step reads and does not change."""

    source: ConvMemory
    decoder: dict[str, Tensor]  # materialised weights
    head: dict[str, Tensor]  # of the head; empty if tied

    def select_rows(self, rows: Int[Tensor, " R"]) -> DecoderConstants:
        return replace(self, source=self.source.select_rows(rows))


def _positions(config: Config) -> Any:
    sizes = {"width": config.width, "length": config.length, "heads": 1, "head_dim": config.width, "causal": False}
    part = build_part(POSITIONS, config.positions, "positions", **sizes)
    if part.kind != "added":
        raise Unsupported(
            f"ConvS2S needs positions that are added to tokens ('learned', 'sinusoidal'), got {config.positions!r}"
        )
    return part
