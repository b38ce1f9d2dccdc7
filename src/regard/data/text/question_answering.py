"""Extractive question answering: texts, questions, and answers that occur in the text.

    babi                      stories of people and things: tasks=(1, 2, 3), 1,000 or 10,000 questions per task
    own.jsonl[.gz]            {"context": ..., "question": ..., "answer": ...} per line; "answer" may be a list
    own.tsv[.gz]              context<TAB>question<TAB>answer
    folder with train.jsonl   one file per split (or .tsv)

    row    [CLS] where is mary ? [SEP] mary moved to the bathroom . john went to the hallway . [SEP]
                                                        start = end

The answer is searched for in the text; in a story it is its occurrence in the newest supporting sentence. A text longer
than a row is split into windows that overlap by half: training uses the first one with the answer, prediction reads
them all. Without a validation split a tenth of the training split is used.

Weston et al.: Towards AI-Complete Question Answering. 2015. arXiv:1502.05698
Rajpurkar, Zhang, Lopyrev, Liang: SQuAD. EMNLP 2016. arXiv:1606.05250
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from regard.core.errors import BadInput
from regard.core.shapes import Int, Tensor
from regard.data import data_dir
from regard.data.base import Dataset, TensorBatch, TokenizedSplit
from regard.data.ragged import RaggedTensor
from regard.data.text.labeled_text import fill_missing_splits
from regard.data.text.stories import StoryQuestion, read_babi
from regard.data.text.table import read_lines
from regard.data.text.tagged_sentences import encode_words
from regard.data.text.text_file import SPLIT_ALIASES

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class Question:
    """A text, a question, its accepted answers, and where in the text (in characters) the first of them occurs."""

    context: str
    question: str
    answers: tuple[str, ...]
    begin: int
    end: int


@dataclass(frozen=True, eq=False)
class QABatch(TensorBatch):
    """A batch of questions with their texts, padded on the right."""

    tokens: Int[Tensor, "B N"]
    segments: Int[Tensor, "B N"]
    lengths: Int[Tensor, " B"]
    start_positions: Int[Tensor, " B"]  # the answer's first token
    end_positions: Int[Tensor, " B"]  # the answer's last token


@dataclass(frozen=True)
class QuestionAnswering(Dataset):
    """Settings of the dataset."""

    corpus: str = "babi"  # name of a dataset, or path of a file or folder
    tasks: tuple[int, ...] = (1, 2, 3)  # of babi
    size: str = "10k"  # of babi: 1k or 10k questions per task (task 3 has 2,000)
    max_length: int = 384  # most tokens per row
    batch_size: int = 32  # rows per batch over all processes
    vocab_size: int = 8000  # if the model has no tokenizer
    lowercase: bool = True
    limit: int | None = None  # use only the first questions of every split

    quick_settings = {"limit": 32, "size": "1k", "max_length": 64, "batch_size": 4, "vocab_size": 300}  # noqa: RUF012

    def splits(self) -> list[str]:
        return sorted(_read_splits(self.corpus, self.tasks, self.size))

    def read(self, split: str) -> list[Question]:
        """Return the questions of a split."""
        return _read_splits(self.corpus, self.tasks, self.size)[self.split(split)][: self.limit]

    def build_tokenizer(self) -> Tokenizer:
        """Train a WordPiece tokenizer on the training split, with BERT's special tokens."""
        from regard.tokens.tokenizer import Tokenizer

        train = (line for q in self.read("train") for line in (q.context, q.question))
        return Tokenizer.train(train, kind="bert", size=self.vocab_size, lower=self.lowercase)

    def load(self, split: str, tokenizer: Tokenizer) -> QASplit:
        """Return a split as token ids."""
        return QASplit(tokenizer, self.read(split), self.max_length, self.batch_size)


class QASplit(TokenizedSplit[QABatch]):
    """One split as token ids: for each question the window of its text that contains the answer."""

    def __init__(self, tokenizer: Tokenizer, questions: Sequence[Question], length: int, batch_size: int) -> None:
        if not questions:
            raise BadInput("there is no question to answer")
        self.tokenizer, self.max_length, self.batch_size, self.questions = tokenizer, length, batch_size, questions
        found = encode_windows(tokenizer, [(q.question, q.context) for q in questions], length)
        chosen_rows = [_window_with_answer(windows, q) for windows, q in zip(found, questions, strict=True)]
        self.tokens = RaggedTensor.from_rows([window.tokens for window, *_ in chosen_rows])
        self.segments = RaggedTensor.from_rows([window.segments for window, *_ in chosen_rows])
        self.positions = torch.tensor([positions for _, *positions in chosen_rows])

    def contents(self) -> Iterable[Tensor]:
        return self.tokens.values, self.tokens.lengths, self.positions

    def collate(self, rows: Int[Tensor, " B"]) -> QABatch:
        tokens, lengths = self.tokens.pad(rows, self.tokenizer.pad, 8)
        segments = self.segments.pad(rows, 0, 8)[0]
        return QABatch(tokens[:, : self.max_length], segments[:, : self.max_length], lengths, *self.positions[rows].T)


