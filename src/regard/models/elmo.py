"""ELMo: contextual word vectors from a forward and a backward LSTM language model.

    tokens      the characters of each word (bytes), convolutions of width 1 to 7, max-pooling, two highway layers
    positions   none: recurrence reads in order
    layers      L LSTMs for each direction, with projections; residual connections from the second on
    head        linear over words, shared by both directions: the next word forwards, the previous one backwards

    ELMo_n = γ Σ_j softmax(s)_j h_{n,j}        h_{n,0} = [x_n; x_n],  h_{n,j} = [forth_{n,j}; back_{n,j}]

The mix s, γ is part of the downstream model and learned there. A batch has the characters of each distinct word once.
Unlike in the published model, states are not clipped and the head has no bias; the spelling is the same: UTF-8 bytes
between a begin and an end symbol.

Peters, Neumann, Iyyer, Gardner, Clark, Lee, Zettlemoyer: Deep Contextualized Word Representations. NAACL 2018.
arXiv:1802.05365. Its word encoder: Kim, Jernite, Sontag, Rush: Character-Aware Neural Language Models. arXiv:1508.06615
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from regard.blocks.rnn import reverse_index, run_rnn
from regard.core.config import field
from regard.core.errors import RegardError
from regard.core.shapes import Float, Int, Tensor
from regard.core.validation import validate
from regard.models.contract import ModelContract

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]  # hidden, the head's weight V C, targets -> a sum

BYTES = 256  # and five symbols after them
BOS, EOS, BEGIN, END, PAD = range(BYTES, BYTES + 5)  # two words without spelling; begin and end of any word


@dataclass(frozen=True)
class Config:
    """Hyperparameters of an ELMo; the defaults are those of the published model."""

    vocab: int
    width: int = 512  # of a word's vector in one direction
    hidden: int = 4096  # units of an LSTM, before its projection to `width`
    layers: int = 2
    char_dim: int = 16  # width of a character embedding
    filters: tuple[int, ...] = (32, 32, 64, 128, 256, 512, 1024)  # of width 1, 2, 3, ...
    highway_layers: int = field(2, low=0)
    max_word_length: int = 50  # bytes of a word with begin and end; the rest is cut off
    dropout: float = field(0.1, low=0, below=1)


# Original, medium and small are the authors' (93.6, 28.0 and 13.6 million parameters without the head; remembered, not
# checked at the source); tiny is for a laptop.
SIZES: dict[str, dict[str, Any]] = {
    "original": {},
    "medium": {"width": 256, "hidden": 2048, "highway_layers": 1},
    "small": {"width": 128, "hidden": 1024, "highway_layers": 1},
    "tiny": {"width": 96, "hidden": 192, "highway_layers": 1, "filters": (16, 16, 32, 64, 64), "max_word_length": 24},
}


class ELMo(ModelContract):
    """Words by their characters to the vectors of all layers, or to the loss of both language models."""

    forward_methods = ("layer_outputs",)

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config = config
        self.char_cnn = CharCNN(config)
        self.forward_lstms = nn.ModuleList(_lstm(config) for _ in range(config.layers))
        self.backward_lstms = nn.ModuleList(_lstm(config) for _ in range(config.layers))
        self.drop = nn.Dropout(config.dropout)
        self.head = nn.Linear(config.width, config.vocab, bias=False)
        nn.init.normal_(self.head.weight, std=config.width**-0.5)

    def forward(
        self,
        spelled: Int[Tensor, "U L"],
        words: Int[Tensor, "B N"],
        lengths: Int[Tensor, " B"] | None = None,
        targets: Int[Tensor, "B N"] | None = None,
        loss: Loss | None = None,
    ) -> Float[Tensor, "..."]:
        """Return the layers J B N 2C of sentences, whose words index rows of `spelled`; with `loss`, its value.

        A sentence begins with <s> and ends with </s>: forwards, every position predicts the next word, backwards the
        previous one. `targets` are vocabulary ids, -100 where nothing is predicted.
        """
        both = self.layer_outputs(spelled, words, lengths)
        if loss is None or targets is None:
            return torch.cat(both, -1)
        forth, back = (self.drop(layers[-1]) for layers in both)
        after, before = (
            targets[:, 1:],
            targets[:, :-1].where(targets[:, 1:] >= 0, targets[:, 1:]),
        )  # padding predicts nothing
        return loss(torch.cat([forth[:, :-1], back[:, 1:]], 1), self.head.weight, torch.cat([after, before], 1))

    def layer_outputs(
        self, spelled: Int[Tensor, "U L"], words: Int[Tensor, "B N"], lengths: Int[Tensor, " B"] | None = None
    ) -> tuple[Float[Tensor, "J B N C"], Float[Tensor, "J B N C"]]:
        """Return the layers of each direction, from the word vectors up; zeros in padding."""
        x = self.char_cnn(spelled)[words]
        turn = reverse_index(x.shape[1], lengths, x.device) if lengths is not None else None
        forth, back = self._run_layers(self.forward_lstms, x), self._run_layers(self.backward_lstms, _reverse(x, turn))
        back = _reverse(back, turn)
        if lengths is None:
            return forth, back
        real = (torch.arange(x.shape[1], device=x.device) < lengths[:, None])[..., None]
        return forth * real, back * real

    def _run_layers(self, networks: Iterable[nn.Module], x: Tensor) -> Float[Tensor, "J B N C"]:
        """Run one direction, layer by layer."""
        layers = [x]
        for depth, network in enumerate(networks):
            out = run_rnn(network, self.drop(x))
            x = x + out if depth else out
            layers.append(x)
        return torch.stack(layers)


class CharCNN(nn.Module):
    """Vectors of words from their characters, by convolution and max-pooling."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        total = sum(config.filters)
        self.embed = nn.Embedding(BYTES + 5, config.char_dim, padding_idx=PAD)
        self.filters = nn.ModuleList(nn.Conv1d(config.char_dim, n, i + 1) for i, n in enumerate(config.filters))
        self.highways = nn.ModuleList(nn.Linear(total, 2 * total) for _ in range(config.highway_layers))
        self.project = nn.Linear(total, config.width)
        for highway in self.highways:
            assert isinstance(highway, nn.Linear)
            nn.init.constant_(highway.bias[total:], -2.0)  # initially the identity

    def forward(self, spelled: Int[Tensor, "U L"]) -> Float[Tensor, "U C"]:
        """Convolve, pool, apply the highway layers, project."""
        x = self.embed(spelled).mT
        x = torch.cat([torch.relu(f(x).amax(-1)) for f in self.filters], -1)
        for highway in self.highways:
            new, gate = highway(x).chunk(2, -1)
            x = x + torch.sigmoid(gate) * (torch.relu(new) - x)
        return self.project(x)


