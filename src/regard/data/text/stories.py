"""Stories: sentences, a question about them, an answer from a list, and the sentences that answer it.

    babi                     20 tasks of reasoning: tasks=(1, 2), 1,000 or 10,000 questions per task
    own.txt                  the same text form, below
    folder with train.txt    one file per split, or one per task and split (qa1_train.txt)

    1 Mary moved to the bathroom.                     lines of a story are numbered from 1
    2 John went to the hallway.
    3 Where is Mary?<TAB>bathroom<TAB>1               question, answer, supporting lines (may be left out)

A batch keeps the sentences apart, oldest first. Answers are classes: words, lists ("milk,football") and paths ("s,s")
alike. Of a long story the newest `max_sentences` are kept. Whole stories are held out: without a validation split, a
tenth of the training stories of every task.

Weston et al.: Towards AI-Complete Question Answering. 2015. arXiv:1502.05698
"""

from __future__ import annotations

import logging
import re
import tarfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import torch
import torch.nn.functional as F

from regard.core.errors import BadInput
from regard.core.shapes import Int, Tensor
from regard.data import data_dir
from regard.data.base import Dataset, DatasetSplit, TensorBatch
from regard.data.batching import BatchOrder, LengthBucketedBatches, mix_seed
from regard.data.ragged import RaggedTensor
from regard.data.shards.token_shards import IGNORE_INDEX
from regard.data.text.labeled_text import fill_missing_splits
from regard.data.text.text_file import SPLIT_ALIASES
from regard.tokens.story_words import StoryWords, split_words

log = logging.getLogger("regard")

SENTENCES_MULTIPLE = 2  # stories of a batch are padded to such a number of sentences


@dataclass(frozen=True)
class StoryQuestion:
    """A question, the sentences before it, its answer, and which of the sentences (from 0) support it, in order."""

    story: tuple[str, ...]
    question: str
    answer: str
    support: tuple[int, ...]
    task: int


@dataclass(frozen=True, eq=False)
class StoryBatch(TensorBatch):
    """A batch of questions with their stories, oldest sentence first, padded on the right."""

    sentences: Int[Tensor, "B S W"]  # word ids
    lengths: Int[Tensor, " B"]  # sentences
    questions: Int[Tensor, "B W"]
    labels: Int[Tensor, " B"]  # number of the answer; IGNORE_INDEX: not an answer of the training split
    support: Int[Tensor, "B F"]  # sentences of the batch in the order in which they are needed; -1: none
    tasks: Int[Tensor, " B"]


@dataclass(frozen=True)
class Stories(Dataset):
    """Settings of the dataset."""

    corpus: str = "babi"  # name of the dataset, or path of a file or folder
    tasks: tuple[int, ...] = ()  # of babi; (): all 20
    size: str = "1k"  # of babi: 1k or 10k questions per task (of task 3 the 10k have 1,000)
    max_sentences: int = 50  # the newest of a story that are kept
    batch_size: int = 32  # questions per batch over all processes
    similar_lengths: bool = False  # batches of stories of similar length: faster, but of fewer tasks each
    limit: int | None = None  # use only the first questions of every split

    quick_settings = {"limit": 64, "tasks": (1, 6), "batch_size": 8}  # noqa: RUF012

    def splits(self) -> list[str]:
        return sorted(_read_splits(self.corpus, self.tasks, self.size))

    def read(self, split: str) -> list[StoryQuestion]:
        """Return the questions of a split."""
        return _read_splits(self.corpus, self.tasks, self.size)[self.split(split)][: self.limit]

    def words(self) -> StoryWords:
        """Return the words and answers of the training split."""
        train = self.read("train")
        lines = {line for q in train for line in (*q.story, q.question)}
        return StoryWords.of(lines, {q.answer for q in train})

    def load(self, split: str, words: StoryWords) -> StorySplit:
        """Return a split as word ids."""
        return StorySplit(self.read(split), words, self.max_sentences, self.batch_size, self.similar_lengths)


class StorySplit(DatasetSplit[StoryBatch]):
    """One split as word ids. Every sentence of a story is stored once, however many questions follow it."""

    def __init__(
        self,
        questions: Sequence[StoryQuestion],
        words: StoryWords,
        max_sentences: int,
        batch_size: int,
        similar_lengths: bool = False,
    ) -> None:
        if not questions:
            raise BadInput("there is no question to answer")
        self.max_sentences, self.batch_size, self.similar_lengths = max_sentences, batch_size, similar_lengths
        answers = {answer: i for i, answer in enumerate(words.answers)}
        if unseen := sorted({q.answer for q in questions} - answers.keys()):
            log.warning(f"{len(unseen)} answers never occur in the training stories and count as wrong: {unseen[:5]}")
        lines: dict[str, int] = {"": 0}  # text -> row of self.lines
        stories = [[lines.setdefault(line, len(lines)) for line in q.story] for q in questions]
        asked = [lines.setdefault(q.question, len(lines)) for q in questions]
        self.lines = words.encode(lines)
        self.stories = RaggedTensor.from_rows([story[-max_sentences:] for story in stories])
        self.questions = torch.tensor(asked)
        self.labels = torch.tensor([answers.get(q.answer, IGNORE_INDEX) for q in questions])
        self.tasks = torch.tensor([q.task for q in questions])
        self.support = RaggedTensor.from_rows([_kept(q, max_sentences) for q in questions])
        self.most_support = int(self.support.lengths.max())

    def __len__(self) -> int:
        return len(self.questions)

    def contents(self) -> Iterable[Tensor]:
        return self.lines, self.stories.values, self.stories.lengths, self.questions, self.labels, self.support.values

    def order(self, seed: int, epoch: int) -> BatchOrder:
        if self.similar_lengths:
            return LengthBucketedBatches(self.stories.lengths, self.batch_size, mix_seed(seed, epoch))
        return super().order(seed, epoch)

    def collate(self, rows: Int[Tensor, " B"]) -> StoryBatch:
        # few shapes: a GPU keeps a graph of the update for each
        story, lengths = self.stories.pad(rows, 0, SENTENCES_MULTIPLE)
        story = story[:, : self.max_sentences]
        support = self.support.pad(rows, -1)[0]
        support = F.pad(support, (0, self.most_support - support.shape[1]), value=-1)
        questions = self.lines[self.questions[rows]]
        return StoryBatch(self.lines[story], lengths, questions, self.labels[rows], support, self.tasks[rows])


