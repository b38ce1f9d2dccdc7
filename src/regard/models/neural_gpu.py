"""Neural GPU: a convolutional gated recurrent unit transforms an image of the input, step by step.

    tokens      the first row of a "mental image" of Y rows, n columns and C channels
    positions   none: convolutions are ordered
    attention   none; active memory: all of it changes at every step, in as many steps as it has columns
    head        linear, on the first row

    unit        s' = u ∘ s + (1 - u) ∘ tanh(U * (r ∘ s) + B)       u = σ'(U' * s + B')     r = σ'(U" * s + B")
    gates       σ'(x) = 1.2 σ(x) - 0.1, clamped to [0, 1]: a gate can be fully open or closed
    image       the plain Neural GPU: output t is column t of the last image, all in parallel
    tape        the Extended Neural GPU: a second unit runs one step for each output and also reads a tape of the tokens
                written so far: output t is column t of the image after step t, and depends on the outputs before it

An image has a |s| + b columns. A full tape is overwritten from its beginning; beyond the end of a plain image, outputs
are zeros. Relaxed parameter sharing and gradient noise of the first paper are left out.

Kaiser, Sutskever: Neural GPUs Learn Algorithms. ICLR 2016. arXiv:1511.08228
Kaiser, Bengio: Can Active Memory Replace Attention? NeurIPS 2016. arXiv:1610.08613
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from regard.attention.mask import PaddingMask
from regard.blocks.convolution import unfolded_lengths
from regard.blocks.decoder_state import CapturableDecodable, DecoderState, TensorMemory, initial_time
from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.lazy_dynamo import disable_compile
from regard.core.shapes import Bool, Float, Int, Tensor
from regard.core.spec import Registry, build_part
from regard.core.validation import validate
from regard.models.contract import ModelContract


@dataclass(frozen=True)
class Config:
    """Hyperparameters of a Neural GPU; the defaults are those of the first paper, with the second's tape."""

    vocab: int
    width: int = 24  # channels
    rows: int = 4  # of the image
    layers: int = 2  # units applied in each step
    kernel: int = 3
    decoder: str = "tape"  # or image
    length_ratio: float = field(1.0, above=0)  # a: columns for each source token
    length_offset: float = field(4.0, low=0)  # b: further columns
    dropout: float = field(0.0, low=0, below=1)  # of the image, before every step
    tied: bool = False  # one embedding table for target and output
    pad: int = field(0, low=0, below="vocab")
    bos: int = field(1, low=0)
    eos: int = field(2, low=0)


# Base is that of the first paper, translator the second's for WMT'14.
SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "translator": {"width": 512, "length_ratio": 1.5, "length_offset": 8.0},
    "tiny": {"width": 16, "rows": 2},
}

DECODERS: Registry = {
    "image": ("regard.models.neural_gpu", "ImageDecoder"),
    "tape": ("regard.models.neural_gpu", "TapeDecoder"),
}


