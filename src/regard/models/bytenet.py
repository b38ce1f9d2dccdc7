"""ByteNet: a decoder of dilated convolutions stacked on an encoder of dilated convolutions, position by position.

    tokens      characters: an embedding table for each side
    positions   none: convolutions are ordered
    attention   none: position t of the decoder reads position t of the encoder and the tokens before it
    head        linear, a ReLU, linear

The encoder unfolds a source of |s| tokens over a |s| + b positions, enough for most targets; the decoder reads them one
by one, and zeros where a target is longer (dynamic unfolding). Dilation doubles from layer to layer, so the receptive
field grows with 2^layers and the work with layers: linear time in source and target.

Kalchbrenner, Espeholt, Simonyan, van den Oord, Graves, Kavukcuoglu: Neural Machine Translation in Linear Time. 2016.
arXiv:1610.10099. Its bags of character n-grams at the source are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from regard.attention.mask import PaddingMask
from regard.blocks.convolution import CausalConvolution, Convolution, unfolded_lengths
from regard.blocks.decoder_state import CapturableDecodable, DecoderState, TensorMemory, initial_time
from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.shapes import Bool, Float, Int, Tensor
from regard.core.spec import Registry, build_part
from regard.core.validation import Fraction, validate
from regard.models.contract import ModelContract

CONVOLUTIONS: Registry = {
    "relu": ("regard.models.bytenet", "ReluConvBlock"),
    "multiplicative": ("regard.models.bytenet", "MultiplicativeConvBlock"),
}


@dataclass(frozen=True)
class Config:
    """Hyperparameters of a ByteNet; the defaults are the paper's translator."""

    vocab: int
    width: int = 1600  # of the blocks, the paper's 2d; inside them it is halved to 800
    kernel: int = 3
    encoder_layers: int = 30
    decoder_layers: int = 30
    dilations: tuple[int, ...] = (1, 2, 4, 8, 16)  # one a layer, cycled
    block: str = "relu"  # or multiplicative; see CONVOLUTIONS
    length_ratio: float = field(1.2, above=0)  # a: positions for each source token
    length_offset: float = field(0.0, low=0)  # b: further positions
    dropout: float = field(0.0, low=0, below=1)
    tied: bool = False  # one embedding table for target and output
    pad: int = field(0, low=0, below="vocab")
    bos: int = field(1, low=0)
    eos: int = field(2, low=0)


# Base is the paper's character-level translator; small and tiny are for short sentences.
SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "small": {"width": 512, "encoder_layers": 10, "decoder_layers": 10, "dropout": 0.1},
    "tiny": {"width": 128, "encoder_layers": 5, "decoder_layers": 5, "dropout": 0.1, "length_offset": 8.0},
}


