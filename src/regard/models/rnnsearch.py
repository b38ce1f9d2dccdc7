"""RNNsearch: a recurrent encoder-decoder with additive attention (Bahdanau attention).

    tokens      an embedding table for each side (or one for both and the output, tied)
    positions   none: recurrence reads in order, the source in both directions
    attention   additive: from the previous decoder state over all source positions, one step at a time
    head        maxout over state, context and last token, then linear

Encoder, cell and aligner are parts. The variants of the lecture:

    encoder="gru(directions=1)"      unidirectional encoder
    encoder="none"                   embeddings as memory
    encoder="lstm(layers=2)"         a deeper LSTM
    aligner="neural_coverage"        a recurrent summary of past alignments enters the score

Bahdanau, Cho, Bengio: Neural Machine Translation by Jointly Learning to Align and Translate. ICLR 2015. arXiv:1409.0473

Two details follow current practice, not the paper's appendix: the reset gate acts after the product (as in PyTorch),
and the output reads the new state s_i, as in the paper's equation 4, not s_{i-1}.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from regard.attention.mask import PaddingMask
from regard.blocks import RNN_ENCODERS
from regard.blocks.decoder_state import CapturableDecodable, DecoderState
from regard.blocks.rnn_decoder import RNNDecoder, make_embedding
from regard.core.config import field
from regard.core.layer_state import PassState
from regard.core.shapes import Bool, Float, Int, Tensor, check_token_ids
from regard.core.spec import build_part
from regard.core.validation import validate
from regard.models.contract import ModelContract


@dataclass(frozen=True)
class Config:
    """Hyperparameters of an RNNsearch; the defaults are the paper's (which has no dropout)."""

    vocab: int
    width: int = 620  # of the embeddings
    hidden: int = 1000  # units of the decoder, and of the encoder in each direction
    align_width: int | None = None  # hidden units of the aligner's score; None: `hidden`
    readout: int | None = 500  # maxout units before the head; None: `width`
    layers: int = 1  # of the decoder
    dropout: float = field(0.0, low=0, below=1)  # of embeddings, between layers, and before the head
    encoder: Any = "gru"  # a spec: rnn, lstm, gru, none; with (layers=..., directions=..., hidden=...)
    cell: str = "gru"  # of the decoder: rnn, lstm, gru
    aligner: Any = "additive"  # a spec, or a module
    tied: bool = False  # one embedding table for source, target and output
    pad: int = field(0, low=0, below="vocab")
    bos: int = field(1, low=0)
    eos: int = field(2, low=0)


# Base is the paper's (appendix A and B); small is for some ten thousand pairs, tiny for a laptop.
SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "small": {"width": 256, "hidden": 512, "align_width": 256, "readout": None, "dropout": 0.4, "tied": True},
    "tiny": {"width": 128, "hidden": 128, "readout": None, "dropout": 0.2, "tied": True},
}


class RNNSearch(CapturableDecodable, ModelContract):
    """Source and target tokens in, logits of the next target token out."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config = c = config
        self.embed = make_embedding(c.vocab, c.width, c.pad)
        self.drop = nn.Dropout(c.dropout)
        self.encoder = build_part(RNN_ENCODERS, c.encoder, "encoder", width=c.width, hidden=c.hidden, dropout=c.dropout)
        self.decoder = RNNDecoder(
            c.vocab,
            c.width,
            c.hidden,
            self.encoder.width,
            aligner=c.aligner,
            cell=c.cell,
            layers=c.layers,
            align_width=c.align_width,
            readout=c.readout,
            dropout=c.dropout,
            init_width=self.encoder.hidden,
            tied=c.tied,
            pad=c.pad,
        )
        if c.tied:
            self.embed.weight = self.decoder.embed.weight

    def forward(
        self,
        source: Int[Tensor, "B N"],
        target: Int[Tensor, "B T"],
        source_lengths: Int[Tensor, " B"] | None = None,
        target_lengths: Int[Tensor, " B"] | None = None,
        sampling_mask: Bool[Tensor, "B T"] | None = None,
        pass_state: PassState | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Return the logits of the token after each target token; targets are padded on the right.

        Where `sampling_mask` is True, the decoder reads a sample of its last output instead of the target token.
        """
        return self.decoder(target, self.initial_state(source, source_lengths), sampling_mask, pass_state)

    def encode(
        self, source: Int[Tensor, "B N"], source_lengths: Int[Tensor, " B"] | None = None
    ) -> tuple[Float[Tensor, "B N C"], Bool[Tensor, "B N"] | None, Float[Tensor, "B F"]]:
        """Return the memory, which of it is real, and the vector for the first state.

        The vector is the final state of the backward direction or, if there is none, of the forward one.
        """
        keys = PaddingMask.from_lengths(check_token_ids(source, "source tokens"), source_lengths)
        values = self.encoder(self.drop(self.embed(source)), source_lengths)
        mask = None if keys is None else keys.real(source.shape[1])
        return values, mask, self.encoder.final_states(values, source_lengths)[:, -1]

    # -- decoding, one token at a time ---------------------------------------------------------------------------------

    def initial_state(
        self, source: Int[Tensor, "B N"], source_lengths: Int[Tensor, " B"] | None = None
    ) -> DecoderState:
        """Return the decoder state before the first token."""
        return self.decoder.initial_state(*self.encode(source, source_lengths))

    def step(self, tokens: Int[Tensor, "B K"], state: DecoderState) -> tuple[Float[Tensor, "B K V"], DecoderState]:
        return self.decoder.step(tokens, state)
