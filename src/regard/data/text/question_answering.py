"""Texts, questions about them, and answers that stand in the text: where does the answer begin, where does it end.

    babi                      stories of people and things, by name: tasks=(1, 2, 3), 1,000 or 10,000 questions a task
    own.jsonl[.gz]            {"context": ..., "question": ..., "answer": ...} a line; "answer" may be a list
    own.tsv[.gz]              context<TAB>question<TAB>answer
    folder with train.jsonl   a file a part (or .tsv)

    row    [CLS] where is mary ? [SEP] mary moved to the bathroom . john went to the hallway . [SEP]
                                                        begin = end

The answer is looked for in the text as it is written, signs apart; in a story it is the place in the newest of the
sentences that support it. A text that a row cannot hold is cut into windows that overlap by half: training takes the
first that holds the answer, whoever answers reads them all. What has no validation part gives up a tenth of its
training part.

Weston et al.: Towards AI-Complete Question Answering. 2015. arXiv:1502.05698
Rajpurkar, Zhang, Lopyrev, Liang: SQuAD. EMNLP 2016. arXiv:1606.05250
"""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from regard.core.errors import BadInput
from regard.core.shapes import Int, Tensor
from regard.data import data_dir
from regard.data.batching import BatchStream, LengthBucketedBatches, mix_seed
from regard.data.ragged import RaggedTensor
from regard.data.shards.token_shards import resolve_split
from regard.data.text.labeled_text import fill_missing_splits
from regard.data.text.parallel_corpus import read_lines
from regard.data.text.tagged_sentences import encode_words
from regard.data.text.text_file import SPLIT_ALIASES

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

_WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class Question:
    """A text, a question, its true answers, and where in the text (in characters) the first of them stands."""

    context: str
    question: str
    answers: tuple[str, ...]
    begin: int
    end: int


class QABatch(NamedTuple):
    """A batch of questions with their texts, padded on the right."""

    tokens: Int[Tensor, "B N"]
    segments: Int[Tensor, "B N"]
    lengths: Int[Tensor, " B"]
    start_positions: Int[Tensor, " B"]  # the answer's first token
    end_positions: Int[Tensor, " B"]  # and its last

    def to(self, device: torch.device | str) -> QABatch:
        """The same batch on a device; from pinned memory without waiting for it."""
        return QABatch(*(x.to(device, non_blocking=True) for x in self))

    def pin(self) -> QABatch:
        """The same batch in page-locked memory, from which a GPU copies while it computes."""
        return QABatch(*(x.pin_memory() for x in self))

    def rows(self, n: int) -> QABatch:
        """Only the first n questions (the padding stays)."""
        return QABatch(*(x[:n] for x in self))


@dataclass(frozen=True)
class QuestionAnswering:
    """Which questions, how they are written as numbers, and how many go into a batch."""

    corpus: str = "babi"  # a name, or the path of a file or a folder
    tasks: tuple[int, ...] = (1, 2, 3)  # of babi
    size: str = "10k"  # of babi: 1k or 10k questions a task (of task 3 there are 2,000 at hand)
    max_length: int = 384  # tokens a row at most
    batch_size: int = 32  # in a batch, all processes together
    vocab_size: int = 8000  # where the model does not bring one
    lowercase: bool = True
    limit: int | None = None  # only the first so many questions of every part

    def quick(self) -> QuestionAnswering:
        """A few questions and a small vocabulary: enough to see that everything runs."""
        return replace(
            self,
            limit=32,
            size="1k",
            max_length=min(self.max_length, 64),
            batch_size=min(self.batch_size, 4),
            vocab_size=300,
        )

    def splits(self) -> list[str]:
        """The parts there are."""
        return sorted(_read_splits(self.corpus, self.tasks, self.size))

    def split(self, name: str) -> str:
        """The full name of a part; the beginning of it will do where it is the only one."""
        return resolve_split(name, self.splits(), self.corpus)

    def read(self, split: str) -> list[Question]:
        """The questions of a part."""
        return _read_splits(self.corpus, self.tasks, self.size)[self.split(split)][: self.limit]

    def build_tokenizer(self) -> Tokenizer:
        """A WordPiece vocabulary of the training part, with BERT's special tokens."""
        from regard.tokens.tokenizer import Tokenizer

        train = (line for q in self.read("train") for line in (q.context, q.question))
        return Tokenizer.train(train, kind="bert", size=self.vocab_size, lower=self.lowercase)

    def load(self, split: str, tokenizer: Tokenizer) -> QASplit:
        """A part as numbers."""
        return QASplit(tokenizer, self.read(split), self.max_length, self.batch_size)


