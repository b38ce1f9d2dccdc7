"""MemN2N: several hops of softmax attention over the sentences of a story, trained from answers alone.

    memory     m_i = Σ_j l_j ⊙ A x_ij + T_A(i)          c_i = Σ_j l_j ⊙ C x_ij + T_C(i)
    one hop    p = softmax(m u)      o = Σ_i p_i c_i      u <- u + o            O(S D) a hop, beside O(S W D) to embed
    answer     W u                                        u begins as the question, Σ_j l_j ⊙ B q_j

A hop is attention with scale 1: the question is the query, A makes the keys and C the values. l is the position
encoding, l_kj = (1 - j/J) - (k/d)(1 - 2j/J), for word j of J and number k of d (both from 1): without it the words of a
sentence would be a bag. T is learned by age, that of the newest sentence first.

    tying        embeddings                                                    between hops
    adjacent     A of a hop is C of the hop before it, B = A_1, W = C_K        u + o
    layerwise    A and C are the same at every hop; B, W of their own          H u + o

`linear` leaves the softmax out; training that begins so finds better optima (linear start, a setting of the task).
`ages` replaces the ages of the sentences; gaps in them during training (random noise, a setting of the task) keep the
model from relying on exact ages. Padding and unknown words embed to zero. An answer is a class, and with adjacent tying
also a word.

The memory has `max_sentences` slots. With `empty_slots` the softmax is over all of them, as in the paper: a slot
without a sentence scores 0 and holds zeros, so that a hop may leave u as it is. Without, it is over the sentences.

Sukhbaatar, Szlam, Weston, Fergus: End-To-End Memory Networks. NeurIPS 2015. arXiv:1503.08895
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import nn

from regard.attention.masked_softmax import masked_softmax
from regard.attention.observed_weights import ObservedWeights
from regard.blocks.sentence_vectors import sentence_vectors
from regard.core.config import field
from regard.core.shapes import Bool, Float, Int, Tensor
from regard.core.validation import validate
from regard.models.contract import ModelContract
from regard.tokens.story_words import FIRST_ANSWER, check_answers


@dataclass(frozen=True)
class Config:
    """Hyperparameters; the defaults are those of the paper's joint training on bAbI."""

    vocab: int = 200  # word ids, those of padding and unknown words included
    num_classes: int = 20  # answers; their word ids are 2, 3, ...
    width: int = 50
    hops: int = 3
    max_sentences: int = 50  # ages that have a vector; older sentences share the last
    tying: Literal["adjacent", "layerwise"] = "adjacent"
    empty_slots: bool = True  # the softmax is over max_sentences slots, not over the sentences alone
    position_scale: float = field(1.0, above=0)  # factor of l; 2 in the authors' code, whose weights are about 1


SIZES: dict[str, dict[str, Any]] = {"tiny": {"width": 20, "hops": 2}, "base": {}}


class MemN2N(ModelContract):
    """Stories and questions in, logits of the answers out."""

    forward_methods = ("read",)

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        check_answers(config.num_classes, config.vocab)
        self.config, c = config, config
        tables = c.hops + 1 if c.tying == "adjacent" else 2  # A_1, C_1 = A_2, ... or A, C
        self.words = nn.Parameter(0.1 * torch.randn(c.vocab, tables, c.width))
        self.ages = nn.Parameter(0.1 * torch.randn(c.max_sentences, tables, c.width))
        self.hops = nn.ModuleList([Hop() for _ in range(c.hops)])
        if c.tying == "layerwise":
            self.questions = nn.Parameter(0.1 * torch.randn(c.vocab, 1, c.width))
            self.between = nn.Linear(c.width, c.width, bias=False)
            self.head = nn.Linear(c.width, c.num_classes, bias=False)

    def forward(
        self,
        sentences: Int[Tensor, "B S W"],
        story_lengths: Int[Tensor, " B"],
        questions: Int[Tensor, "B V"],
        ages: Int[Tensor, "B S"] | None = None,
        linear: bool | Bool[Tensor, ""] = False,
    ) -> Float[Tensor, "B K"]:
        """Return the logits of the answers; a story has `story_lengths` sentences, oldest first."""
        return self.read(sentences, story_lengths, questions, ages, linear)[0]

    def read(
        self,
        sentences: Int[Tensor, "B S W"],
        story_lengths: Int[Tensor, " B"],
        questions: Int[Tensor, "B V"],
        ages: Int[Tensor, "B S"] | None = None,
        linear: bool | Bool[Tensor, ""] = False,
    ) -> tuple[Float[Tensor, "B K"], Float[Tensor, "B hops S"]]:
        """Return the logits of the answers and the scores of the sentences at every hop, before the softmax."""
        c, adjacent = self.config, self.config.tying == "adjacent"
        place = torch.arange(sentences.shape[1], device=sentences.device)
        real = place < story_lengths[:, None]
        ages = story_lengths[:, None] - 1 - place if ages is None else ages
        ages = ages.clamp(0, c.max_sentences - 1)
        memory = sentence_vectors(sentences.flatten(0, 1), self.words, c.position_scale).unflatten(
            0, sentences.shape[:2]
        )
        memory = (memory + F.embedding(ages, self.ages.flatten(1)).view_as(memory)).unbind(2)
        u = sentence_vectors(questions, self.words if adjacent else self.questions, c.position_scale)[:, 0]
        empty = (c.max_sentences - story_lengths).clamp(min=0)[:, None] if c.empty_slots else None
        scores = []
        for number, hop in enumerate(self.hops):
            keys, values = memory[number : number + 2] if adjacent else memory
            read, score = hop(u, keys, values, real, linear, empty)
            u = (u if adjacent else self.between(u)) + read
            scores.append(score)
        answers = self.words[FIRST_ANSWER : FIRST_ANSWER + c.num_classes, -1] if adjacent else self.head.weight
        return F.linear(u, answers), torch.stack(scores, 1)


class Hop(nn.Module):
    """Softmax attention of one query, with scale 1, over the sentences of a story and the empty slots."""

    def __init__(self) -> None:
        super().__init__()
        self.observed = ObservedWeights("hop")

    def forward(
        self,
        u: Float[Tensor, "B D"],
        keys: Float[Tensor, "B S D"],
        values: Float[Tensor, "B S D"],
        real: Bool[Tensor, "B S"],
        linear: bool | Bool[Tensor, ""],
        empty: Int[Tensor, "B 1"] | None,
    ) -> tuple[Float[Tensor, "B D"], Float[Tensor, "B S"]]:
        """Return what was read, and the scores of the sentences."""
        scores = (keys * u[:, None]).sum(-1)  # on a CPU twice as fast as a batched product
        if isinstance(linear, Tensor):  # on a GPU, where reading it would wait for the device
            weights = torch.where(linear, scores * real, softmax_over_slots(scores, real, empty))
        else:
            weights = scores * real if linear else softmax_over_slots(scores, real, empty)
        weights = self.observed(weights[:, None, None])[:, 0, 0]
        return (weights[:, None] @ values)[:, 0], scores


def softmax_over_slots(
    scores: Float[Tensor, "B S"], real: Bool[Tensor, "B S"], empty: Int[Tensor, "B 1"] | None
) -> Float[Tensor, "B S"]:
    """Return the weights of the sentences; so many empty slots, if any are counted, score 0 each."""
    if empty is None:
        return masked_softmax(scores, real).to(scores.dtype)
    with_empty = torch.cat([scores, empty.to(scores.dtype).log()], 1)  # exp(log n) = n exp(0)
    return masked_softmax(with_empty, torch.cat([real, empty > 0], 1))[:, :-1].to(scores.dtype)
