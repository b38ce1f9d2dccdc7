"""Heads of text encoders: what is predicted from the vectors of all tokens and one vector of the whole text.

    masked         W norm(gelu(V x_n)) + b     the token at each position; W is the embedding table
    pretraining    the same, and W pooled      whether the second text follows the first
    classes(3)     W drop(pooled)              the class of a text, or of a pair of texts;
                                               with pool='mean' of the mean over the tokens instead of `pooled`
    tags(23)       W drop(x_n)                 the class of each token
    span           w · x_n, twice              where an answer begins and ends

Devlin, Chang, Lee, Toutanova: BERT. NAACL 2019. arXiv:1810.04805
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import nn

from regard.attention.mask import PaddingMask
from regard.core.errors import Unsupported
from regard.core.shapes import Float, Int, Tensor
from regard.core.spec import Registry
from regard.core.validation import Fraction

Loss = Callable[..., Tensor]  # (hidden states B M C, weight V C, target tokens B M, bias=V) -> a sum

HEADS: Registry = {
    "pretraining": ("regard.blocks.text_heads", "PretrainingHead"),
    "next_sentence": ("regard.blocks.text_heads", "NextSentenceHead"),
    "masked": ("regard.blocks.text_heads", "MaskedLMHead"),
    "classes": ("regard.blocks.text_heads", "SequenceClassificationHead"),
    "tags": ("regard.blocks.text_heads", "TokenClassificationHead"),
    "span": ("regard.blocks.text_heads", "SpanHead"),
}
TASK_HEADS: Registry = {name: HEADS[name] for name in ("classes", "tags", "span")}  # that predict no tokens


class Head(nn.Module):
    """Base class of heads, which are called as ``head(x, pooled, lengths, at, targets, loss)``.

    `pooled` B C is one vector of the whole text. With `at`, tokens are predicted at these positions only: of 512
    positions some 77 are masked, and the vocabulary is the widest product of the model. With `loss` (see
    losses.fused_linear_cross_entropy), its value is returned instead of the logits, which are then never materialised.
    """

    uses_pooled: bool = False  # whether it reads `pooled`

    def forward(
        self,
        x: Float[Tensor, "B N C"],
        pooled: Float[Tensor, "B C"] | None = None,
        lengths: Int[Tensor, " B"] | None = None,
        at: Int[Tensor, "B M"] | None = None,
        targets: Any = None,
        loss: Loss | None = None,
    ) -> Any:
        """Return what `predict` returns; a head that predicts tokens takes `at`, `targets` and `loss` as well."""
        if at is not None or loss is not None:
            raise Unsupported(
                f"{type(self).__name__} predicts no tokens and takes neither `at` nor `loss`; leave them out"
            )
        return self.predict(x, pooled, lengths)

    def predict(self, x: Tensor, pooled: Tensor | None, lengths: Tensor | None) -> Tensor:
        """Return the logits; written by heads that predict no tokens."""
        raise NotImplementedError


class MaskedLMHead(Head):
    """Predict the token at a position: a linear map, an activation, a norm, then the embedding table and a bias."""

    def __init__(self, width: int, vocab: int, norm: nn.Module, activation: Callable[[Tensor], Tensor] = F.gelu):
        super().__init__()
        self.transform = nn.Linear(width, width)
        self.activation = activation
        self.norm = norm
        self.words = nn.Linear(width, vocab)  # its matrix is tied to the embedding by the model

    def forward(
        self,
        x: Float[Tensor, "B N C"],
        pooled: Float[Tensor, "B C"] | None = None,
        lengths: Int[Tensor, " B"] | None = None,
        at: Int[Tensor, "B M"] | None = None,
        targets: Int[Tensor, "B M"] | None = None,
        loss: Loss | None = None,
    ) -> Any:
        """Return logits B M V at the positions `at` (None: all), or the loss of these targets."""
        if at is not None:
            x = x.gather(1, at.long()[..., None].expand(-1, -1, x.shape[-1]))
        x = self.norm(self.activation(self.transform(x)))
        if loss is None:
            return self.words(x)
        assert targets is not None
        return loss(x, self.words.weight, targets, bias=self.words.bias)


class PretrainingHead(MaskedLMHead):
    """Predict tokens, and whether the second text follows the first: logits of yes (0) and no (1)."""

    uses_pooled = True

    def __init__(self, width: int, vocab: int, norm: nn.Module, activation: Callable[[Tensor], Tensor] = F.gelu):
        super().__init__(width, vocab, norm, activation)
        self.next = nn.Linear(width, 2)

    def forward(
        self,
        x: Float[Tensor, "B N C"],
        pooled: Float[Tensor, "B C"] | None = None,
        lengths: Int[Tensor, " B"] | None = None,
        at: Int[Tensor, "B M"] | None = None,
        targets: Int[Tensor, "B M"] | None = None,
        loss: Loss | None = None,
    ) -> Any:
        """Return logits B M V of tokens (or their loss), and B 2 of the next sentence."""
        return super().forward(x, None, lengths, at, targets, loss), self.next(pooled)


class NextSentenceHead(Head):
    """Whether the second text follows the first: logits of yes (0) and no (1)."""

    uses_pooled = True

    def __init__(self, width: int) -> None:
        super().__init__()
        self.next = nn.Linear(width, 2)

    def predict(self, x: Tensor, pooled: Tensor | None, lengths: Tensor | None) -> Float[Tensor, "B 2"]:
        return self.next(pooled)


class SequenceClassificationHead(Head):
    """Classify a text, or a pair of texts, by the pooled [CLS] vector or by the mean of all tokens."""

    def __init__(
        self, classes: int, width: int, dropout: Fraction = 0.0, pool: Literal["token", "mean"] = "token"
    ) -> None:
        super().__init__()
        self.uses_pooled = pool == "token"
        self.drop = nn.Dropout(dropout)
        self.out = nn.Linear(width, classes)

    def predict(self, x: Tensor, pooled: Tensor | None, lengths: Tensor | None) -> Float[Tensor, "B K"]:
        return self.out(self.drop(pooled if self.uses_pooled else _mean(x, lengths)))


class TokenClassificationHead(Head):
    """Classify each token."""

    def __init__(self, tags: int, width: int, dropout: Fraction = 0.0) -> None:
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.out = nn.Linear(width, tags)

    def predict(self, x: Tensor, pooled: Tensor | None, lengths: Tensor | None) -> Float[Tensor, "B N K"]:
        return self.out(self.drop(x))


class SpanHead(Head):
    """Predict where an answer begins and ends."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.out = nn.Linear(width, 2)

    def predict(self, x: Tensor, pooled: Tensor | None, lengths: Tensor | None) -> Float[Tensor, "B N 2"]:
        """Return scores of begin and end at every position; -inf at padding, so that a softmax leaves it out."""
        scores = self.out(x)
        if lengths is None:
            return scores
        return torch.where(PaddingMask(lengths).real(x.shape[1])[..., None], scores, float("-inf"))


def _mean(x: Float[Tensor, "B N C"], lengths: Int[Tensor, " B"] | None) -> Float[Tensor, "B C"]:
    """Return the mean over the tokens of each text, without padding."""
    if lengths is None:
        return x.mean(1)
    real = PaddingMask(lengths).real(x.shape[1])[..., None]
    return torch.where(real, x, 0).sum(1) / lengths[:, None].clamp(min=1)
