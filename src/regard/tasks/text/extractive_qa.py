"""Answers that stand in the text: where does the answer to a question begin, and where does it end.

    objective    cross-entropy of the first and of the last token of the answer over the places of the text, added up
    metric       exact match and F1 of words, as SQuAD counts them (metrics.classification); loss (nats per question, both ends)
    decoding     the begin b and end e, b <= e, of the text with the largest sum of scores
    predict      `QuestionAnswerer`: texts and questions in, answers out (tasks.text.question_answerer)

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
from regard.data.text.question_answering import QABatch, QuestionAnswering
from regard.metrics.classification import exact_match, word_f1
from regard.tasks.base import load_tokenizer
from regard.tasks.text.encoder_base import BATCH_TOKENS, EncoderTask, evaluation_data
from regard.tasks.text.question_answerer import QuestionAnswerer

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class Config:
    """How answers are found."""

    max_answer_tokens: int = 30  # tokens of an answer at most

    def build(self, data: QuestionAnswering, seed: int = 0, folder: Path | None = None) -> ExtractiveQA:
        """The task on these data; with the vocabulary in the folder where one is given, else one trained on them."""
        return ExtractiveQA(self, data, load_tokenizer(folder), seed)

    @staticmethod
    def eval_data(corpus: str, saved: Mapping[str, Any], **changes: Any) -> QuestionAnswering:
        """The data of a name to measure a saved model on, whose config.json this is."""
        return evaluation_data(QuestionAnswering, corpus, saved, changes)


class ExtractiveQA(EncoderTask):
    """What the training loop trains: the loss, the batches it is measured on, and how good the model is."""

    headline = "f1"
    unit = "questions"
    name = "extractive_qa"

    def __init__(self, config: Config, data: QuestionAnswering, text: Tokenizer | None = None, seed: int = 0) -> None:
        super().__init__(data, text, seed)
        self.config = config
        self.objective: Callable[..., Tensor] = _start_end_loss

    def head(self) -> str:
        """Two scores at every place."""
        return "span"

    def count(self, batch: QABatch) -> int:
        """The number of questions."""
        return len(batch.start_positions)

    def loss(
        self, model: nn.Module, batch: QABatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """Cross-entropy of both ends, summed over the questions."""
        total = self.objective(
            model(batch.tokens, batch.segments, batch.lengths), batch.start_positions, batch.end_positions
        )
        return total, {"loss": total.detach()}

    def describe(self) -> dict[str, Any]:
        """The task as plain values, to stand beside a saved model."""
        return {
            "name": self.name,
            "max_length": self.data.max_length,
            "max_answer_tokens": self.config.max_answer_tokens,
        }

    def card(self) -> str:
        """One line on the data, for the run's first line."""
        return f"{self.data.corpus}, {len(self.dataset('train')):,} questions, vocabulary {self.text.size:,} {self.text.kind}"

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """How good a model is on a part of the data. Keys: loss (nats per question, in the window that holds the answer),
        exact_match and f1 (0 to 1, of answers looked for in the whole text), questions."""
        part, device = self.dataset(split), next(model.parameters()).device
        model.eval()
        nll = torch.zeros((), dtype=torch.float64, device=device)
        for batch in part.eval_batches(BATCH_TOKENS):
            batch = batch.to(device)
            nll += _start_end_loss(
                model(batch.tokens, batch.segments, batch.lengths), batch.start_positions, batch.end_positions
            )
        answer = QuestionAnswerer(model, self.text, self.data.max_length, self.config.max_answer_tokens)
        said = answer([q.context for q in part.questions], [q.question for q in part.questions])
        both = list(zip([each.text for each in said], [q.answers for q in part.questions], strict=True))
        many = len(part)
        scores = {"exact_match": sum(exact_match(a, t) for a, t in both) / many}
        scores["f1"] = sum(word_f1(a, t) for a, t in both) / many
        return {"loss": float(nll) / many, **scores, "questions": many}


def _start_end_loss(scores: Float[Tensor, "B N 2"], begin: Tensor, end: Tensor) -> Float[Tensor, ""]:
    first, last = scores.float().unbind(-1)
    return F.cross_entropy(first, begin, reduction="sum") + F.cross_entropy(last, end, reduction="sum")