class QASplit:
    """One part as numbers: for each question the window of its text that holds the answer."""

    def __init__(self, tokenizer: Tokenizer, questions: Sequence[Question], length: int, many: int) -> None:
        if not questions:
            raise BadInput("there is no question to answer")
        self.tokenizer, self.max_length, self.many, self.questions = tokenizer, length, many, questions
        found = encode_windows(tokenizer, [(q.question, q.context) for q in questions], length)
        chosen_rows = [_window_with_answer(windows_of, q) for windows_of, q in zip(found, questions, strict=True)]
        self.tokens = RaggedTensor.from_rows([window.tokens for window, *_ in chosen_rows])
        self.segments = RaggedTensor.from_rows([window.segments for window, *_ in chosen_rows])
        self.places = torch.tensor([places for _, *places in chosen_rows])

    def __len__(self) -> int:
        return len(self.questions)

    def fingerprint(self) -> str:
        """A few letters that change when the questions or the vocabulary do."""
        found = blake2b(digest_size=8)
        for part in (self.tokens.values, self.tokens.lengths, self.places):
            found.update(part.numpy().data)
        return found.hexdigest()

    def collate(self, rows: Int[Tensor, " B"]) -> QABatch:
        """These rows as one padded batch."""
        tokens, lengths = self.tokens.pad(rows, self.tokenizer.pad, 8)
        segments = self.segments.pad(rows, 0, 8)[0]
        return QABatch(tokens[:, : self.max_length], segments[:, : self.max_length], lengths, *self.places[rows].T)

    def stream(self, seed: int) -> BatchStream[QABatch]:
        """Training batches without end."""
        order = lambda epoch: LengthBucketedBatches(self.tokens.lengths, self.many, mix_seed(seed, epoch))  # noqa: E731
        return BatchStream(order, self.collate, lambda batch: len(batch.start_positions))

    def eval_batches(self, tokens: int) -> Iterator[QABatch]:
        """Every question once, as they come: for measuring."""
        some = max(1, tokens // self.max_length)
        for at in range(0, len(self), some):
            yield self.collate(torch.arange(at, min(at + some, len(self))))


# -- rows --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ContextWindow:
    """A row [CLS] question [SEP] part of the text [SEP]; of every token of that part, the characters it stands for."""

    tokens: list[int]
    segments: list[int]
    first: int  # the place of the part's first token
    spans: list[tuple[int, int]]  # begin and end in the text, of each token of the part


def encode_windows(tokenizer: Tokenizer, asked: Sequence[tuple[str, str]], length: int) -> list[list[ContextWindow]]:
    """Questions and texts as rows; several for a text that one row cannot hold, each overlapping the last by half."""
    questions = tokenizer.encode([question for question, _ in asked])
    cut = [list(_WORD.finditer(context)) for _, context in asked]
    pieces = encode_words(tokenizer, (match.group() for words in cut for match in words))
    found = []
    for (_, context), question, words in zip(asked, questions, cut, strict=True):
        question = question[: length // 2]
        ids: list[int] = []
        spans: list[tuple[int, int]] = []
        for match in words:
            ids += pieces[match.group()]
            spans += [match.span()] * (len(ids) - len(spans))
        if not ids:
            raise BadInput(f"the text {context!r} holds no word, so no answer stands in it")
        room = length - len(question) - 3
        starts = [0] if len(ids) <= room else [*range(0, len(ids) - room, max(1, room // 2)), len(ids) - room]
        found.append(
            [
                ContextWindow(
                    *tokenizer.with_special_tokens(question, ids[at : at + room]),
                    len(question) + 2,
                    spans[at : at + room],
                )
                for at in starts
            ]
        )
    return found


def _window_with_answer(found: Sequence[ContextWindow], question: Question) -> tuple[ContextWindow, int, int]:
    """The first window that holds the answer, and the places of the answer's first and last token there."""
    for window in found:
        inside = [n for n, (a, b) in enumerate(window.spans) if a < question.end and b > question.begin]
        covers = inside and window.spans[inside[0]][0] <= question.begin and window.spans[inside[-1]][1] >= question.end
        if covers:
            return window, window.first + inside[0], window.first + inside[-1]
    raise BadInput(f"the answer {question.answers[0]!r} is longer than a row; raise data.max_length")


# -- reading -----------------------------------------------------------------------------------------------------------


@data_dir.cached_by_data_dir(4)
def _read_splits(corpus: str, tasks: tuple[int, ...], size: str) -> dict[str, list[Question]]:
    found = _babi(tasks, size) if corpus == "babi" else _read_user_data(corpus)
    return fill_missing_splits(found, corpus, 0)


def _babi(tasks: tuple[int, ...], size: str) -> dict[str, list[Question]]:
    archive = data_dir.find_dataset("babi") / {"1k": "babi_en_1k.tar.gz", "10k": "babi_en_10k.tar.xz"}.get(size, "")
    if not archive.is_file():
        raise BadInput(f"babi has no size '{size}'; choose 1k or 10k")
    found: dict[str, list[Question]] = {"train": [], "test": []}
    with tarfile.open(archive) as files:
        for name in sorted(files.getnames()):
            match = re.search(r"/qa(\d+)_.*_(train|test)", name)
            if match and int(match[1]) in tasks:
                content = files.extractfile(name)
                assert content is not None
                found[match[2]] += parse_babi(content.read().decode("utf-8"))
    if not found["train"]:
        raise BadInput(f"babi has tasks 1 to 20; nothing was found for {tasks}")
    return found


def parse_babi(content: str) -> list[Question]:
    """The questions of a bAbI file, each with the sentences of its story that stand before it."""
    found: list[Question] = []
    said: dict[int, str] = {}
    for line in content.splitlines():
        number, _, rest = line.partition(" ")
        if number == "1":
            said = {}
        question, *about = rest.split("\t")
        if not about:
            said[int(number)] = rest.strip()
            continue
        answer = about[0]
        begin, context = -1, ""
        support = {int(n) for n in about[1].split()} if len(about) > 1 else set()
        for n, sentence in said.items():
            here = re.search(rf"\b{re.escape(answer)}\b", sentence)
            if here and n in support:
                begin = len(context) + here.start()
            context += f"{sentence} "
        if begin < 0:
            raise BadInput(f"the answer {answer!r} to {question.strip()!r} stands in no sentence: take tasks 1 to 3")
        found.append(Question(context.strip(), question.strip(), (answer,), begin, begin + len(answer)))
    return found


def _read_user_data(path: str) -> dict[str, list[Question]]:
    asked = Path(path).expanduser()
    if asked.is_file():
        return {"all": _read(asked)}
    folder = data_dir.find_dataset(path)
    files = [f for f in sorted(folder.iterdir()) if f.name.removesuffix(".gz").endswith((".jsonl", ".tsv"))]
    return {
        SPLIT_ALIASES[word]: _read(file) for file in files for word in file.name.split(".") if word in SPLIT_ALIASES
    }


def _read(file: Path) -> list[Question]:
    found = []
    for number, line in enumerate(read_lines(file), 1):
        where = f"{file}, line {number}"
        if file.name.removesuffix(".gz").endswith(".tsv"):
            cells: Any = line.split("\t")
            if len(cells) != 3:
                raise BadInput(f"{where}: {len(cells)} columns; wanted context<TAB>question<TAB>answer")
        else:
            try:
                row = json.loads(line)
                cells = row["context"], row["question"], row["answer"]
            except (ValueError, KeyError, TypeError):
                raise BadInput(f"{where}: wanted an object with context, question and answer") from None
        context, question, answer = cells
        answers = tuple([answer] if isinstance(answer, str) else answer)
        begin = context.find(answers[0]) if answers and answers[0] else -1
        if begin < 0:
            raise BadInput(f"{where}: the answer {answers[0] if answers else ''!r} does not stand in the text")
        found.append(Question(context, question, answers, begin, begin + len(answers[0])))
    return found