class ByteNet(CapturableDecodable, ModelContract):
    """Source and target tokens in, logits of the next target token out."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        if config.width % 2:
            raise BadInput(f"width must be even, got {config.width}")
        self.config = config
        width, inner = config.width, config.width // 2
        self.embed = nn.Embedding(config.vocab, width, padding_idx=config.pad)
        self.encoder = DilatedStack(config, config.encoder_layers, causal=False)
        self.source_projection = nn.Linear(width, inner)  # the decoder's input at each position
        self.embed_target = nn.Embedding(config.vocab, inner, padding_idx=config.pad)
        self.decoder = DilatedStack(config, config.decoder_layers, causal=True)
        self.hidden_layer = nn.Linear(width, inner)
        self.head = nn.Linear(inner, config.vocab)
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
        memory, n = self.encode(source, source_lengths), target.shape[1]
        aligned_source = F.pad(memory, (0, 0, 0, max(0, n - memory.shape[1])))[:, :n]  # zeros beyond its end
        return self.logits(self.decoder(self.decoder_inputs(target, aligned_source)))

    def encode(
        self, source: Int[Tensor, "B N"], source_lengths: Int[Tensor, " B"] | None = None
    ) -> Float[Tensor, "B M C"]:
        """Return the source unfolded to a |s| + b positions."""
        m, each = unfolded_lengths(source.shape[1], source_lengths, self.config.length_ratio, self.config.length_offset)
        x = self.embed(source)
        real = None
        if source_lengths is not None and each is not None:
            x = x * PaddingMask(source_lengths).real(source.shape[1])[..., None]
            real = PaddingMask(each).real(m)
        x = F.pad(x, (0, 0, 0, m - source.shape[1]))[:, :m]
        out = self.source_projection(F.relu(self.encoder(self.drop(x), real)))
        return out if real is None else out * real[..., None]

    def decoder_inputs(
        self, target: Int[Tensor, "B T"], aligned_source: Float[Tensor, "B T C"]
    ) -> Float[Tensor, "B T both"]:
        """Concatenate the last token and the source position of each step."""
        return self.drop(torch.cat([self.embed_target(target), aligned_source.to(self.embed_target.weight.dtype)], -1))

    def logits(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T V"]:
        """Return the logits of the next token."""
        return self.head(F.relu(self.hidden_layer(F.relu(x))))

    # -- decoding, one token at a time ---------------------------------------------------------------------------------

    def initial_state(
        self, source: Int[Tensor, "B N"], source_lengths: Int[Tensor, " B"] | None = None
    ) -> DecoderState:
        """Return the unfolded source and empty rings."""
        memory = F.pad(self.encode(source, source_lengths), (0, 0, 0, 1))  # zeros, read beyond its end
        rings = self.decoder.rings(self.embed_target.weight, len(source))
        return DecoderState(TensorMemory(memory), rings, time=initial_time(source))

    def step(self, tokens: Int[Tensor, "B K"], state: DecoderState) -> tuple[Float[Tensor, "B K V"], DecoderState]:
        memory, time = state.memory.values, state.time
        aligned_source = memory.index_select(1, time.clamp(max=memory.shape[1] - 1)[None])
        aligned_source = aligned_source.expand(-1, tokens.shape[1], -1)
        x, rings = self.decoder.step(self.decoder_inputs(tokens, aligned_source), state.hidden, time, state.frozen)
        return self.logits(x), state.updated(rings, time=time + 1)

    def reset(self) -> None:
        """Initialise the embeddings, std 1/√width; the layers initialise themselves."""
        for table in (self.embed, self.embed_target):
            nn.init.normal_(table.weight, std=table.weight.shape[1] ** -0.5)
        if self.config.tied:
            self.head.weight = self.embed_target.weight
        with torch.no_grad():
            self.embed.weight[self.config.pad].zero_()
            self.embed_target.weight[self.config.pad].zero_()


class DilatedStack(nn.Module):
    """A stack of residual blocks, each with a dilation of its own."""

    def __init__(self, config: Config, layers: int, causal: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            build_part(
                CONVOLUTIONS,
                config.block,
                "convolution",
                width=config.width,
                kernel=config.kernel,
                dilation=config.dilations[layer % len(config.dilations)],
                causal=causal,
                dropout=config.dropout,
            )
            for layer in range(layers)
        )

    def forward(self, x: Float[Tensor, "B N C"], real: Bool[Tensor, "B N"] | None = None) -> Float[Tensor, "B N C"]:
        for block in self.blocks:
            x = block(x, real)
        return x

    @property
    def receptive_field(self) -> int:
        """Number of positions that an output depends on, its own included."""
        every: Any = self.blocks
        return 1 + sum(block.conv.context_size for block in every)

    def rings(self, like: Tensor, batch: int) -> tuple[Tensor, ...]:
        """Return the empty state of every layer."""
        every: Any = self.blocks
        return tuple(block.conv.empty_ring(like[:1].expand(batch, -1)) for block in every)

    def step(
        self, x: Float[Tensor, "B K C"], rings: tuple[Tensor, ...], time: Int[Tensor, ""], frozen: bool
    ) -> tuple[Float[Tensor, "B K C"], tuple[Tensor, ...]]:
        """Run the newest position of every beam through all layers; return the output and the new rings."""
        every: Any = self.blocks
        moved = []
        for block, ring in zip(every, rings, strict=True):
            x, ring = block.step(x, ring, time, frozen)
            moved.append(ring)
        return x, tuple(moved)


# -- residual blocks ---------------------------------------------------------------------------------------------------


class ReluConvBlock(nn.Module):
    """Residual block: to half the width, a dilated convolution, and back, each after a norm and a ReLU.

    x + up(relu norm conv(relu norm down(relu norm x)))
    """

    gates = 1

    def __init__(self, width: int, kernel: int, dilation: int, causal: bool, dropout: Fraction = 0.0) -> None:
        super().__init__()
        inner = width // 2
        self.norm, self.down = nn.LayerNorm(width), nn.Linear(width, inner)
        self.inner_norm = self.inner(inner)
        kind = CausalConvolution if causal else Convolution
        self.conv = kind(inner, self.gates * inner, kernel, dilation)
        self.conv_norm: nn.Module = nn.LayerNorm(inner)
        self.up = nn.Linear(inner, width)
        self.drop = nn.Dropout(dropout)

    @staticmethod
    def inner(width: int) -> nn.Module:
        """Return the module between `down` and the convolution."""
        return nn.Sequential(nn.LayerNorm(width), nn.ReLU())

    def forward(self, x: Float[Tensor, "B N C"], real: Bool[Tensor, "B N"] | None = None) -> Float[Tensor, "B N C"]:
        """Apply the block; tokens that are not real are zero to their neighbours."""
        h = self.pre_conv(x)
        h = h if real is None else h * real[..., None]
        return x + self.post_conv(self.conv(h), h)

    def step(
        self,
        x: Float[Tensor, "B K C"],
        ring: Float[Tensor, "B K P D"],
        time: Int[Tensor, ""],
        frozen: bool = False,
    ) -> tuple[Float[Tensor, "B K C"], Float[Tensor, "B K P D"]]:
        """Apply the block to the newest token of every beam."""
        h = self.pre_conv(x)
        out, ring = self.conv.step(h, ring, time, frozen)  # type: ignore[operator]
        return x + self.post_conv(out, h), ring

    def pre_conv(self, x: Tensor) -> Tensor:
        """Return the input of the convolution."""
        return self.inner_norm(self.down(F.relu(self.norm(x))))

    def post_conv(self, out: Tensor, h: Tensor) -> Tensor:
        """Return the residual branch from the output and the input of the convolution."""
        return self.drop(self.up(F.relu(self.conv_norm(out))))


class MultiplicativeConvBlock(ReluConvBlock):
    """Residual block with a multiplicative unit in place of the inner ReLU: three gates and an update.

        x + up(g1 ∘ tanh(g2 ∘ h + g3 ∘ tanh(u))), h = down(relu norm x)

    g1, g2, g3 (through σ) and u are four parts of conv(h), each normalised.
    """

    gates = 4

    def __init__(self, width: int, kernel: int, dilation: int, causal: bool, dropout: Fraction = 0.0) -> None:
        super().__init__(width, kernel, dilation, causal, dropout)
        self.conv_norm = nn.GroupNorm(self.gates, self.gates * (width // 2))  # each gate a norm of its own

    @staticmethod
    def inner(width: int) -> nn.Module:
        return nn.Identity()

    def post_conv(self, out: Tensor, h: Tensor) -> Tensor:
        normed = self.conv_norm(out.flatten(0, 1)).view_as(out)
        first, second, third, new = normed.chunk(4, -1)
        unit = torch.sigmoid(first) * torch.tanh(torch.sigmoid(second) * h + torch.sigmoid(third) * torch.tanh(new))
        return self.drop(self.up(unit))