class NeuralGPU(CapturableDecodable, ModelContract):
    """Source and target tokens in, logits of the next target token out."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        if config.kernel % 2 == 0:
            raise BadInput(f"kernel must be odd, got {config.kernel}")
        self.config = config
        self.embed = nn.Embedding(config.vocab, config.width, padding_idx=config.pad)
        self.units = ConvGRU(config, 0)
        self.decoder = build_part(DECODERS, config.decoder, "decoder", config=config)
        self.head = nn.Linear(config.width, config.vocab)
        self.drop = nn.Dropout(config.dropout)
        nn.init.normal_(self.embed.weight)
        with torch.no_grad():
            self.embed.weight[config.pad].zero_()
        if config.tied:
            self.head.weight = getattr(self.decoder, "embed", self.embed).weight

    def forward(
        self,
        source: Int[Tensor, "B N"],
        target: Int[Tensor, "B T"],
        source_lengths: Int[Tensor, " B"] | None = None,
        target_lengths: Int[Tensor, " B"] | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Return the logits of the token after each target token; targets are padded on the right."""
        return self.head(self.decoder(target, *self.encode(source, source_lengths)))

    @disable_compile  # a loop as long as the input
    def encode(
        self, source: Int[Tensor, "B N"], source_lengths: Int[Tensor, " B"] | None = None
    ) -> tuple[Float[Tensor, "B C Y X"], Int[Tensor, " B"]]:
        """Return the image after as many steps as it has columns, and the number of columns of each input."""
        if source_lengths is None:
            source_lengths = torch.full(source.shape[:1], source.shape[1], device=source.device)
        columns, each = unfolded_lengths(
            source.shape[1], source_lengths, self.config.length_ratio, self.config.length_offset
        )
        x = self.embed(source) * PaddingMask(source_lengths).real(source.shape[1])[..., None]
        x = F.pad(x.mT, (0, columns - source.shape[1]))[:, :, None, :columns]
        image = F.pad(x, (0, 0, 0, self.config.rows - 1))  # the other rows start as zeros
        assert each is not None
        real = PaddingMask(each).real(columns)
        for step in range(columns):
            moved = self.units(self.drop(image), real)
            image = torch.where((step < each)[:, None, None, None], moved, image)  # finished inputs do not change
        return image, each

    # -- decoding, one token at a time ---------------------------------------------------------------------------------

    def initial_state(
        self, source: Int[Tensor, "B N"], source_lengths: Int[Tensor, " B"] | None = None
    ) -> DecoderState:
        """Return the encoded image and an empty tape."""
        image, each = self.encode(source, source_lengths)
        return DecoderState(TensorMemory(each), self.decoder.initial_state(image), time=initial_time(source))

    def step(self, tokens: Int[Tensor, "B K"], state: DecoderState) -> tuple[Float[Tensor, "B K V"], DecoderState]:
        """Return the logits of the next token for every beam; with a tape, a step recomputes the whole image."""
        column, image, tape = self.decoder.step(tokens, *state.hidden, state.memory.values, state.time)
        return self.head(column), state.updated((image, tape), time=state.time + 1)

    def select(self, state: DecoderState, rows: Int[Tensor, " R"] | None, beams: Int[Tensor, "R K"]) -> DecoderState:
        """Keep the inputs `rows` (None: all) and, of each, the beams `beams`; with a tape, a beam is an image."""
        _, tape = state.hidden
        return super().select(state, rows, beams if tape.shape[-1] else torch.zeros_like(beams[:, :1]))


# -- the unit ----------------------------------------------------------------------------------------------------------


class ConvGRU(nn.Module):
    """One step: `layers` convolutional gated units in sequence; `tape_width` is the width of a tape they also read."""

    def __init__(self, config: Config, tape_width: int) -> None:
        super().__init__()
        maps, around = config.width + tape_width, config.kernel // 2
        self.gates, self.new = nn.ModuleList(), nn.ModuleList()
        for _ in range(config.layers):
            self.gates.append(nn.Conv2d(maps, 2 * config.width, config.kernel, padding=around))
            self.new.append(nn.Conv2d(maps, config.width, config.kernel, padding=around))
            nn.init.ones_(self.gates[-1].bias)  # type: ignore[arg-type]  # to begin with, keep what is there

    def forward(
        self,
        image: Float[Tensor, "B C Y X"],
        real: Bool[Tensor, "B X"],
        tape: Float[Tensor, "B D Y X"] | None = None,
    ) -> Float[Tensor, "B C Y X"]:
        """Return the next image; columns of padding stay zero."""
        inside = real[:, None, None, :]
        for gates, new in zip(self.gates, self.new, strict=True):
            keep, reset = _hard_sigmoid(gates(_concat_tape(image, tape))).chunk(2, 1)
            made = torch.tanh(new(_concat_tape(reset * image, tape)))
            image = (keep * image + (1 - keep) * made) * inside
        return image


def _hard_sigmoid(x: Tensor) -> Tensor:
    return (1.2 * torch.sigmoid(x) - 0.1).clamp(0, 1)


