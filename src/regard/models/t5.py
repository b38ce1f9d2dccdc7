"""T5: text-to-text, an encoder-decoder Transformer for every task.

    tokens      one embedding table for source and target, in v1.0 for the output too
    positions   a learned bias for each head and bucket of distances (positions.bias.relative); one table for each stack
    attention   softmax of q·k, not divided by √D; H D need not equal C
    head        linear; if tied to the embedding, of x / √C

No biases, pre-norm with RMSNorm, ReLU (v1.0) or gated GELU (v1.1). The factor 1/√D is in the initial weights instead.

Raffel et al.: Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer. JMLR 2020.
arXiv:1910.10683
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from regard.attention.mask import PaddingMask
from regard.attention.mixers import build_mixer
from regard.attention.projections import CrossProjection, QKVProjection
from regard.blocks import FEEDFORWARDS, NORMS
from regard.blocks.autoregressive import EncoderDecoder
from regard.blocks.decoder import Decoder, DecoderBlock
from regard.blocks.encoder import Encoder, EncoderBlock
from regard.core.config import field
from regard.core.errors import Unsupported
from regard.core.layer_state import PassState, branch
from regard.core.shapes import Float, Int, Tensor, check_token_ids
from regard.core.spec import build_part, layer_spec
from regard.core.validation import validate
from regard.models.contract import ModelContract
from regard.positions.bias.relative import RelativePositions

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]  # hidden B T C, the head's weight V C, targets B T -> a sum


@dataclass(frozen=True)
class Config:
    """Hyperparameters of a T5; the defaults are the smallest of v1.0."""

    vocab: int
    width: int = 512
    heads: int = 8
    head_dim: int = 64  # need not be width / heads
    ffn: int = 2048
    encoder_layers: int = 6
    decoder_layers: int = 6
    num_buckets: int = 32
    max_distance: int = 128  # all distances from here on share a bucket
    dropout: float = field(0.1, low=0, below=1)
    attention_dropout: float = field(0.1, low=0, below=1)
    activation_dropout: float = field(0.1, low=0, below=1)
    norm_kind: str = "rms"
    eps: float = field(1e-6, above=0)
    feedforward: str = "relu"
    attention: Any = "softmax"  # a spec, a list of them (one a layer, cycled), or a module
    head: bool = True  # False: hidden states of the decoder instead of logits
    tied: bool = True
    scale_decoder_outputs: bool | None = None  # whether the head reads x / √C; None: if tied
    pad: int = field(0, low=0, below="vocab")
    bos: int = field(0, low=0)  # T5 starts decoding with its padding token
    eos: int = field(1, low=0)


def _v1_1(**sizes: Any) -> dict[str, Any]:
    return {"vocab": 32128, "feedforward": "geglu_tanh", "tied": False, **sizes}


# Section 3.7 and the published files, whose vocabulary is padded to 32,128; tiny is for tests.
SIZES: dict[str, dict[str, Any]] = {
    "small": {"vocab": 32128},
    "base": {
        "vocab": 32128, "width": 768, "heads": 12, "ffn": 3072, "encoder_layers": 12, "decoder_layers": 12
    },
    "large": {
        "vocab": 32128, "width": 1024, "heads": 16, "ffn": 4096, "encoder_layers": 24, "decoder_layers": 24
    },
    "3b": {
        "vocab": 32128, "width": 1024, "heads": 32, "head_dim": 128, "ffn": 16384, "encoder_layers": 24,
        "decoder_layers": 24,
    },
    "11b": {
        "vocab": 32128, "width": 1024, "heads": 128, "head_dim": 128, "ffn": 65536, "encoder_layers": 24,
        "decoder_layers": 24,
    },
    "small-1.1": _v1_1(heads=6, ffn=1024, encoder_layers=8, decoder_layers=8),
    "base-1.1": _v1_1(width=768, heads=12, ffn=2048, encoder_layers=12, decoder_layers=12),
    "large-1.1": _v1_1(width=1024, heads=16, ffn=2816, encoder_layers=24, decoder_layers=24),
    "xl-1.1": _v1_1(width=2048, heads=32, ffn=5120, encoder_layers=24, decoder_layers=24),
    "xxl-1.1": _v1_1(width=4096, heads=64, ffn=10240, encoder_layers=24, decoder_layers=24),
    "tiny": {
        "width": 128, "heads": 4, "head_dim": 32, "ffn": 256, "encoder_layers": 2, "decoder_layers": 2,
        "feedforward": "geglu_tanh",
    },
}  # fmt: skip


class T5(EncoderDecoder, ModelContract):
    """Source and target tokens to logits of the next target token; decodes step by step (blocks.autoregressive)."""

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config = config
        self.embed = nn.Embedding(config.vocab, config.width)
        self.encoder = Encoder(
            [_encoder_block(config, layer) for layer in range(config.encoder_layers)],
            *_positions_norm_dropout(config, causal=False),
        )
        self.decoder = Decoder(
            [_decoder_block(config, layer) for layer in range(config.decoder_layers)],
            *_positions_norm_dropout(config, causal=True),
        )
        self.drop = nn.Dropout(config.dropout)  # of the output of a stack
        self.head = nn.Linear(config.width, config.vocab, bias=False) if config.head else None
        self.reset()

    def forward(
        self,
        source: Int[Tensor, "B N"],
        target: Int[Tensor, "B T"],
        source_lengths: Int[Tensor, " B"] | None = None,
        target_lengths: Int[Tensor, " B"] | None = None,
        targets: Int[Tensor, "B T"] | None = None,
        loss: Loss | None = None,
        pass_state: PassState | None = None,
    ) -> Float[Tensor, "..."]:
        """Return the logits B T V of the token after each target token; texts are padded on the right.

        With `loss`, return `loss(hidden, head.weight, targets)`; the full logits are never materialised.
        """
        memory = self.encode(source, source_lengths, pass_state)
        mask = PaddingMask.from_lengths(source, source_lengths)
        vectors = self.embed(check_token_ids(target, "target tokens"))
        x = self._last(self.decoder(vectors, memory, None, mask, branch(pass_state, "decoder")))
        if self.head is None or loss is None:
            return x if self.head is None else self.head(x)
        assert targets is not None
        return loss(x, self.head.weight, targets)

    def encode(
        self,
        source: Int[Tensor, "B N"],
        source_lengths: Int[Tensor, " B"] | None = None,
        pass_state: PassState | None = None,
    ) -> Float[Tensor, "B N C"]:
        vectors = self.embed(check_token_ids(source, "source tokens"))
        mask = PaddingMask.from_lengths(source, source_lengths)
        out: Tensor = self.drop(self.encoder(vectors, mask, branch(pass_state, "encoder")))
        return out

    def logits(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T V"]:
        """Return the logits of the next token."""
        if self.head is None:
            raise Unsupported("a T5 without a head has no logits to decode from; load T5ForConditionalGeneration")
        return self.head(self._last(x))

    def _last(self, x: Tensor) -> Tensor:
        """Return the input of the head."""
        x = self.drop(x)
        return x * self.config.width**-0.5 if self.scale_decoder_outputs else x

    @property
    def scale_decoder_outputs(self) -> bool:
        """Whether there is a head and it reads x / √C."""
        if self.head is None:
            return False
        return self.config.tied if self.config.scale_decoder_outputs is None else self.config.scale_decoder_outputs

    @torch.no_grad()
    def reset(self) -> None:
        """Initialise the weights as in the paper: matrices by fan-in, queries also by 1/√D."""
        width, head_dim = self.config.width, self.config.head_dim
        for module in self.modules():
            if isinstance(module, nn.Linear):
                module.weight.normal_(std=module.in_features**-0.5)
        for module in self.modules():
            if isinstance(module, CrossProjection):
                module.q.weight.mul_(head_dim**-0.5)
            elif isinstance(module, QKVProjection):
                module.qkv.weight.unflatten(0, (self.config.heads, 3, head_dim))[:, 0].mul_(head_dim**-0.5)
            elif isinstance(module, RelativePositions):
                module.table.weight.normal_(std=width**-0.5)
        self.embed.weight.normal_(std=1.0)
        if self.head is not None and self.config.tied:
            self.head.weight = self.embed.weight


def _encoder_block(config: Config, layer: int) -> EncoderBlock:
    norms = [_norm(config) for _ in range(2)]
    return EncoderBlock(_attention(config, layer), _feed(config), norms, True, config.dropout)


def _decoder_block(config: Config, layer: int) -> DecoderBlock:
    norms = [_norm(config) for _ in range(3)]
    mix, cross = _attention(config, layer, causal=True), _attention(config, layer, cross=True)
    return DecoderBlock(mix, cross, _feed(config), norms, True, config.dropout)


def _attention(config: Config, layer: int, causal: bool = False, cross: bool = False) -> nn.Module:
    return build_mixer(
        "softmax" if cross else layer_spec(config.attention, layer),
        layer=layer,
        width=config.width,
        heads=config.heads,
        head_dim=config.head_dim,
        causal=causal,
        bias=False,
        dropout=config.attention_dropout,
        scale=1.0,
        cross=cross,
    )


def _feed(config: Config) -> nn.Module:
    settings = {"width": config.width, "hidden": config.ffn, "dropout": config.activation_dropout, "bias": False}
    part: nn.Module = build_part(FEEDFORWARDS, config.feedforward, "feed-forward", **settings)
    return part


def _norm(config: Config) -> nn.Module:
    part: nn.Module = build_part(NORMS, config.norm_kind, "norm", normalized_shape=config.width, eps=config.eps)
    return part


def _positions_norm_dropout(config: Config, causal: bool) -> tuple[nn.Module, nn.Module, float]:
    """Return positions, last norm and dropout of a stack."""
    positions = RelativePositions(config.heads, config.num_buckets, config.max_distance, causal)
    return positions, _norm(config), config.dropout
