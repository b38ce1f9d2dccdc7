"""word2vec: one vector a word, learned from the words near it.

    tokens      words; a table of input vectors and one of output vectors
    positions   none: a window is a bag of words
    skip-gram   a word predicts each word near it
    cbow        the mean of the words near it predicts the word
    head        negative sampling: distinguish the target from K words sampled by frequency^0.75

    -log σ(h · u_target) - Σ_k log σ(-h · u_k)        instead of        -log softmax(h Uᵀ)[target]

The cost of a word is 1 + K scores instead of V. Here the K negatives are shared by all targets of a window, each
weighted by the number of targets (other than itself): the same objective in expectation, with fewer products.

Mikolov, Chen, Corrado, Dean: Efficient Estimation of Word Representations in Vector Space. 2013. arXiv:1301.3781
Mikolov, Sutskever, Chen, Corrado, Dean: Distributed Representations of Words and Phrases. NeurIPS 2013. arXiv:1310.4546
Ji, Satish, Li, Dubey: Parallelizing Word2Vec in Shared and Distributed Memory (shared negatives). 2016.
arXiv:1604.04661
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from regard.blocks.sampled_matmul import Pairs, pair_means, pair_scores
from regard.core.lazy_dynamo import disable_compile
from regard.core.shapes import Float, Int, Tensor
from regard.core.spec import Registry, build_part
from regard.core.validation import validate

NO_WORD = -1  # padding of a window


@dataclass(frozen=True)
class Config:
    """Hyperparameters of a word2vec; the defaults are those of the authors' program but for the width."""

    vocab: int
    width: int = 128
    algorithm: str = "skipgram"  # skipgram or cbow


SIZES: dict[str, dict[str, Any]] = {
    "skipgram": {},
    "cbow": {"algorithm": "cbow"},
    "paper": {"width": 300},  # the published vectors, of three million words
    "tiny": {"width": 32},
}


class Word2Vec(nn.Module):
    """Words to vectors; windows to the loss of negative sampling."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config = config
        self.embed = nn.Embedding(config.vocab, config.width)
        self.output = nn.Embedding(config.vocab, config.width)
        self.algorithm = build_part(ALGORITHMS, config.algorithm, "word2vec algorithm")
        self.reset()

    def forward(
        self,
        centres: Int[Tensor, "*B"],
        contexts: Int[Tensor, "B W"] | None = None,
        negatives: Int[Tensor, "B K"] | None = None,
    ) -> Float[Tensor, "..."]:
        """Return the vectors of words or, with their contexts (-1 is padding) and negatives, the summed loss."""
        if contexts is None or negatives is None:
            return self.embed(centres)
        return self.loss(centres, contexts, negatives)

    @disable_compile  # the number of pairs varies
    def loss(
        self, centres: Int[Tensor, " B"], contexts: Int[Tensor, "B W"], negatives: Int[Tensor, "B K"]
    ) -> Float[Tensor, ""]:
        """Return the loss of negative sampling, summed over all targets."""
        with torch.autocast(centres.device.type, enabled=False):
            read, wanted = self.algorithm(self.embed.weight, centres, contexts)
            real = wanted != NO_WORD
            weight = torch.cat([real.to(read.dtype), -_negative_counts(wanted, real, negatives).to(read.dtype)], 1)
            used = weight != 0
            scores = pair_scores(read, self.output.weight, Pairs.from_mask(torch.cat([wanted, negatives], 1), used))
            weight = weight[used]  # 1 for a target, -n for a negative of n targets
            return -(weight.abs() * F.logsigmoid(weight.sign() * scores)).sum()

    @torch.no_grad()
    def reset(self) -> None:
        """Initialise the vectors as the authors: small; output vectors 0."""
        self.embed.weight.uniform_(-0.5, 0.5).div_(self.config.width)
        self.output.weight.zero_()


class SkipGram(nn.Module):
    """A word predicts each word near it."""

    def forward(
        self, table: Float[Tensor, "V C"], centres: Int[Tensor, " B"], contexts: Int[Tensor, "B W"]
    ) -> tuple[Float[Tensor, "B C"], Int[Tensor, "B W"]]:
        """Return the inputs and their targets."""
        return F.embedding(centres, table), contexts


class CBOW(nn.Module):
    """The mean of the words near it predicts a word; a word without context is not predicted."""

    def forward(
        self, table: Float[Tensor, "V C"], centres: Int[Tensor, " B"], contexts: Int[Tensor, "B W"]
    ) -> tuple[Float[Tensor, "B C"], Int[Tensor, "B 1"]]:
        """Return the inputs and their targets."""
        near = contexts != NO_WORD
        return pair_means(table, Pairs.from_mask(contexts, near)), torch.where(near.any(1), centres, NO_WORD)[:, None]


ALGORITHMS: Registry = {
    "skipgram": ("regard.models.word2vec", "SkipGram"),
    "cbow": ("regard.models.word2vec", "CBOW"),
}


def _negative_counts(wanted: Tensor, real: Tensor, negatives: Tensor) -> Int[Tensor, "B K"]:
    """Return the weight of each negative: the number of targets that differ from it."""
    same = torch.zeros_like(negatives)
    for each in wanted.unbind(1):  # W small comparisons instead of one of B W K
        same += each[:, None] == negatives
    return real.sum(1, keepdim=True) - same