class ScalarMix(nn.Module):
    """The learned mix of layers, γ Σ_j softmax(s)_j h_j."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(layers))
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, layers: Float[Tensor, "J *B"]) -> Float[Tensor, "*B"]:
        return self.scale * torch.tensordot(self.scores.softmax(0), layers, 1)


def words_to_char_ids(words: Sequence[str], config: Config) -> Int[Tensor, "U L"]:
    """Return the bytes of words as ids; "<s>" and "</s>" have ids of their own.

    Words are padded by the widest filter: then every filter sees pure padding at some place of every word, and the
    vector of a word does not depend on the others.
    """
    rows = [
        [BEGIN, *_SPECIAL_WORDS.get(word, word.encode("utf-8", "replace"))[: config.max_word_length - 2], END]
        for word in words
    ]
    width = max(map(len, rows), default=2) + len(config.filters)
    return torch.tensor([row + [PAD] * (width - len(row)) for row in rows]).reshape(len(rows), width)


_SPECIAL_WORDS: dict[str, Any] = {"<s>": [BOS], "</s>": [EOS]}


def _lstm(config: Config) -> nn.LSTM:
    hidden, projected = config.hidden, config.width if config.width < config.hidden else 0
    if hidden < config.width:
        raise RegardError(f"hidden must be at least width ({config.width}), got {hidden}")
    made = nn.LSTM(config.width, hidden, batch_first=True, proj_size=projected)
    with torch.no_grad():
        for name, weight in made.named_parameters():
            if "bias" in name:
                weight.zero_()
                if "bias_ih" in name:
                    weight[hidden : 2 * hidden] = 1.0  # forget gate
            else:
                nn.init.xavier_uniform_(weight)
    return made


def _reverse(x: Tensor, turn: Tensor | None) -> Tensor:
    """Reverse each sentence within its own length."""
    if turn is None:
        return x.flip(-2)
    return x.gather(-2, turn[..., None].expand(*x.shape[:-3], *turn.shape, x.shape[-1]))
