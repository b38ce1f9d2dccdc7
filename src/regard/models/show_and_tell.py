"""Show and Tell: a caption from one vector of the picture, which the LSTM reads before the first word.

    tokens      words of the caption; the picture is one vector, the mean of a CNN's last grid
    positions   none: recurrence reads in order
    attention   none: the baseline of Show, Attend and Tell
    head        linear, on the state

    x_{-1} = W CNN(I)        x_t = E y_t        h_t = LSTM(x_t, h_{t-1}), from zeros        p(y_{t+1}) = softmax(V h_t)

The picture is read once; as no input depends on the state, a whole caption is one fused call. As in Show, Attend and
Tell, `forward` also takes annotation vectors B M D that were computed before.

Vinyals, Toshev, Bengio, Erhan: Show and Tell: A Neural Image Caption Generator. CVPR 2015. arXiv:1411.4555
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from regard.blocks.decoder_state import CapturableDecodable, DecoderState, TensorMemory
from regard.blocks.rnn import StackedRNN
from regard.blocks.rnn_decoder import make_embedding
from regard.core.config import field
from regard.core.shapes import Float, Int, Tensor
from regard.core.validation import validate
from regard.models.contract import ModelContract
from regard.models.efficientnet_lite import Config as CNNConfig
from regard.models.show_attend_and_tell import LITE2, AnnotationEncoder, cnn
from regard.models.vit import Config as ViTConfig


@dataclass(frozen=True)
class Config:
    """Hyperparameters of a captioner without attention."""

    vocab: int
    encoder: CNNConfig | ViTConfig = LITE2
    frozen: bool = True  # the encoder is not trained
    width: int = 512  # of the embeddings, and of the picture's vector
    hidden: int = 512  # units of the LSTM
    dropout: float = field(0.5, low=0, below=1)  # of embeddings, and before the head
    pad: int = field(0, low=0, below="vocab")
    bos: int = field(1, low=0)
    eos: int = field(2, low=0)


# Base has the paper's widths; tiny is for tests.
SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "tiny": {"encoder": cnn("tiny"), "frozen": False, "width": 24, "hidden": 32, "dropout": 0.0},
}


class ShowAndTell(CapturableDecodable, ModelContract):
    """Images and the words so far in, logits of the next word out."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config = c = config
        self.encoder = AnnotationEncoder(c.encoder, c.frozen)
        self.project = nn.Linear(self.encoder.width, c.width)
        self.embed = make_embedding(c.vocab, c.width, c.pad)
        self.drop = nn.Dropout(c.dropout)
        self.network = StackedRNN("lstm", c.width, c.hidden)
        self.head = nn.Linear(c.hidden, c.vocab)
        for part in (self.project, self.head):
            nn.init.xavier_uniform_(part.weight)
            nn.init.zeros_(part.bias)

    def forward(
        self,
        images: Float[Tensor, "B C Y X"] | Float[Tensor, "B M D"],
        target: Int[Tensor, "B T"],
        target_lengths: Int[Tensor, " B"] | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Return the logits of the word after each target word; targets are padded on the right."""
        states = self.network(self.drop(self.embed(target)), self.initial_state(images).hidden)
        logits: Tensor = self.head(self.drop(states))
        return logits

    # -- decoding, one word at a time ----------------------------------------------------------------------------------

    def initial_state(self, source: Tensor, source_lengths: Int[Tensor, " B"] | None = None) -> DecoderState:
        """Return the state after the picture and before the first word."""
        vector = self.drop(self.project(self.encoder(source).mean(1)))[:, None]
        zero = vector.new_zeros(*vector.shape[:2], self.config.hidden)
        return DecoderState(TensorMemory(vector), self.network.step(vector, ((zero, zero),)))

    def step(self, tokens: Int[Tensor, "B K"], state: DecoderState) -> tuple[Float[Tensor, "B K V"], DecoderState]:
        hidden = self.network.step(self.drop(self.embed(tokens)), state.hidden)
        return self.head(self.drop(hidden[-1][0])), state.updated(hidden)
