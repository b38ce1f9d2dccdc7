"""Answering: a text and a question in, the part of the text that answers it out.

    answer = QuestionAnswerer(model, text)
    answer(["Mary moved to the bathroom. John went to the hallway."], ["Where is Mary?"])     [Answer("bathroom", ...)]

The answer is cut out of the text as it is written there. A text that is longer than the model reads is read in windows
that overlap by half; the best answer of all of them is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn

from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor
from regard.core.trace import Trace
from regard.data.text.question_answering import ContextWindow, encode_windows
from regard.tasks.text.encoder_base import EncoderPredictor, check_texts

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class Answer:
    """A part of the text, where it stands there (in characters), and its score (begin and end added up)."""

    text: str
    begin: int
    end: int
    score: float


@dataclass(frozen=True)
class LocatedAnswer:
    """An answer, the row that it was found in, and the places of its first and its last token there."""

    answer: Answer
    window: ContextWindow
    first: int
    last: int


class QuestionAnswerer(EncoderPredictor):
    """A model that finds answers in texts, with its vocabulary, to be called."""

    def __init__(
        self, model: nn.Module, text: Tokenizer, max_length: int | None = None, max_answer_tokens: int = 30
    ) -> None:
        super().__init__(model, text, max_length)
        self.max_answer_tokens = max_answer_tokens  # tokens of an answer at most

    def __call__(self, texts: Sequence[str], questions: Sequence[str]) -> list[Answer]:
        """The answer to each question in the text beside it."""
        return [found.answer for found in self.find(texts, questions)]

    def attention(self, text: str, question: str | None = None) -> list[Trace]:
        """The maps of all layers for a question and the text (of a long one the part) in which its answer was found."""
        if question is None:
            raise BadInput("this model finds answers in texts: give the question beside the text")
        (found,) = self.find([text], [question])
        return self._maps(list(found.window.tokens), list(found.window.segments))

    def find(self, texts: Sequence[str], questions: Sequence[str]) -> list[LocatedAnswer]:
        """The same with where each answer was found."""
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
                answer = Answer(contexts[n][begin:end], begin, end, score)
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
