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
    """Settings of the search for answers."""

    max_answer_tokens: int = 30  # tokens of an answer at most

    def build(self, data: QuestionAnswering, seed: int = 0, folder: Path | None = None) -> ExtractiveQA:
        """Return the task on these data, with the tokenizer in the folder if one is given, else that of the data."""
        return ExtractiveQA(self, data, load_tokenizer(folder), seed)

    @staticmethod
    def eval_data(corpus: str, saved: Mapping[str, Any], **changes: Any) -> QuestionAnswering:
        """Return the data of a name to evaluate a saved model on, given its config.json."""
        return evaluation_data(QuestionAnswering, corpus, saved, changes)


class ExtractiveQA(EncoderTask):
    """Train and evaluate a model that finds answers in texts."""

    metrics = (F1, EXACT_MATCH, loss_metric("nats per question"))
    split_size = "questions"
    unit = "questions"
    name = "extractive_qa"

    def __init__(self, config: Config, data: QuestionAnswering, text: Tokenizer | None = None, seed: int = 0) -> None:
        super().__init__(data, text, seed)
        self.config = config
        self.objective: Callable[..., Tensor] = _start_end_loss

    def head(self) -> str:
        return "span"

    def count(self, batch: QABatch) -> int:
        return len(batch.start_positions)

    def loss(
        self, model: nn.Module, batch: QABatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        logits, pass_state = call_with_state(model, batch.tokens, batch.segments, batch.lengths)
        total = self.objective(logits, batch.start_positions, batch.end_positions)
        return self.with_layer_losses(total, batch, pass_state), {"loss": total.detach()}

    def describe(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "max_length": self.data.max_length,
            "max_answer_tokens": self.config.max_answer_tokens,
        }

    def card(self) -> str:
        questions = f"{len(self.dataset('train')):,} questions"
        return f"{self.data.corpus}, {questions}, vocabulary {self.text.size:,} {self.text.kind}"

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """Return the metrics of a model on a split: loss (nats per question, in the window that has the answer),
        exact_match and f1 (0 to 1, of answers found in the whole text), questions.
        """
        part, device = self.dataset(split), next(model.parameters()).device
        model.eval()
        nll = torch.zeros((), dtype=torch.float64, device=device)
        for batch in part.eval_batches(BATCH_TOKENS):
            batch = batch.to(device)
            nll += _start_end_loss(
                model(batch.tokens, batch.segments, batch.lengths), batch.start_positions, batch.end_positions
            )
        answer = QuestionAnswerer(model, self.text, self.data.max_length, self.config.max_answer_tokens)
        answers = answer([q.context for q in part.questions], [q.question for q in part.questions])
        both = list(zip([each.text for each in answers], [q.answers for q in part.questions], strict=True))
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

    A text longer than the model takes is read in windows that overlap by half; the best answer of all is returned.
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
        """Return the attention maps of all layers for a question and the window of the text that has its answer."""
        if question is None:
            raise BadInput("question answering needs a question besides the text")
        (found,) = self.find([text], [question])
        return self._maps(list(found.window.tokens), list(found.window.segments))

    def find(self, texts: Sequence[str], questions: Sequence[str]) -> list[LocatedAnswer]:
        """Return the answer to each question, with where it was found."""
        contexts, asked = check_texts(texts), check_texts(questions, "question")
        if len(contexts) != len(asked):
            raise BadInput(f"every text needs one question, got {len(contexts)} texts and {len(asked)} questions")
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
        for row, (n, _) in enumerate(rows):  # in order, so that the first of equal scores wins
            if (old := best[n]) is None or found[row].answer.score > old.answer.score:
                best[n] = found[row]
        return [each for each in best if each is not None]


def _best_span(scores: Float[Tensor, "N 2"], max_length: int) -> tuple[int, int, float]:
    """Return the start and end with the largest sum of logits, at most `max_length` tokens long, and that sum."""
    sums = scores[:, 0, None] + scores[None, :, 1]
    index = torch.arange(len(scores), device=scores.device)
    ahead = index[None, :] - index[:, None]
    sums = sums.masked_fill((ahead < 0) | (ahead >= max_length), float("-inf"))
    place = int(sums.argmax())
    return place // len(scores), place % len(scores), float(sums.flatten()[place])


def _start_end_loss(scores: Float[Tensor, "B N 2"], begin: Tensor, end: Tensor) -> Float[Tensor, ""]:
    first, last = scores.float().unbind(-1)
    return F.cross_entropy(first, begin, reduction="sum") + F.cross_entropy(last, end, reduction="sum")
