"""Attention-based speech recognition: a recurrent decoder with location-aware attention over the frames.

    tokens      log-mel frames, subsampled by strided convolutions by 2, 4 or 8
    positions   none: a bidirectional recurrent encoder reads in order
    attention   location-aware: the convolved weights of the last step enter the score, so that attention moves on
    head        maxout over state, context and last token, then linear

The encoder is that of models.ctc, the decoder that of translation (blocks.rnn_decoder). Any aligner works; a purely
content-based one (additive) confuses repeated words, such as the two of "two two": location-awareness prevents that.

Chorowski, Bahdanau, Serdyuk, Cho, Bengio: Attention-Based Models for Speech Recognition. NeurIPS 2015. arXiv:1506.07503
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from regard.attention.mask import PaddingMask
from regard.blocks.decoder_state import CapturableDecodable, DecoderState
from regard.blocks.rnn_decoder import RNNDecoder
from regard.core.config import field
from regard.core.layer_state import PassState
from regard.core.shapes import Bool, Float, Int, Tensor
from regard.core.validation import validate
from regard.models.contract import ModelContract
from regard.models.ctc import AcousticEncoder


@dataclass(frozen=True)
class Config:
    """Hyperparameters of an attention-based speech recognizer."""

    vocab: int
    input_dim: int = 40  # features of a frame
    subsampling_layers: int = field(2, low=0, high=6)  # strided convolutions, each halves the frames
    conv_width: int = 256  # channels of the convolutions
    width: int = 128  # of the embeddings
    hidden: int = 256  # units of a recurrent layer, in the encoder for each direction; width of a Conformer
    layers: int = 3  # of the encoder
    decoder_layers: int = 1
    align_width: int | None = None  # hidden units of the aligner's score; None: `hidden`
    encoder: Any = "lstm"  # a spec of blocks.FRAME_ENCODERS: lstm, gru, rnn, conformer(heads=4), ...
    cell: str = "gru"  # of the decoder
    aligner: Any = "location(filters=10, radius=15)"  # the paper: radius 100, before subsampling
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


class AttentionASR(CapturableDecodable, ModelContract):
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
        pass_state: PassState | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Return the logits of the token after each target token; targets are padded on the right.

        Where `sampling_mask` is True, the decoder reads a sample of its last output instead of the target token.
        """
        return self.decoder(target, self.initial_state(frames, frame_lengths), sampling_mask, pass_state)

    def encode(
        self, frames: Float[Tensor, "B N F"], frame_lengths: Int[Tensor, " B"] | None = None
    ) -> tuple[Float[Tensor, "B M C"], Bool[Tensor, "B M"], Float[Tensor, "B H"]]:
        """Return the memory of the decoder, which of it is real, and the vector for its first state."""
        values, lengths = self.encoder(frames, frame_lengths)
        return values, PaddingMask(lengths).real(values.shape[1]), self.encoder.rnn.final_states(values, lengths)[:, -1]

    # -- decoding, one token at a time ---------------------------------------------------------------------------------

    def initial_state(
        self, source: Float[Tensor, "B N F"], source_lengths: Int[Tensor, " B"] | None = None
    ) -> DecoderState:
        """Return the decoder state before the first token."""
        return self.decoder.initial_state(*self.encode(source, source_lengths))

    def step(self, tokens: Int[Tensor, "B K"], state: DecoderState) -> tuple[Float[Tensor, "B K V"], DecoderState]:
        return self.decoder.step(tokens, state)
