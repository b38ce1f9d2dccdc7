"""CTC: a recurrent network labels every frame of a sound, and what is said is read off the labels.

    tokens      frames of numbers; strided convolutions make one of every two, four or eight, or `stack` of them are one
    positions   none: recurrence reads in order, in both directions
    layers      L bidirectional LSTMs
    head        linear over V labels and, last, one blank, at every frame

    frames   - seven seven - - two - two two -        one label a frame; V is the blank, written "-" here
    said       seven             two   two            runs of a label are one, then blanks are dropped

Nobody says at which frame a word is spoken: the loss sums over all ways in which the frames can say the words
(losses.ctc). A target of S labels of which R follow an equal one needs S + R frames *after* the convolutions.

Graves, Fernández, Gomez, Schmidhuber: Connectionist Temporal Classification. ICML 2006
Graves, Mohamed, Hinton: Speech Recognition with Deep Recurrent Neural Networks. ICASSP 2013. arXiv:1303.5778
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from regard.blocks import RNN_ENCODERS
from regard.core.config import field
from regard.core.shapes import Float, Int, Tensor
from regard.core.spec import build_part
from regard.core.validation import validate

KERNEL_SIZE = 5  # frames a convolution sees


@dataclass(frozen=True)
class Config:
    """Everything that shapes a network for CTC."""

    vocab: int  # labels; the blank comes on top
    input_dim: int = 40  # numbers a frame
    frame_stack: int = 1  # so many frames are heard at a time, through a linear map; what the convolutions read
    # convolutions that make one frame of two; 0: the recurrent layers read the frames themselves
    subsampling_layers: int = field(2, low=0, high=6)
    width: int = 256  # of what the convolutions give
    hidden: int = 320  # of a recurrent layer, in each direction
    layers: int = 4
    encoder: Any = "lstm"  # a spec: lstm, gru, rnn
    dropout: float = field(0.2, low=0, below=1)  # of what enters the recurrent layers and the head, and between layers


# Base is for hours of speech, small for one hour (AN4), tiny for strings of digits on a laptop.
SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "small": {"width": 192, "hidden": 192, "layers": 3, "dropout": 0.3},
    "tiny": {"width": 96, "hidden": 96, "layers": 2, "dropout": 0.15},
}


class CTC(nn.Module):
    """Frames in, logits of a label or the blank at every remaining frame out."""

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
        """Logits of V labels and the blank (number V), and how many frames are left of each recording."""
        x, lengths = self.encoder(frames, frame_lengths)
        return self.head(self.drop(x)), lengths

    @property
    def blank(self) -> int:
        """The number of the label that says nothing."""
        return self.config.vocab


class AcousticEncoder(nn.Module):
    """Frames in, fewer and richer ones out: strided convolutions over time, then recurrent layers. With a stack and no
    convolutions, and a reader of one direction, what comes out at a place knows nothing of what comes later."""

    initializes_others = True  # it reads the frames itself: a beginning for whatever else listens (training.begin)

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
            RNN_ENCODERS, rnn, "encoder", width=sizes[-1], hidden=hidden, layers=layers, dropout=dropout
        )
        self.width: int = self.rnn.width  # of what comes out

    def forward(
        self, frames: Float[Tensor, "B T F"], lengths: Int[Tensor, " B"] | None = None
    ) -> tuple[Float[Tensor, "B N C"], Int[Tensor, " B"]]:
        """What is left of the frames, zeros beyond each one's end, and how many are real: half of them, rounded up, for
        every convolution. Padding is silenced before each, so that a recording's company changes nothing."""
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
        """As many frames as are heard at a time as one vector; silence fills up the last."""
        if self.stack_projection is None:
            return frames
        full = nn.functional.pad(frames, (0, 0, 0, -frames.shape[1] % self.frame_stack))
        x: Tensor = self.stack_projection(full.unflatten(1, (-1, self.frame_stack)).flatten(2))
        return x


def _real(x: Float[Tensor, "B C T"], lengths: Int[Tensor, " B"]) -> Tensor:
    return (torch.arange(x.shape[-1], device=x.device) < lengths[:, None])[:, None]
