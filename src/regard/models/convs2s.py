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
import torch.nn.functional as F
from torch import nn

from regard.attention import MECHANISMS
from regard.attention.mask import DenseMask, PaddingMask
from regard.blocks.convolution import CausalConvolution, Convolution, WeightNormLinear, materialize_weights
from regard.blocks.decoder_state import CapturableDecodable, DecoderState, initial_time
from regard.core.config import field
from regard.core.errors import Unsupported
from regard.core.layer_state import LayerState, PassState
from regard.core.shapes import Bool, Float, Int, Tensor
from regard.core.spec import build_part, layer_spec
from regard.core.validation import validate
from regard.models.contract import ModelContract
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


class ConvS2S(CapturableDecodable, ModelContract):
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
        pass_state: PassState | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Return the logits of the token after each target token; targets are padded on the right."""
        memory = self.encode(source, source_lengths)
        index = torch.arange(target.shape[1], device=target.device)[None]
        words = self.drop(self.target_positions(self.embed_target(target), index))
        pass_state = PassState() if pass_state is None else pass_state
        return self.head(self.drop(self.decoder(words, words, memory, pass_state=pass_state)))

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


# -- gated convolutions ------------------------------------------------------------------------------------------------


SQRT_HALF = 0.5**0.5


@dataclass(frozen=True, eq=False)
class ConvMemory:
    """The encoded source; the beams of an input share it."""

    keys: Float[Tensor, "B M C"]  # z
    values: Float[Tensor, "B M C"]  # z + e
    mask: Any
    scale: Float[Tensor, "B 1 1"]  # √m

    def select_rows(self, rows: Int[Tensor, " R"]) -> ConvMemory:
        mask = None if self.mask is None else self.mask.select_rows(rows)
        return ConvMemory(self.keys[rows], self.values[rows], mask, self.scale[rows])


class ConvStack(nn.Module):
    """Layers between a map into their width and one back to the width of the embeddings."""

    def __init__(self, config: Any, block: type[ConvEncoderBlock], layers: int) -> None:
        super().__init__()
        sizes = [(config.hidden, config.kernel)] * layers + [(hidden, kernel) for hidden, kernel in config.extra_layers]
        widths = [sizes[0][0], *(hidden for hidden, _ in sizes)]
        self.input_proj = weight_norm_linear(config.width, widths[0], config)
        self.blocks = nn.ModuleList(
            block(config, layer, width, *size) for layer, (width, size) in enumerate(zip(widths, sizes, strict=False))
        )
        self.output_proj = weight_norm_linear(widths[-1], config.width, None)

    def forward(
        self, words: Float[Tensor, "B N C"], *inputs: Any, pass_state: PassState | None = None
    ) -> Float[Tensor, "B N C"]:
        """Apply all layers; each gets `inputs` and, if there is a pass state, its layer state too."""
        x = self.input_proj(words)
        for depth, block in enumerate(self.blocks):
            x = block(x, *inputs) if pass_state is None else block(x, *inputs, pass_state.layer(depth))
        return self.output_proj(x)

    def empty_rings(self, like: Tensor) -> tuple[Tensor, ...]:
        """Return an empty ring of past inputs for every layer."""
        every: Any = self.blocks
        return tuple(block.conv.empty_ring(like) for block in every)

    def step(
        self,
        words: Float[Tensor, "B K C"],
        memory: ConvMemory,
        empty_rings: tuple[Tensor, ...],
        time: Int[Tensor, ""],
        matrices: dict[str, Tensor],
        frozen: bool,
    ) -> tuple[Float[Tensor, "B K C"], tuple[Tensor, ...]]:
        """Apply all layers to the newest token of every beam; `matrices` are those of `materialize_weights`."""
        every: Any = self.blocks
        x, moved, pass_state = self.input_proj(words, matrices["input_proj"]), [], PassState()
        for layer, (block, ring) in enumerate(zip(every, empty_rings, strict=True)):
            own = {name: matrices[f"blocks.{layer}.{name}"] for name in block.maps}
            x, ring = block.step(x, words, memory, ring, time, own, frozen, pass_state.layer(layer))
            moved.append(ring)
        return self.output_proj(x, matrices["output_proj"]), tuple(moved)


class ConvEncoderBlock(nn.Module):
    """A gated convolution over neighbouring tokens with a residual connection: x' = (glu(conv(x)) + x) √½."""

    kind: type[Convolution] = Convolution

    def __init__(self, config: Any, layer: int, width: int, hidden: int, kernel: int) -> None:
        super().__init__()
        self.skip = None if width == hidden else weight_norm_linear(width, hidden, None)
        self.conv = self.kind(width, 2 * hidden, kernel, linear=glu_linear(kernel * width, hidden, config))
        self.drop = nn.Dropout(config.dropout)

    def forward(self, x: Float[Tensor, "B N C"], real: Bool[Tensor, "B N"] | None = None) -> Float[Tensor, "B N D"]:
        """Apply the block; tokens that are not real are zero to their neighbours."""
        x = x if real is None else x * real[..., None]
        around = x if self.skip is None else self.skip(x)
        return (F.glu(self.conv(self.drop(x)), -1) + around) * SQRT_HALF


