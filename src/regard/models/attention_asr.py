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

from regard.attention.mask import PaddingMask
from regard.blocks.decoder_state import CapturableDecodable, DecoderState
from regard.blocks.rnn_decoder import RNNDecoder
from regard.core.config import field
from regard.core.shapes import Bool, Float, Int, Tensor
from regard.core.validation import validate
from regard.models.ctc import AcousticEncoder


@dataclass(frozen=True)
class Config:
    """Everything that shapes a listener."""

    vocab: int
    input_dim: int = 40  # numbers a frame
    subsampling_layers: int = field(2, low=0, high=6)  # convolutions that make one frame of two
    conv_width: int = 256  # width of what the convolutions give
    width: int = 128  # of the embeddings
    hidden: int = 256  # of a recurrent layer: the decoder's, and the encoder's in each direction
    layers: int = 3  # of the encoder
    decoder_layers: int = 1
    align_width: int | None = None  # hidden units of the aligner's score; None: as `hidden`
    encoder: Any = "lstm"  # of the encoder: lstm, gru, rnn
    cell: str = "gru"  # of the decoder
    aligner: Any = "location(filters=10, radius=15)"  # the paper has 100 frames either way, of which this leaves a few
    dropout: float = field(0.2, low=0, below=1)
    pad: int = field(0, low=0, below="vocab")
    bos: int = field(1, low=0)
    eos: int = field(2, low=0)


# Base is for hours of speech, small for one hour (AN4), tiny for strings of digits on a laptop.
SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "small": {"conv_width": 192, "hidden": 192, "dropout": 0.3},
    "tiny": {"conv_width": 96, "width": 48, "hidden": 96, "layers": 2, "dropout": 0.15},
}


class AttentionASR(CapturableDecodable, nn.Module):
    """Frames and target tokens in, logits of the next target token out."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config = c = config
        self.encoder = AcousticEncoder(
            c.input_dim, c.subsampling_layers, c.conv_width, c.hidden, c.layers, c.encoder, c.dropout
        )
        self.decoder = RNNDecoder(
            c.vocab,
            c.width,
            c.hidden,
            self.encoder.width,
            aligner=c.aligner,
            cell=c.cell,
            layers=c.decoder_layers,
            align_width=c.align_width,
            dropout=c.dropout,
            init_width=self.encoder.rnn.hidden,
            pad=c.pad,
        )

    def forward(
        self,
        frames: Float[Tensor, "B N F"],
        target: Int[Tensor, "B T"],
        frame_lengths: Int[Tensor, " B"] | None = None,
        target_lengths: Int[Tensor, " B"] | None = None,
        sampling_mask: Bool[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Logits of the token after each target token. Padding of the target stands on the right, after all it could
        disturb. Where `sampling_mask` is True, what is read is a word drawn from the model's last output, not the target's."""
        return self.decoder(target, self.initial_state(frames, frame_lengths), sampling_mask)

    def encode(
        self, frames: Float[Tensor, "B N F"], frame_lengths: Int[Tensor, " B"] | None = None
    ) -> tuple[Float[Tensor, "B M C"], Bool[Tensor, "B M"], Float[Tensor, "B H"]]:
        """What the decoder listens to, where it may, and what its first state is made of."""
        values, lengths = self.encoder(frames, frame_lengths)
        return values, PaddingMask(lengths).real(values.shape[1]), self.encoder.rnn.final_states(values, lengths)[:, -1]

    # -- writing, one token after another ------------------------------------------------------------------------------

    def initial_state(
        self, source: Float[Tensor, "B N F"], source_lengths: Int[Tensor, " B"] | None = None
    ) -> DecoderState:
        """What is carried before the first token."""
        return self.decoder.initial_state(*self.encode(source, source_lengths))

    def step(self, tokens: Int[Tensor, "B K"], state: DecoderState) -> tuple[Float[Tensor, "B K V"], DecoderState]:
        """Logits of the next token of every beam."""
        return self.decoder.step(tokens, state)
