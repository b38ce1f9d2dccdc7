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

import warnings
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable

from regard.core.lazy_dynamo import disable_compile
from regard.core.shapes import Bool, Float, Int, Tensor
from regard.core.spec import Registry, build_part
from regard.core.validation import validate
from regard.models.contract import ModelContract

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


class Word2Vec(ModelContract):
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
            inputs, targets = self.algorithm(self.embed.weight, centres, contexts)
            real = targets != NO_WORD
            weight = torch.cat([real.to(inputs.dtype), -_negative_counts(targets, real, negatives).to(inputs.dtype)], 1)
            used = weight != 0
            scores = pair_scores(inputs, self.output.weight, Pairs.from_mask(torch.cat([targets, negatives], 1), used))
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


def _negative_counts(targets: Tensor, real: Tensor, negatives: Tensor) -> Int[Tensor, "B K"]:
    """Return the weight of each negative: the number of targets that differ from it."""
    same = torch.zeros_like(negatives)
    for each in targets.unbind(1):  # W small comparisons instead of one of B W K
        same += each[:, None] == negatives
    return real.sum(1, keepdim=True) - same


# -- products of chosen pairs ------------------------------------------------------------------------------------------


CHUNK = 1024  # pairs gathered at a time without MKL: they stay in the cache


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs (row, word), ordered by row; row b has those from offsets[b] to offsets[b + 1].

        scores     s_p = h[row_p] · table[word_p]                     P of the B V numbers of h tableᵀ
        gradients  dh = A(g) table        dtable = A(g)ᵀ h            A: sparse, B × V, with g_p at (row_p, word_p)
        means      m_b = Σ_p a_p table[word_p] over the pairs of row b, with a_p = 1 / (pairs of the row)

    As gather, multiply, sum, both rows of every pair would be copied, in the backward pass again. Here A is multiplied
    as a sparse matrix (on a CPU by MKL's sampled product and embedding bags), with one number stored for each pair. The
    gradient of a table is dense, with zeros in the rows that no pair names.
    """

    offsets: Int[Tensor, " rows_and_one"]
    rows: Int[Tensor, " P"]
    words: Int[Tensor, " P"]

    @classmethod
    def from_mask(cls, words: Int[Tensor, "B K"], real: Bool[Tensor, "B K"]) -> Pairs:
        """Return the pairs of every row with its real words."""
        offsets = F.pad(real.sum(1).cumsum(0), (1, 0))
        return cls(offsets, real.nonzero(as_tuple=True)[0], words[real])

    def __len__(self) -> int:
        return len(self.offsets) - 1


def pair_scores(h: Float[Tensor, "B C"], table: Float[Tensor, "V C"], pairs: Pairs) -> Float[Tensor, " P"]:
    """Return the score of every pair."""
    found: Tensor = _PairScores.apply(h, table, pairs)
    return found


def pair_means(table: Float[Tensor, "V C"], pairs: Pairs) -> Float[Tensor, "B C"]:
    """Return the mean of the words of each row; zeros for a row without pairs."""
    found: Tensor = _PairMeans.apply(table, pairs)
    return found


class _PairScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, table: Tensor, pairs: Pairs) -> Tensor:
        ctx.save_for_backward(h, table)
        ctx.pairs = pairs
        return _scores(h, table, pairs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> Any:
        h, table = ctx.saved_tensors
        dh = _sum_by_row(table, ctx.pairs, g) if ctx.needs_input_grad[0] else None
        return dh, _sum_by_word(h, ctx.pairs, g, len(table)) if ctx.needs_input_grad[1] else None, None


class _PairMeans(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, pairs: Pairs) -> Tensor:
        share = (1 / (pairs.offsets[1:] - pairs.offsets[:-1]).clamp(min=1).to(table.dtype))[pairs.rows]
        ctx.pairs, ctx.share, ctx.size = pairs, share, len(table)
        return _sum_by_row(table, pairs, share)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d: Tensor) -> Any:
        return _sum_by_word(d, ctx.pairs, ctx.share, ctx.size), None


def _scores(h: Tensor, table: Tensor, pairs: Pairs) -> Tensor:
    if h.device.type == "cpu" and torch.backends.mkl.is_available() and len(pairs.words):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # sparse CSR tensors are in beta
            pattern = torch.sparse_csr_tensor(
                pairs.offsets, pairs.words, h.new_zeros(len(pairs.words)), (len(pairs), len(table)),
                check_invariants=False,
            )  # fmt: skip
            found: Tensor = torch.sparse.sampled_addmm(pattern, h, table.mT, beta=0.0).values()
        return found
    some = CHUNK if h.device.type == "cpu" else max(1, len(pairs.words))
    parts = zip(pairs.rows.split(some), pairs.words.split(some), strict=True)
    return torch.cat([(h[rows] * table[words]).sum(-1) for rows, words in parts])


def _sum_by_row(table: Tensor, pairs: Pairs, g: Tensor) -> Tensor:
    """A(g) table: for every row, the weighted sum of its words."""
    return F.embedding_bag(pairs.words, table, pairs.offsets[:-1], mode="sum", per_sample_weights=g)


def _sum_by_word(h: Tensor, pairs: Pairs, g: Tensor, size: int) -> Tensor:
    """A(g)ᵀ h: for every word, the weighted sum of its rows."""
    words, order = torch.sort(pairs.words, stable=True)
    begins = torch.searchsorted(words, torch.arange(size, device=words.device))
    return F.embedding_bag(pairs.rows[order], h, begins, mode="sum", per_sample_weights=g[order])
