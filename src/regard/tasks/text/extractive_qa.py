"""Extractive question answering: where the answer to a question begins in a text, and where it ends.

    inputs       Text, Text: text and question
    output       Span
    loss         cross-entropy of the first and of the last token of the answer over the tokens of the text, added up
    metrics      exact match and F1 of words, as SQuAD counts them (metrics.classification); loss (nats per question)
    decoding     the begin b and end e, b <= e, of the text with the largest sum of logits

Devlin, Chang, Lee, Toutanova: BERT. NAACL 2019. arXiv:1810.04805, section 4.2
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import nn

from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor
from regard.core.trace import Trace
from regard.data.text.question_answering import ContextWindow, QABatch, QuestionAnswering, encode_windows
from regard.metrics.base import EXACT_MATCH, F1, loss_metric
from regard.metrics.classification import exact_match, word_f1
from regard.modalities.span import Span
from regard.modalities.text import Text
from regard.tasks.base import call_with_state, load_tokenizer
from regard.tasks.text.encoder_base import BATCH_TOKENS, EncoderPredictor, EncoderTask, check_texts, evaluation_data

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

    metrics = (F1, EXACT_MATCH, loss_metric("nats per question"))
    split_size = "questions"
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
        logits, pass_state = call_with_state(model, batch.tokens, batch.segments, batch.lengths)
        total = self.objective(logits, batch.start_positions, batch.end_positions)
        return self.with_layer_losses(total, batch, pass_state), {"loss": total.detach()}

    def describe(self) -> dict[str, Any]:
        """The task as plain values, to stand beside a saved model."""
        return {
            "name": self.name,
            "max_length": self.data.max_length,
            "max_answer_tokens": self.config.max_answer_tokens,
        }

    def card(self) -> str:
        """One line on the data, for the run's first line."""
        questions = f"{len(self.dataset('train')):,} questions"
        return f"{self.data.corpus}, {questions}, vocabulary {self.text.size:,} {self.text.kind}"

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """Return how good a model is on a split: loss (nats per question, in the window that has the answer),
        exact_match and f1 (0 to 1, of answers found in the whole text), questions."""
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


@dataclass(frozen=True)
class LocatedAnswer:
    """An answer, the window that it was found in, and the positions of its first and its last token there."""

    answer: Span
    window: ContextWindow
    first: int
    last: int


class QuestionAnswerer(EncoderPredictor):
    """A text and a question in, the part of the text that answers it out.

        answer = QuestionAnswerer(model, text)
        answer("Mary moved to the bathroom. John went to the hall.", "Where is Mary?")     Span("bathroom", 18, 26, ...)

    A text that is longer than the model reads is read in windows that overlap by half; the best answer of all is taken.
    """

    inputs = {"text": Text, "question": Text}  # noqa: RUF012
    outputs = Span
    examples = (
        {"text": "Mary moved to the bathroom. John went to the hallway.", "question": "Where is Mary?"},
        {"text": "Daniel went back to the office. Sandra journeyed to the garden.", "question": "Where is Sandra?"},
    )

    def __init__(
        self, model: nn.Module, text: Tokenizer, max_length: int | None = None, max_answer_tokens: int = 30
    ) -> None:
        super().__init__(model, text, max_length)
        self.max_answer_tokens = max_answer_tokens  # tokens of an answer at most

    def predict(self, batch: list[Any], options: Any) -> list[Span]:
        found = self.find([each["text"] for each in batch], [each["question"] for each in batch])
        return [each.answer for each in found]

    def attention(self, text: str, question: str | None = None) -> list[Trace]:
        """Return the maps of all layers for a question and the text (of a long one the window) that has its answer."""
        if question is None:
            raise BadInput("this model finds answers in texts: give a question too")
        (found,) = self.find([text], [question])
        return self._maps(list(found.window.tokens), list(found.window.segments))

    def find(self, texts: Sequence[str], questions: Sequence[str]) -> list[LocatedAnswer]:
        """Return the answer to each question, with where it was found."""
        contexts, asked = check_texts(texts), check_texts(questions, "question")
        if len(contexts) != len(asked):
            raise BadInput(f"{len(contexts)} texts and {len(asked)} questions are not pairs")
        if not contexts:
            return []
        cut = encode_windows(self.text, list(zip(asked, contexts, strict=True)), self.room)
        rows = [(n, window) for n, some in enumerate(cut) for window in some]
        best: list[LocatedAnswer | None] = [None] * len(contexts)
        found: dict[int, LocatedAnswer] = {}
        for picked, scores in self._rows([w.tokens for _, w in rows], [w.segments for _, w in rows]):
            for row, both in zip(picked, scores.float(), strict=True):
                n, window = rows[row]
                inside = both[window.first : window.first + len(window.spans)]
                first, last, score = _best_span(inside, self.max_answer_tokens)
                begin, end = window.spans[first][0], window.spans[last][1]
                answer = Span(str(contexts[n][begin:end]), begin, end, score)
                found[row] = LocatedAnswer(answer, window, window.first + first, window.first + last)
        for row, (n, _) in enumerate(rows):  # in order, so that of equals the first is taken
            if (old := best[n]) is None or found[row].answer.score > old.answer.score:
                best[n] = found[row]
        return [each for each in best if each is not None]


def _best_span(scores: Float[Tensor, "N 2"], max_length: int) -> tuple[int, int, float]:
    """The begin and end with the largest sum, end not before begin and not further than `longest` tokens on."""
    sums = scores[:, 0, None] + scores[None, :, 1]
    index = torch.arange(len(scores), device=scores.device)
    ahead = index[None, :] - index[:, None]
    sums = sums.masked_fill((ahead < 0) | (ahead >= max_length), float("-inf"))
    place = int(sums.argmax())
    return place // len(scores), place % len(scores), float(sums.flatten()[place])


def _start_end_loss(scores: Float[Tensor, "B N 2"], begin: Tensor, end: Tensor) -> Float[Tensor, ""]:
    first, last = scores.float().unbind(-1)
    return F.cross_entropy(first, begin, reduction="sum") + F.cross_entropy(last, end, reduction="sum")