# -- rows --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ContextWindow:
    """A row [CLS] question [SEP] part of the text [SEP], with the characters of each token of that part."""

    tokens: list[int]
    segments: list[int]
    first: int  # position of the part's first token
    spans: list[tuple[int, int]]  # begin and end of each token of the part, in characters


def encode_windows(tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]], length: int) -> list[list[ContextWindow]]:
    """Encode questions and texts as rows; a text longer than a row gives several, overlapping by half."""
    questions = tokenizer.encode([question for question, _ in pairs])
    matches = [list(WORD.finditer(context)) for _, context in pairs]
    pieces = encode_words(tokenizer, (match.group() for context_matches in matches for match in context_matches))
    found = []
    for (_, context), question, context_matches in zip(pairs, questions, matches, strict=True):
        question = question[: length // 2]
        ids: list[int] = []
        spans: list[tuple[int, int]] = []
        for match in context_matches:
            ids += pieces[match.group()]
            spans += [match.span()] * (len(ids) - len(spans))
        if not ids:
            raise BadInput(f"the text {context!r} has no words, so it has no answer")
        capacity = length - len(question) - 3
        starts = (
            [0]
            if len(ids) <= capacity
            else [*range(0, len(ids) - capacity, max(1, capacity // 2)), len(ids) - capacity]
        )
        found.append(
            [
                ContextWindow(
                    *tokenizer.with_special_tokens(question, ids[start : start + capacity]),
                    len(question) + 2,
                    spans[start : start + capacity],
                )
                for start in starts
            ]
        )
    return found


def _window_with_answer(found: Sequence[ContextWindow], question: Question) -> tuple[ContextWindow, int, int]:
    """Return the first window that contains the answer, and the positions of the answer's first and last token."""
    for window in found:
        answer_tokens = [n for n, (a, b) in enumerate(window.spans) if a < question.end and b > question.begin]
        covers = (
            answer_tokens
            and window.spans[answer_tokens[0]][0] <= question.begin
            and window.spans[answer_tokens[-1]][1] >= question.end
        )
        if covers:
            return window, window.first + answer_tokens[0], window.first + answer_tokens[-1]
    raise BadInput(f"the answer {question.answers[0]!r} is longer than a row; raise data.max_length")


# -- reading -----------------------------------------------------------------------------------------------------------


@data_dir.cached_by_data_dir(4)
def _read_splits(corpus: str, tasks: tuple[int, ...], size: str) -> dict[str, list[Question]]:
    found = _babi(tasks, size) if corpus == "babi" else _read_user_data(corpus)
    return fill_missing_splits(found, corpus, 0)


def _babi(tasks: tuple[int, ...], size: str) -> dict[str, list[Question]]:
    found: dict[str, list[Question]] = {"train": [], "test": []}
    for splits in read_babi(tasks, size).values():
        for split, stories in splits.items():
            found[split] += [locate_answer(question) for story in stories for question in story]
    return found


def locate_answer(question: StoryQuestion) -> Question:
    """Return a question about a story as one about a text: the newest supporting sentence has the answer."""
    begin, end, context = -1, -1, ""
    for number, sentence in enumerate(question.story):
        match = re.search(rf"\b{re.escape(question.answer)}\b", sentence, re.IGNORECASE)
        if match and number in question.support:
            begin, end = len(context) + match.start(), len(context) + match.end()
        context += f"{sentence} "
    if begin < 0:
        asked = f"the answer {question.answer!r} to {question.question!r}"
        raise BadInput(f"{asked} occurs in no supporting sentence: use tasks 1 to 3")
    return Question(context.strip(), question.question, (context[begin:end],), begin, end)


def _read_user_data(path: str) -> dict[str, list[Question]]:
    file = Path(path).expanduser()
    if file.is_file():
        return {"all": _read(file)}
    folder = data_dir.find_dataset(path)
    files = [f for f in sorted(folder.iterdir()) if f.name.removesuffix(".gz").endswith((".jsonl", ".tsv"))]
    return {
        SPLIT_ALIASES[name]: _read(file) for file in files for name in file.name.split(".") if name in SPLIT_ALIASES
    }


def _read(file: Path) -> list[Question]:
    found = []
    for number, line in enumerate(read_lines(file), 1):
        where = f"{file}, line {number}"
        if file.name.removesuffix(".gz").endswith(".tsv"):
            cells: Any = line.split("\t")
            if len(cells) != 3:
                raise BadInput(f"{where}: {len(cells)} columns; expected context<TAB>question<TAB>answer")
        else:
            try:
                row = json.loads(line)
                cells = row["context"], row["question"], row["answer"]
            except (ValueError, KeyError, TypeError):
                raise BadInput(f"{where}: expected an object with context, question and answer") from None
        context, question, answer = cells
        answers = tuple([answer] if isinstance(answer, str) else answer)
        begin = context.find(answers[0]) if answers and answers[0] else -1
        if begin < 0:
            raise BadInput(f"{where}: the answer {answers[0] if answers else ''!r} does not occur in the text")
        found.append(Question(context, question, answers, begin, begin + len(answers[0])))
    return found