def _concat_tape(image: Tensor, tape: Tensor | None) -> Tensor:
    return image if tape is None else torch.cat([image, tape], 1)


# -- decoders ----------------------------------------------------------------------------------------------------------


class ImageDecoder(nn.Module):
    """The plain decoder: output t is column t, independent of other outputs."""

    def __init__(self, config: Config) -> None:
        super().__init__()

    def forward(
        self, target: Int[Tensor, "B T"], image: Float[Tensor, "B C Y X"], columns: Int[Tensor, " B"]
    ) -> Float[Tensor, "B T C"]:
        """Return the first row, as long as the target."""
        t = target.shape[1]
        return F.pad(image[:, :, 0], (0, max(0, t - image.shape[-1])))[:, :, :t].mT

    def initial_state(self, image: Float[Tensor, "B C Y X"]) -> tuple[Tensor, Tensor]:
        """Return the image with a column of zeros after it, and no tape."""
        return F.pad(image[:, None, :, :1], (0, 1)), image.new_zeros(len(image), 1, image.shape[1], 0)

    def step(
        self, tokens: Int[Tensor, "B K"], image: Tensor, tape: Tensor, columns: Int[Tensor, " B"], time: Int[Tensor, ""]
    ) -> tuple[Float[Tensor, "B K C"], Tensor, Tensor]:
        """Return the next column, the same for every beam."""
        column = image[:, 0, :, 0].index_select(2, time.clamp(max=image.shape[-1] - 1)[None]).mT
        return column.expand(-1, tokens.shape[1], -1), image, tape


class TapeDecoder(nn.Module):
    """The tape decoder: write a token to the tape, run the second unit on image and tape, read a column."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embed = nn.Embedding(config.vocab, config.width, padding_idx=config.pad)
        self.units = ConvGRU(config, config.width)
        self.drop = nn.Dropout(config.dropout)
        nn.init.normal_(self.embed.weight)
        with torch.no_grad():
            self.embed.weight[config.pad].zero_()

    @disable_compile
    def forward(
        self, target: Int[Tensor, "B T"], image: Float[Tensor, "B C Y X"], columns: Int[Tensor, " B"]
    ) -> Float[Tensor, "B T C"]:
        """Run a step for every token of the target."""
        found, (images, tape) = [], self.initial_state(image)
        for time, word in enumerate(target.split(1, 1)):
            at = torch.full((), time, device=target.device)
            column, images, tape = self.step(word, images, tape, columns, at)
            found.append(column)
        return torch.cat(found, 1)

    def initial_state(self, image: Float[Tensor, "B C Y X"]) -> tuple[Tensor, Tensor]:
        """Return the image and an empty tape, for one beam."""
        return image[:, None], torch.zeros_like(image[:, None, :, 0])

    def step(
        self, tokens: Int[Tensor, "B K"], image: Tensor, tape: Tensor, columns: Int[Tensor, " B"], time: Int[Tensor, ""]
    ) -> tuple[Float[Tensor, "B K C"], Tensor, Tensor]:
        """Return the output column, the next image and the tape with the last token; every beam has its own image."""
        b, k = tokens.shape
        at = time % columns.clamp(min=1)  # B: a full tape is overwritten
        here = torch.arange(tape.shape[-1], device=tape.device) == at[:, None]  # B X
        tape = torch.where(here[:, None, None], self.embed(tokens)[..., None].to(tape.dtype), tape)
        real = PaddingMask(columns).real(tape.shape[-1]).repeat_interleave(k, 0)
        laid = F.pad(tape[:, :, :, None], (0, 0, 0, image.shape[3] - 1))  # in the first row
        moved = self.units(self.drop(image.flatten(0, 1)), real, laid.flatten(0, 1))
        image = moved.unflatten(0, (b, k)).to(image.dtype)
        column = (image[:, :, :, 0] * here[:, None, None]).sum(-1)
        return column, image, tape
