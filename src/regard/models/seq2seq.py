"""Sequence to sequence: a recurrent encoder compresses the source into one vector for a recurrent decoder.

    tokens      an embedding table for each side (or one for both and the output, tied)
    positions   none: recurrence reads in order
    attention   none: the source is one vector of width `hidden`, whatever its length
    head        maxout over state, vector and last word, then linear

    v = tanh(W [final states])     s_t = cell([y_{t-1}; v], s_{t-1})      logits_t = V maxout(R [s_t; y_{t-1}; v])

The baseline of attention. As no input depends on the state, a whole target is one fused call, without a loop. `context`
says where v enters: "every_step", in every step and the output (Cho), or "initial_state", only there (Sutskever).

Cho et al.: Learning Phrase Representations using RNN Encoder-Decoder. EMNLP 2014. arXiv:1406.1078. Sutskever, Vinyals,
Le: Sequence to Sequence Learning with Neural Networks. NIPS 2014. arXiv:1409.3215 (four LSTM layers, and the source
reversed; here the encoder is bidirectional instead)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from regard.blocks import RNN_ENCODERS
from regard.blocks.decoder_state import CapturableDecodable, DecoderState, TensorMemory
from regard.blocks.rnn import InitialState, StackedRNN, States
from regard.blocks.rnn_decoder import DeepOutput, make_embedding, scheduled_sampling
from regard.core.config import field
from regard.core.shapes import Bool, Float, Int, Tensor
from regard.core.spec import Registry, build_part
from regard.core.validation import validate
from regard.models.contract import ModelContract


@dataclass(frozen=True)
class Config:
    """Hyperparameters of the model; the defaults are Cho's (which has no dropout), with Bahdanau's output."""

    vocab: int
    width: int = 620  # of the embeddings
    hidden: int = 1000  # units of the decoder, of the vector, and of the encoder in each direction
    readout: int | None = 500  # maxout units before the head; None: `width`
    layers: int = 1  # of the decoder
    dropout: float = field(0.0, low=0, below=1)  # of embeddings, between layers, and before the head
    encoder: Any = "gru(directions=1)"  # a spec: rnn, lstm, gru, none; with (layers=..., directions=..., hidden=...)
    cell: str = "gru"  # of the decoder: rnn, lstm, gru
    context: str = "every_step"  # where the context vector enters: every_step, initial_state
    tied: bool = False  # one embedding table for source, target and output
    pad: int = field(0, low=0, below="vocab")
    bos: int = field(1, low=0)
    eos: int = field(2, low=0)


# Cho is the paper's; sutskever has its layers and units; small and tiny are RNNsearch's, without its attention.
SIZES: dict[str, dict[str, Any]] = {
    "cho": {},
    "sutskever": {
        "width": 1000, "layers": 4, "readout": None, "encoder": "lstm(layers=4, directions=1)", "cell": "lstm",
        "context": "initial_state",
    },
    "small": {"width": 256, "hidden": 512, "readout": None, "dropout": 0.4, "encoder": "gru", "tied": True},
    "tiny": {"width": 128, "hidden": 128, "readout": None, "dropout": 0.2, "encoder": "gru", "tied": True},
}  # fmt: skip


class Seq2Seq(CapturableDecodable, ModelContract):
    """Source and target tokens in, logits of the next target token out."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config = c = config
        self.embed = make_embedding(c.vocab, c.width, c.pad)
        self.drop = nn.Dropout(c.dropout)
        self.encoder = build_part(RNN_ENCODERS, c.encoder, "encoder", width=c.width, hidden=c.hidden, dropout=c.dropout)
        self.context_projection = nn.Linear(self.encoder.width, c.hidden)
        self.embed_target = make_embedding(c.vocab, c.width, c.pad)
        self.start_from = InitialState(c.cell, c.hidden, c.hidden, c.layers)
        self.context = build_part(CONTEXTS, c.context, "context", width=c.hidden)
        self.network = StackedRNN(c.cell, c.width + self.context.width, c.hidden, c.layers, c.dropout)
        self.output = DeepOutput((c.hidden, self.context.width, c.width), c.readout, c.vocab, c.dropout)
        nn.init.xavier_uniform_(self.context_projection.weight)
        nn.init.zeros_(self.context_projection.bias)
        if c.tied:
            self.output.tie_weights(self.embed_target)
            self.embed.weight = self.embed_target.weight

    def forward(
        self,
        source: Int[Tensor, "B N"],
        target: Int[Tensor, "B T"],
        source_lengths: Int[Tensor, " B"] | None = None,
        target_lengths: Int[Tensor, " B"] | None = None,
        sampling_mask: Bool[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Return the logits of the token after each target token; targets are padded on the right.

        Where `sampling_mask` is True, the decoder reads a sample of its last output instead of the target token.
        """
        state = self.initial_state(source, source_lengths)
        if sampling_mask is not None and sampling_mask.shape[1]:
            return scheduled_sampling(self.step, target, state, sampling_mask)
        words = self.drop(self.embed_target(target))
        states = self.network(self.context(words, state.memory.values), state.hidden)
        return self.output(states, self.context(words, state.memory.values))

    def encode(
        self, source: Int[Tensor, "B N"], source_lengths: Int[Tensor, " B"] | None = None
    ) -> Float[Tensor, "B F"]:
        """Return the context vector of a source, from the final states of the encoder."""
        states = self.encoder(self.drop(self.embed(source)), source_lengths)
        return torch.tanh(self.context_projection(self.encoder.final_states(states, source_lengths).flatten(1)))

    # -- decoding, one token at a time ---------------------------------------------------------------------------------

    def initial_state(
        self, source: Int[Tensor, "B N"], source_lengths: Int[Tensor, " B"] | None = None
    ) -> DecoderState:
        """Return the decoder state before the first token."""
        vector = self.encode(source, source_lengths)
        return DecoderState(TensorMemory(vector[:, None]), self.start_from(vector))

    def step(self, tokens: Int[Tensor, "B K"], state: DecoderState) -> tuple[Float[Tensor, "B K V"], DecoderState]:
        inputs = self.context(self.drop(self.embed_target(tokens)), state.memory.values)
        hidden: States = self.network.step(inputs, state.hidden)
        return self.output(hidden[-1][0], inputs), state.updated(hidden)


class EveryStepContext(nn.Module):
    """Concatenate the vector to every token embedding."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, words: Float[Tensor, "B T C"], vector: Float[Tensor, "B 1 F"]) -> Float[Tensor, "B T both"]:
        return torch.cat([words, vector.to(words.dtype).expand(-1, words.shape[1], -1)], -1)


class InitialStateContext(nn.Module):
    """The vector enters the first state only."""

    width = 0

    def forward(self, words: Float[Tensor, "B T C"], vector: Float[Tensor, "B 1 F"]) -> Float[Tensor, "B T C"]:
        return words


CONTEXTS: Registry = {
    "every_step": ("regard.models.seq2seq", "EveryStepContext"),
    "initial_state": ("regard.models.seq2seq", "InitialStateContext"),
}
