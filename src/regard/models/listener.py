"""The listener: a recurrent decoder writes what is said, looking over the frames of a sound for where to listen next.

    tokens      frames of numbers; strided convolutions make one of every two, four or eight
    positions   none: recurrence reads in order, in both directions
    attention   location-aware: where it listened last, convolved, joins the score, so that it moves on
    head        maxout over state, context and last word, then linear

The encoder is CTC's (models.ctc), the decoder that of translation (blocks.aligned): a word is heard where the decoder
looks, not where a frame is labelled. Any aligner will do; one that only knows *what* it looks for (additive) takes the
two "two"s of "two two" for one another, which is what location-awareness is for.

Chorowski, Bahdanau, Serdyuk, Cho, Bengio: Attention-Based Models for Speech Recognition. NeurIPS 2015. arXiv:1506.07503
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from regard.attention.mask import Keys
from regard.blocks.aligned import AlignedDecoder
from regard.blocks.carried import Carried, State
from regard.core.bounds import within
from regard.core.shapes import Bool, Float, Int, Tensor
from regard.models.ctc import Encoder


@dataclass(frozen=True)
class Config:
    """Everything that shapes a listener."""

    vocab: int
    inputs: int = 40  # numbers a frame
    halvings: int = 2  # convolutions that make one frame of two
    front: int = 256  # width of what the convolutions give
    width: int = 128  # of the embeddings
    hidden: int = 256  # of a recurrent layer: the decoder's, and the encoder's in each direction
    layers: int = 3  # of the encoder
    decoder_layers: int = 1
    align: int | None = None  # hidden units of the aligner's score; None: as `hidden`
    reader: Any = "lstm"  # of the encoder: lstm, gru, rnn
    cell: str = "gru"  # of the decoder
    aligner: Any = "location(filters=10, reach=15)"  # the paper has 100 frames either way, of which this leaves a few
    dropout: float = 0.2
    pad: int = 0
    bos: int = 1
    eos: int = 2


# Base is for hours of speech, small for one hour (AN4), tiny for strings of digits on a laptop.
SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "small": {"front": 192, "hidden": 192, "dropout": 0.3},
    "tiny": {"front": 96, "width": 48, "hidden": 96, "layers": 2, "dropout": 0.15},
}


class Listener(Carried, nn.Module):
    """Frames and target tokens in, logits of the next target token out."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        within(config)
        self.config = c = config
        self.encoder = Encoder(c.inputs, c.halvings, c.front, c.hidden, c.layers, c.reader, c.dropout)
        self.decoder = AlignedDecoder(
            c.vocab,
            c.width,
            c.hidden,
            self.encoder.width,
            aligner=c.aligner,
            cell=c.cell,
            layers=c.decoder_layers,
            align=c.align,
            dropout=c.dropout,
            first_width=self.encoder.reader.hidden,
            pad=c.pad,
        )

    def forward(
        self,
        frames: Float[Tensor, "B N F"],
        target: Int[Tensor, "B T"],
        frame_lengths: Int[Tensor, " B"] | None = None,
        target_lengths: Int[Tensor, " B"] | None = None,
        own: Bool[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Logits of the token after each target token. Padding of the target stands on the right, after all it could
        disturb. Where `own` is True, what is read is a word drawn from the model's last output, not the target's."""
        return self.decoder(target, self.begin(frames, frame_lengths), own)

    def encode(
        self, frames: Float[Tensor, "B N F"], frame_lengths: Int[Tensor, " B"] | None = None
    ) -> tuple[Float[Tensor, "B M C"], Bool[Tensor, "B M"], Float[Tensor, "B H"]]:
        """What the decoder listens to, where it may, and what its first state is made of."""
        values, lengths = self.encoder(frames, frame_lengths)
        return values, Keys(lengths).real(values.shape[1]), self.encoder.reader.ends(values, lengths)[:, -1]

    # -- writing, one token after another ------------------------------------------------------------------------------

    def begin(self, source: Float[Tensor, "B N F"], source_lengths: Int[Tensor, " B"] | None = None) -> State:
        """What is carried before the first token."""
        return self.decoder.begin(*self.encode(source, source_lengths))

    def step(self, tokens: Int[Tensor, "B K"], state: State) -> tuple[Float[Tensor, "B K V"], State]:
        """Logits of the next token of every beam."""
        return self.decoder.step(tokens, state)
