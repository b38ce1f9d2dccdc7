"""CTC: a network, recurrent as a rule, labels every frame, and the labels are collapsed to a transcript.

    tokens      log-mel frames, subsampled by strided convolutions by 2, 4 or 8, or `frame_stack` of them stacked
    positions   none: recurrence reads in order, in both directions
    layers      L bidirectional LSTMs, or another part of blocks.FRAME_ENCODERS
    head        linear over V labels and, last, one blank, at every frame

    frames       - seven seven - - two - two two -    one label a frame; "-" is the blank, id V
    transcript     seven             two   two        repeated labels are merged, then blanks are dropped

Targets are not aligned to frames: the loss sums over all alignments (losses.ctc). A target of S labels of which R
follow an equal one needs S + R frames *after* the convolutions.

Graves, Fernández, Gomez, Schmidhuber: Connectionist Temporal Classification. ICML 2006
Graves, Mohamed, Hinton: Speech Recognition with Deep Recurrent Neural Networks. ICASSP 2013. arXiv:1303.5778
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from regard.blocks import FRAME_ENCODERS
from regard.core.config import field
from regard.core.shapes import Float, Int, Tensor
from regard.core.spec import build_part
from regard.core.validation import validate
from regard.models.contract import ModelContract

KERNEL_SIZE = 5  # in frames


@dataclass(frozen=True)
class Config:
    """Hyperparameters of a CTC network."""

    vocab: int  # labels, without the blank
    input_dim: int = 40  # features of a frame
    frame_stack: int = 1  # so many frames are concatenated and projected, before the convolutions
    subsampling_layers: int = field(2, low=0, high=6)  # strided convolutions, each halves the frames
    width: int = 256  # channels of the convolutions
    hidden: int = 320  # units of a recurrent layer, in each direction; width of a Conformer
    layers: int = 4
    encoder: Any = "lstm"  # a spec of blocks.FRAME_ENCODERS: lstm, gru, rnn, conformer(heads=4), ...
    dropout: float = field(0.2, low=0, below=1)  # of the inputs of recurrent layers and head


# Base is for hours of speech, small for one hour (AN4), tiny for strings of digits on a laptop.
SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "small": {"width": 192, "hidden": 192, "layers": 3, "dropout": 0.3},
    "tiny": {"width": 96, "hidden": 96, "layers": 2, "dropout": 0.15},
}


class CTC(ModelContract):
    """Frames to logits of a label or the blank at every subsampled frame."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config = config
        self.encoder = AcousticEncoder(
            config.input_dim,
            config.subsampling_layers,
            config.width,
            config.hidden,
            config.layers,
            config.encoder,
            config.dropout,
            config.frame_stack,
        )
        self.drop = nn.Dropout(config.dropout)
        self.head = nn.Linear(self.encoder.width, config.vocab + 1)
        nn.init.xavier_uniform_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(
        self, frames: Float[Tensor, "B T F"], frame_lengths: Int[Tensor, " B"] | None = None
    ) -> tuple[Float[Tensor, "B N L"], Int[Tensor, " B"]]:
        """Return the logits of V labels and the blank (id V), and the number of subsampled frames of each recording."""
        x, lengths = self.encoder(frames, frame_lengths)
        return self.head(self.drop(x)), lengths

    @property
    def blank(self) -> int:
        """Id of the blank label."""
        return self.config.vocab


class AcousticEncoder(nn.Module):
    """Strided convolutions over frames, then recurrent layers (or another of blocks.FRAME_ENCODERS).

    Stacking, without convolutions and with a one-directional encoder, is causal.
    """

    def __init__(
        self,
        input_dim: int,
        subsampling_layers: int,
        width: int,
        hidden: int,
        layers: int,
        rnn: Any,
        dropout: float,
        frame_stack: int = 1,
    ) -> None:
        super().__init__()
        self.frame_stack = frame_stack
        self.stack_projection = nn.Linear(input_dim * frame_stack, width) if frame_stack > 1 else None
        sizes = [input_dim if frame_stack == 1 else width, *[width] * subsampling_layers]
        self.convs = nn.ModuleList(
            nn.Conv1d(a, b, KERNEL_SIZE, stride=2, padding=KERNEL_SIZE // 2) for a, b in pairwise(sizes)
        )
        self.drop = nn.Dropout(dropout)
        self.rnn = build_part(
            FRAME_ENCODERS, rnn, "encoder", width=sizes[-1], hidden=hidden, layers=layers, dropout=dropout
        )
        self.width: int = self.rnn.width  # of the output

    def forward(
        self, frames: Float[Tensor, "B T F"], lengths: Int[Tensor, " B"] | None = None
    ) -> tuple[Float[Tensor, "B N C"], Int[Tensor, " B"]]:
        """Return the subsampled frames, zeros beyond each length, and the lengths, halved by every convolution.

        Padding is zeroed before each convolution, so that a recording does not depend on the others of its batch.
        """
        if lengths is None:
            lengths = torch.full(frames.shape[:1], frames.shape[1], device=frames.device)
        if self.frame_stack > 1:
            frames = self.stack_frames(frames * _real(frames.mT, lengths).mT)
            lengths = (lengths + self.frame_stack - 1) // self.frame_stack
        x = frames.mT
        for convolution in self.convs:
            x = torch.relu(convolution(x * _real(x, lengths)))
            lengths = (lengths + 1) // 2
        return self.rnn(self.drop(x.mT), lengths), lengths

    def stack_frames(self, frames: Float[Tensor, "B T F"]) -> Float[Tensor, "B N C"]:
        """Concatenate and project every `frame_stack` frames; the last group is padded with zeros."""
        if self.stack_projection is None:
            return frames
        full = nn.functional.pad(frames, (0, 0, 0, -frames.shape[1] % self.frame_stack))
        x: Tensor = self.stack_projection(full.unflatten(1, (-1, self.frame_stack)).flatten(2))
        return x


def _real(x: Float[Tensor, "B C T"], lengths: Int[Tensor, " B"]) -> Tensor:
    return (torch.arange(x.shape[-1], device=x.device) < lengths[:, None])[:, None]