class ConvDecoderBlock(ConvEncoderBlock):
    """A gated convolution over earlier tokens, attention to the source, and residual connections around both.

    h = glu(conv(x))
    q = (W h + b + word) √½
    c = √m Σ_m softmax_m(q · z_m) v_m                 v = (z + e) √½
    x' = ((U c + b' + h) √½ + x) √½
    """

    kind = CausalConvolution

    def __init__(self, config: Any, layer: int, width: int, hidden: int, kernel: int) -> None:
        super().__init__(config, layer, width, hidden, kernel)
        self.cross = CrossAttention(hidden, config.width, layer_spec(config.attention, layer))
        self.maps = list(materialize_weights(self))

    def forward(  # type: ignore[override]
        self,
        x: Float[Tensor, "B T C"],
        words: Float[Tensor, "B T E"],
        memory: ConvMemory,
        layer_state: LayerState | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Apply the block to a whole target."""
        around = x if self.skip is None else self.skip(x)
        h = F.glu(self.conv(self.drop(x)), -1)
        return (self.cross(h, words, memory, layer_state) + around) * SQRT_HALF

    def step(
        self,
        x: Float[Tensor, "B K C"],
        words: Float[Tensor, "B K E"],
        memory: ConvMemory,
        ring: Float[Tensor, "B K P C"],
        time: Int[Tensor, ""],
        own: dict[str, Tensor],
        frozen: bool,
        layer_state: LayerState | None = None,
    ) -> tuple[Float[Tensor, "B K D"], Float[Tensor, "B K P C"]]:
        """Apply the block to the newest token of every beam; the beams of an input are queries of one memory."""
        around = x if self.skip is None else self.skip(x, own["skip"])
        h, ring = self.conv.step(self.drop(x), ring, time, frozen, weight=own["conv.map"])  # type: ignore[operator]
        seen = self.cross(F.glu(h, -1), words, memory, layer_state, own["cross.query"], own["cross.output"])
        return (seen + around) * SQRT_HALF, ring


class CrossAttention(nn.Module):
    """Attention of one decoder layer to the source, with residual connections around query and output."""

    kind = "cross"

    def __init__(self, hidden: int, width: int, attention: Any) -> None:
        super().__init__()
        self.query, self.output = weight_norm_linear(hidden, width, None), weight_norm_linear(width, hidden, None)
        self.attend = build_part(
            MECHANISMS, attention, "attention", width=width, heads=1, kv_heads=1, head_dim=width, scale=1.0
        )

    def forward(
        self,
        h: Float[Tensor, "B T D"],
        words: Float[Tensor, "B T C"],
        memory: ConvMemory,
        layer_state: LayerState | None = None,
        query_weight: Tensor | None = None,
        output_weight: Tensor | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Return the state plus the context; the weights are those of `materialize_weights`, if made before."""
        q = ((self.query(h, query_weight) + words) * SQRT_HALF).to(memory.keys.dtype)
        keys, values = memory.keys[:, None], memory.values[:, None]
        seen = self.attend(q[:, None], keys, values, memory.mask, layer_state=layer_state)[:, 0]
        return (self.output(seen * memory.scale, output_weight) + h) * SQRT_HALF


class ScaleGradient(torch.autograd.Function):
    """The identity, whose gradient is divided by a number."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, by: int) -> Tensor:
        ctx.by = by
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0] / ctx.by, None


# -- initial weights that preserve the variance ------------------------------------------------------------------------


def weight_norm_linear(width: int, out: int, dropped: Any) -> WeightNormLinear:
    """Return a map whose initial weights allow for the dropout of its input."""
    return WeightNormLinear(width, out, ((1 - dropped.dropout if dropped else 1.0) / width) ** 0.5)


def glu_linear(width: int, out: int, config: Any) -> WeightNormLinear:
    """Return a map to twice the width, of which a gate leaves a quarter of the variance."""
    return WeightNormLinear(width, 2 * out, (4 * (1 - config.dropout) / width) ** 0.5)
