"""DMN: episodes of gated reading over the facts of a story, each led by what the episodes before it found.

    facts       c_s: state of a GRU over all words of the story, at the end of sentence s
    question    q: last state of a GRU over its words
    gates       g_s = σ(W₂ tanh(W₁ z_s + b₁) + b₂)
                z_s = [c_s, m, q, c_s ⊙ q, c_s ⊙ m, |c_s - q|, |c_s - m|, c_s·W q, c_s·W m]
    episode     h_s = g_s GRU(c_s, h_s-1) + (1 - g_s) h_s-1      e = h_S            O(S D²) an episode
    memory      m <- GRU(e, m)                                   begins as q
    answer      one step of a GRU with the input [0, q] from the last memory, then a linear map

MemN2N sums the sentences by softmax weights; here the gates let a recurrent network read the facts in their order, and
a gate of zero leaves its state as it is. Supporting sentences may train the gates (a setting of the task).

What differs from the paper: an answer is one class, so that the answer module makes one step, from an empty word.

Kumar et al.: Ask Me Anything: Dynamic Memory Networks for Natural Language Processing. ICML 2016. arXiv:1506.07285
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from regard.attention.observed_weights import ObservedWeights
from regard.blocks.rnn import GRUCell
from regard.blocks.sentence_vectors import move_padding_last
from regard.core.config import field
from regard.core.shapes import Bool, Float, Int, Tensor
from regard.core.validation import validate
from regard.models.contract import ModelContract
from regard.tokens.story_words import PAD, check_answers


@dataclass(frozen=True)
class Config:
    """Hyperparameters."""

    vocab: int = 200  # word ids, those of padding and unknown words included
    num_classes: int = 20  # answers
    width: int = 80  # of word vectors and of all states
    hops: int = 3  # episodes
    max_sentences: int = 50  # of the data; the model itself has no limit
    dropout: float = field(0.0, low=0, below=1)  # of word vectors


SIZES: dict[str, dict[str, Any]] = {"tiny": {"width": 16, "hops": 2}, "base": {}}


class DMN(ModelContract):
    """Stories and questions in, logits of the answers out."""

    forward_methods = ("read",)

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        check_answers(config.num_classes, config.vocab)
        self.config, width = config, config.width
        self.words = nn.Embedding(config.vocab, width, padding_idx=PAD)
        self.input = nn.GRU(width, width, batch_first=True)
        self.question = nn.GRU(width, width, batch_first=True)
        self.episode = Episode(width)
        self.hops = nn.ModuleList([Gate(self.episode) for _ in range(config.hops)])
        self.memory = nn.GRUCell(width, width)
        self.answer = nn.GRUCell(config.num_classes + width, width)
        self.head = nn.Linear(width, config.num_classes, bias=False)

    def forward(
        self, sentences: Int[Tensor, "B S W"], story_lengths: Int[Tensor, " B"], questions: Int[Tensor, "B V"]
    ) -> Float[Tensor, "B K"]:
        """Return the logits of the answers; a story has `story_lengths` sentences, oldest first."""
        return self.read(sentences, story_lengths, questions)[0]

    def read(
        self, sentences: Int[Tensor, "B S W"], story_lengths: Int[Tensor, " B"], questions: Int[Tensor, "B V"]
    ) -> tuple[Float[Tensor, "B K"], Float[Tensor, "B hops S"]]:
        """Return the logits of the answers and the logits of the gates of every episode."""
        real = torch.arange(sentences.shape[1], device=sentences.device) < story_lengths[:, None]
        facts = self._facts(sentences * real[..., None])
        q = self._states(self.question, questions, (questions != PAD).sum(1, keepdim=True))[:, 0]
        asked, inputs = self.episode.prepare(facts, q)
        m, scores = q, []
        for hop in self.hops:
            found, score = hop(facts, asked, inputs, m, real)
            m = self.memory(found, m)
            scores.append(score)
        begin = q.new_zeros(q.shape[0], self.config.num_classes)
        return self.head(self.answer(torch.cat([begin, q], 1), m)), torch.stack(scores, 1)

    def _facts(self, sentences: Int[Tensor, "B S W"]) -> Float[Tensor, "B S D"]:
        """Return the state at the end of every sentence, of one GRU over all words of a story."""
        ends = (sentences != PAD).sum(2).cumsum(1)
        return self._states(self.input, move_padding_last(sentences.flatten(1)), ends)

    def _states(self, gru: nn.GRU, words: Int[Tensor, "B N"], ends: Int[Tensor, "B S"]) -> Float[Tensor, "B S D"]:
        """Return the states of a GRU after so many words; after none, zeros."""
        x = F.dropout(self.words(words), self.config.dropout, self.training)
        states = F.pad(gru(x)[0], (0, 0, 1, 0))
        return states.gather(1, ends[..., None].expand(-1, -1, states.shape[2]))


class Episode(nn.Module):
    """The parts that all episodes share: the network of the gates and the GRU over the facts."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.bilinear = nn.Linear(width, width, bias=False)
        self.hidden = nn.Linear(7 * width + 2, width)
        self.score = nn.Linear(width, 1)
        self.gru = nn.GRUCell(width, width)

    def prepare(
        self, facts: Float[Tensor, "B S D"], q: Float[Tensor, "B D"]
    ) -> tuple[Float[Tensor, "B S D"], Float[Tensor, "B S gates"]]:
        """Return what all episodes need of the facts: the part of W₁ z + b₁ without m, and the inputs of the GRU."""
        of_fact, of_q, _ = self._columns()
        asked = F.linear(facts, of_fact, self.hidden.bias) + self._compare(facts, q, *of_q)
        return asked, F.linear(facts, self.gru.weight_ih, self.gru.bias_ih)

    def scores(
        self, facts: Float[Tensor, "B S D"], asked: Float[Tensor, "B S D"], m: Float[Tensor, "B D"]
    ) -> Float[Tensor, "B S"]:
        """Return the logits of the gates; `asked` is from `prepare`."""
        return self.score((asked + self._compare(facts, m, *self._columns()[2])).tanh()).squeeze(-1)

    def _columns(self) -> tuple[Tensor, tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Return W₁ by what it is multiplied with: c; q and its comparison with c; m and its comparison with c."""
        width = self.gru.hidden_size
        c, m, q, *both, by_q, by_m = self.hidden.weight.split([*[width] * 7, 1, 1], 1)
        return c, (q, torch.cat([*both[::2], by_q], 1)), (m, torch.cat([*both[1::2], by_m], 1))

    def _compare(
        self, facts: Float[Tensor, "B S D"], x: Float[Tensor, "B D"], of_x: Tensor, of_both: Tensor
    ) -> Float[Tensor, "B S D"]:
        """Return the part of W₁ z from x, c ⊙ x, |c - x| and c·W x, where x is m or q."""
        row = x[:, None]
        product = (facts * self.bilinear(row)).sum(-1, keepdim=True)
        both = torch.cat([facts * row, (facts - row).abs(), product], -1)
        return F.linear(both, of_both) + F.linear(row, of_x)

    def read(self, inputs: Float[Tensor, "B S gates"], gates: Float[Tensor, "B S"]) -> Float[Tensor, "B D"]:
        """Return the last state of the gated GRU over the facts."""
        h = inputs.new_zeros(inputs.shape[0], self.gru.hidden_size)
        for x, gate in zip(inputs.unbind(1), gates.to(inputs.dtype)[..., None].unbind(1), strict=True):
            own = F.linear(h, self.gru.weight_hh, self.gru.bias_hh)
            h = torch.lerp(h, GRUCell.next_state(x, own, (h,))[0], gate)
        return h


class Gate(nn.Module):
    """One episode: its gates, and what they let in."""

    def __init__(self, episode: Episode) -> None:
        super().__init__()
        self.shared = (episode,)  # in a tuple: its parameters belong to the model
        self.observed = ObservedWeights("hop")

    def forward(
        self,
        facts: Float[Tensor, "B S D"],
        asked: Float[Tensor, "B S D"],
        inputs: Float[Tensor, "B S gates"],
        m: Float[Tensor, "B D"],
        real: Bool[Tensor, "B S"],
    ) -> tuple[Float[Tensor, "B D"], Float[Tensor, "B S"]]:
        """Return what was read, and the logits of the gates; `asked` and `inputs` are from `Episode.prepare`."""
        (episode,) = self.shared
        scores = episode.scores(facts, asked, m)
        gates = self.observed((scores.sigmoid() * real)[:, None, None])[:, 0, 0]
        return episode.read(inputs, gates), scores