def _kept(question: StoryQuestion, max_sentences: int) -> list[int]:
    """Return the supporting sentences by their numbers among the newest `max_sentences`; -1: forgotten."""
    dropped = max(0, len(question.story) - max_sentences)
    return [max(-1, n - dropped) for n in question.support]


# -- reading -----------------------------------------------------------------------------------------------------------

Story = list[StoryQuestion]  # the questions of one story


@data_dir.cached_by_data_dir(4)
def _read_splits(corpus: str, tasks: tuple[int, ...], size: str) -> dict[str, list[StoryQuestion]]:
    by_task = read_babi(tasks, size) if corpus == "babi" else _read_user_data(corpus)
    found: dict[str, list[StoryQuestion]] = {}
    for task in sorted(by_task):
        for split, stories in fill_missing_splits(by_task[task], corpus, 0).items():
            found.setdefault(split, []).extend(chain.from_iterable(stories))
    return found


def read_babi(tasks: tuple[int, ...], size: str) -> dict[int, dict[str, list[Story]]]:
    """Return the stories of bAbI: task -> split (train, test) -> stories. No tasks: all."""
    archives = {"1k": "babi_en_1k.tar.gz", "10k": "babi_en_10k.tar.xz"}
    if size not in archives:
        raise BadInput(f"babi has no size '{size}'; choose 1k or 10k")
    if unknown := set(tasks) - set(range(1, 21)):
        raise BadInput(f"babi has tasks 1 to 20, got {min(unknown)}")
    found: dict[int, dict[str, list[Story]]] = {}
    with tarfile.open(data_dir.find_dataset("babi") / archives[size]) as files:
        for name in sorted(files.getnames()):
            match = re.search(r"/qa(\d+)_.*_(train|test)", name)
            if match and (not tasks or int(match[1]) in tasks):
                content = files.extractfile(name)
                assert content is not None
                task = found.setdefault(int(match[1]), {})
                task[match[2]] = parse_stories(content.read().decode("utf-8"), int(match[1]), name)
    return found


def _read_user_data(path: str) -> dict[int, dict[str, list[Story]]]:
    file = Path(path).expanduser()
    if file.is_file():
        return {1: {"all": parse_stories(file.read_text(encoding="utf-8"), 1, path)}}
    found: dict[int, dict[str, list[Story]]] = {}
    for file in sorted(data_dir.find_dataset(path).glob("*.txt")):
        split = next((SPLIT_ALIASES[word] for word in re.split(r"[._]", file.stem) if word in SPLIT_ALIASES), "all")
        match = re.match(r"qa(\d+)_", file.name)
        stories = parse_stories(file.read_text(encoding="utf-8"), int(match[1]) if match else 1, str(file))
        found.setdefault(int(match[1]) if match else 1, {}).setdefault(split, []).extend(stories)
    if not found:
        raise BadInput(f"{path} has no .txt file with stories")
    return found


def parse_stories(content: str, task: int = 1, source: str = "the file") -> list[Story]:
    """Return the stories of a file, each as its questions with the sentences before them."""
    found: list[Story] = []
    numbers: dict[int, int] = {}  # number of a line -> number of the sentence
    sentences: list[str] = []
    for row, line in enumerate(content.splitlines(), 1):
        number, _, rest = line.strip().partition(" ")
        if not rest:
            continue
        if not number.isdecimal() or len(number) > 9:
            raise BadInput(f"{source}, line {row}: expected a line that begins with its number, got {line!r:.60}")
        if number == "1" or not found:
            found.append([])
            numbers, sentences = {}, []
        question, *cells = rest.split("\t")
        if not cells:
            numbers[int(number)] = len(sentences)
            sentences.append(rest.strip())
            continue
        if not split_words(question) or not cells[0].strip():
            raise BadInput(f"{source}, line {row}: a question needs words and an answer, got {line!r:.60}")
        support = [int(n) for n in cells[1].split()] if len(cells) > 1 else []
        if nowhere := [n for n in support if n not in numbers]:
            raise BadInput(f"{source}, line {row}: the supporting line {nowhere[0]} is no sentence before the question")
        answer = cells[0].strip().lower()
        facts = tuple(numbers[n] for n in support)
        found[-1].append(StoryQuestion(tuple(sentences), question.strip(), answer, facts, task))
    return [story for story in found if story]
