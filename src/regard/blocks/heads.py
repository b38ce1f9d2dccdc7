"""Heads of an encoder: what is asked of the vectors of a text.

    masked         W norm(gelu(V x_n)) + b     which word stands at a place (W is the table the words came from)
    pretraining    the same, and W pooled      does the second text follow the first
    classes(3)     W drop(pooled)              what kind of text it is, or how two texts relate
    tags(23)       W drop(x_n)                 what kind of word each one is
    span           w · x_n, twice              where in the text an answer begins and where it ends

All have one call, ``head(x, pooled, lengths, at, targets, loss)``. `pooled` is B C, one vector of the whole text;
`pools` says whether a head reads it. With `at` words are asked for at these places only: of a text's 512 places some 77
are masked, and the vocabulary is the widest product of the model. With a `training_loss` (tasks.fused_linear_cross_entropy) its value for these
targets comes instead of the logits, so that it alone knows whether there ever are as many.

Devlin, Chang, Lee, Toutanova: BERT. NAACL 2019. arXiv:1810.04805
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import nn

from regard.attention.mask import PaddingMask
from regard.core.errors import Unsupported
from regard.core.shapes import Float, Int, Tensor
from regard.core.validation import Fraction

Loss = Callable[..., Tensor]  # (vectors B M C, the matrix V C, wanted words B M, bias=V) -> a sum


class Head(nn.Module):
    """What all heads have in common."""

    uses_pooled: ClassVar[bool] = False  # reads one vector of the whole text

    def refuse_lm_arguments(self, at: Tensor | None, loss: Loss | None) -> None:
        """Refuse what only a head over words can do."""
        if at is not None or loss is not None:
            raise Unsupported(f"a {type(self).__name__} predicts no words: leave `at` and `training_loss` away")


class MaskedLMHead(Head):
    """Which word stands at a place: a linear map, an activation, a norm, then the table of words and a bias."""

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
        """Logits B M V at the places asked for, or the loss of these targets."""
        if at is not None:
            x = x.gather(1, at.long()[..., None].expand(-1, -1, x.shape[-1]))
        x = self.norm(self.activation(self.transform(x)))
        if loss is None:
            return self.words(x)
        assert targets is not None
        return loss(x, self.words.weight, targets, bias=self.words.bias)


class PretrainingHead(MaskedLMHead):
    """Words, and whether the second text follows the first: logits of yes (0) and no (1)."""

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
        """Logits B M V of words (or their loss), and B 2 of what follows."""
        return super().forward(x, None, lengths, at, targets, loss), self.next(pooled)


class SequenceClassificationHead(Head):
    """What kind of text it is; for a pair of texts, how they relate."""

    uses_pooled = True

    def __init__(self, classes: int, width: int, dropout: Fraction = 0.0) -> None:
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.out = nn.Linear(width, classes)

    def forward(
        self,
        x: Float[Tensor, "B N C"],
        pooled: Float[Tensor, "B C"] | None = None,
        lengths: Int[Tensor, " B"] | None = None,
        at: Int[Tensor, "B M"] | None = None,
        targets: Any = None,
        loss: Loss | None = None,
    ) -> Float[Tensor, "B K"]:
        """Logits of the classes."""
        self.refuse_lm_arguments(at, loss)
        return self.out(self.drop(pooled))


class TokenClassificationHead(Head):
    """What kind of word each one is."""

    def __init__(self, tags: int, width: int, dropout: Fraction = 0.0) -> None:
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.out = nn.Linear(width, tags)

    def forward(
        self,
        x: Float[Tensor, "B N C"],
        pooled: Float[Tensor, "B C"] | None = None,
        lengths: Int[Tensor, " B"] | None = None,
        at: Int[Tensor, "B M"] | None = None,
        targets: Any = None,
        loss: Loss | None = None,
    ) -> Float[Tensor, "B N K"]:
        """Logits of the tags at every place."""
        self.refuse_lm_arguments(at, loss)
        return self.out(self.drop(x))


class SpanHead(Head):
    """Where an answer begins and where it ends."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.out = nn.Linear(width, 2)

    def forward(
        self,
        x: Float[Tensor, "B N C"],
        pooled: Float[Tensor, "B C"] | None = None,
        lengths: Int[Tensor, " B"] | None = None,
        at: Int[Tensor, "B M"] | None = None,
        targets: Any = None,
        loss: Loss | None = None,
    ) -> Float[Tensor, "B N 2"]:
        """Scores of begin and end at every place; -inf at padding, so that a softmax over places leaves it out."""
        self.refuse_lm_arguments(at, loss)
        scores = self.out(x)
        if lengths is None:
            return scores
        return torch.where(PaddingMask(lengths).real(x.shape[1])[..., None], scores, float("-inf"))
