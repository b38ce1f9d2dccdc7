"""Answers that stand in the text: where does the answer to a question begin, and where does it end.

    objective    cross-entropy of the first and of the last token of the answer over the places of the text, added up
    metric       exact match and F1 of words, as SQuAD counts them (tasks.tally); loss (nats a question, both ends)
    decoding     the begin b and end e, b <= e, of the text with the largest sum of scores
    predict      `Answerer`: texts and questions in, answers out (tasks.answerer)

Devlin, Chang, Lee, Toutanova: BERT. NAACL 2019. arXiv:1810.04805, section 4.2
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import nn

from regard.core.shapes import Float, Tensor
from regard.data.questions import Asked, Questions
from regard.tasks.answerer import Answerer
from regard.tasks.parts import vocabulary
from regard.tasks.reading import TOKENS, Reading, measured_on
from regard.tasks.tally import exact_match, word_f1

if TYPE_CHECKING:
    from regard.tokens.text import Text


@dataclass(frozen=True)
class Config:
    """How answers are found."""

    longest: int = 30  # tokens of an answer at most

    def build(self, data: Questions, seed: int = 0, folder: Path | None = None) -> Spans:
        """The task on these data; with the vocabulary in the folder where one is given, else one trained on them."""
        return Spans(self, data, vocabulary(folder), seed)

    @staticmethod
    def measured(corpus: str, saved: Mapping[str, Any], **changes: Any) -> Questions:
        """The data of a name to measure a saved model on, whose config.json this is."""
        return measured_on(Questions, corpus, saved, changes)


class Spans(Reading):
    """What the training loop trains: the loss, the batches it is measured on, and how good the model is."""

    headline = "f1"
    unit = "questions"
    name = "span"

    def __init__(self, config: Config, data: Questions, text: Text | None = None, seed: int = 0) -> None:
        super().__init__(data, text, seed)
        self.config = config
        self.objective: Callable[..., Tensor] = _both_ends

    def head(self) -> str:
        """Two scores at every place."""
        return "span"

    def count(self, batch: Asked) -> int:
        """The number of questions."""
        return len(batch.begin)

    def loss(
        self, model: nn.Module, batch: Asked, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """Cross-entropy of both ends, summed over the questions."""
        total = self.objective(model(batch.tokens, batch.segments, batch.lengths), batch.begin, batch.end)
        return total, {"loss": total.detach()}

    def describe(self) -> dict[str, Any]:
        """The task as plain values, to stand beside a saved model."""
        return {"name": self.name, "longest": self.data.length, "words": self.config.longest}

    def card(self) -> str:
        """One line on the data, for the run's first line."""
        return (
            f"{self.data.corpus}, {len(self.part('train')):,} questions, vocabulary {self.text.size:,} {self.text.kind}"
        )

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """How good a model is on a part of the data. Keys: loss (nats a question, in the window that holds the answer),
        exact_match and f1 (0 to 1, of answers looked for in the whole text), questions."""
        part, device = self.part(split), next(model.parameters()).device
        model.eval()
        nll = torch.zeros((), dtype=torch.float64, device=device)
        for batch in part.in_order(TOKENS):
            batch = batch.to(device)
            nll += _both_ends(model(batch.tokens, batch.segments, batch.lengths), batch.begin, batch.end)
        answer = Answerer(model, self.text, self.data.length, self.config.longest)
        said = answer([q.context for q in part.questions], [q.question for q in part.questions])
        both = list(zip([each.text for each in said], [q.answers for q in part.questions], strict=True))
        many = len(part)
        scores = {"exact_match": sum(exact_match(a, t) for a, t in both) / many}
        scores["f1"] = sum(word_f1(a, t) for a, t in both) / many
        return {"loss": float(nll) / many, **scores, "questions": many}


def _both_ends(scores: Float[Tensor, "B N 2"], begin: Tensor, end: Tensor) -> Float[Tensor, ""]:
    first, last = scores.float().unbind(-1)
    return F.cross_entropy(first, begin, reduction="sum") + F.cross_entropy(last, end, reduction="sum")
