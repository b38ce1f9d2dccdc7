"""Several text-to-text tasks in one stream, each with its own prefix (text_tasks.py).

    share of task m    r_m ∝ min(e_m, cap)^(1/temperature)         e_m examples; temperature 1: proportional to examples
    an epoch           Σ min(e_m, cap) examples, a share r_m of task m
    order              task m goes through its examples pass after pass, each in its own order

The cap (`max_examples_per_task`) keeps a large task from crowding out the others; a temperature above 1 evens out the
shares. The examples and batches of an epoch depend on (seed, epoch) alone: rows of similar length, of whatever task
(data.batching). An input longer than `max_length` is cut and counted, or is an error (`overflow`).

Raffel et al. 2020 (T5; examples-proportional mixing and its temperature, section 3.5.2), arXiv:1910.10683
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.shapes import Int, Tensor
from regard.core.spec import build_part
from regard.data import TEXT_TASKS
from regard.data.base import Dataset, DatasetSplit
from regard.data.batching import TokenBatches, mix_seed
from regard.data.ragged import RaggedTensor
from regard.data.shuffle import Shuffle
from regard.data.text.parallel_corpus import EncodedPairs, PairBatch, collate_pairs, count_target_tokens
from regard.data.text.text_tasks import Example, TextTask, read_examples

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class TaskMixture(Dataset):
    """Settings of the mixture."""

    tasks: tuple[str, ...] = ("translate", "sentiment", "summarize")  # specs of text tasks
    temperature: float = field(1.0, above=0)
    max_examples_per_task: int = 2**21  # a larger task counts as this many examples
    tokenizer: str = "bytes"  # kind of tokenizer, if the model has none
    vocab_size: int = 16_000
    sentinels: int = field(0, low=0)  # additional tokens, for span corruption (tokens.sentinels)
    batch_tokens: int = 16_384  # rows x the longest of either side, per batch
    max_length: int = 512  # tokens of an input
    max_target_length: int = 256  # tokens of an output; longer ones are cut
    overflow: Literal["truncate", "error"] = "truncate"  # for longer inputs
    pad_to_multiple_of: int = 8  # of padded lengths: few shapes, aligned rows
    limit: int | None = None  # use only the first examples of every split of every task

    quick_settings = {  # noqa: RUF012
        "limit": 12,
        "batch_tokens": 1024,
        "max_length": 96,
        "max_target_length": 24,
        "vocab_size": 400,
        "sentinels": 20,
    }

    def parts(self) -> list[TextTask]:
        """Return the tasks."""
        found: list[TextTask] = [build_part(TEXT_TASKS, spec, "text task") for spec in self.tasks]
        names = [task.name for task in found]
        if not names or len(set(names)) < len(names):
            raise BadInput(
                f"data.tasks has {', '.join(names) or 'none'}: give at least one, with distinct names, such as "
                f"translate(corpus='tatoeba', name='tatoeba')"
            )
        return found

    def splits(self) -> list[str]:
        """Return the splits that all tasks have."""
        return sorted(set.intersection(*(set(task.splits()) for task in self.parts())))

    def title(self) -> str:
        return "the mixture"

    def build_tokenizer(self) -> Tokenizer:
        """Train a tokenizer on all training splits: prefixes, inputs and outputs."""
        from regard.tokens.sentinels import add_sentinels
        from regard.tokens.tokenizer import Tokenizer

        texts: list[str] = []
        for task in self.parts():
            examples = read_examples(task, "train", self.limit)
            texts += [task.prefix + e.source for e in examples] + [e.target for e in examples]
        text = Tokenizer.train(texts, kind=self.tokenizer, size=self.vocab_size)
        return add_sentinels(text, self.sentinels) if self.sentinels else text

    def load(self, split: str, tokenizer: Tokenizer) -> TaskMixtureSplit:
        """Return a split of every task as token ids."""
        split = self.split(split)
        tasks = [TaskSplit(self, task, read_examples(task, split, self.limit), tokenizer) for task in self.parts()]
        return TaskMixtureSplit(self, tasks, tokenizer)


class TaskSplit(EncodedPairs):
    """One split of one task, as text and as token ids."""

    def __init__(
        self, settings: TaskMixture, task: TextTask, examples: Sequence[Example], tokenizer: Tokenizer
    ) -> None:
        self.settings, self.task, self.examples, self.tokenizer = settings, task, list(examples), tokenizer
        self.name, self.metric = task.name, task.metric
        sources = tokenizer.encode([task.prefix + e.source for e in examples])
        capacity, target_capacity = settings.max_length - 1, settings.max_target_length - 2
        too_long = [n for n, ids in enumerate(sources) if len(ids) > capacity]
        if too_long and settings.overflow == "error":
            raise BadInput(
                f"{task.name}: {len(too_long)} of {len(examples)} inputs have more than {capacity} tokens; raise "
                f"data.max_length, or cut them: data.overflow=truncate"
            )
        self.cut = len(too_long)
        self.source = RaggedTensor.from_rows([[*ids[:capacity], tokenizer.eos] for ids in sources])
        targets = tokenizer.encode([e.target for e in examples])
        self.target = RaggedTensor.from_rows(
            [[tokenizer.bos, *ids[:target_capacity], tokenizer.eos] for ids in targets]
        )

    @property
    def prompts(self) -> list[str]:
        """The inputs with their prefix."""
        return [self.task.prefix + e.source for e in self.examples]

    @property
    def references(self) -> list[tuple[str, ...]]:
        """All accepted answers of each example."""
        return [e.references for e in self.examples]


class TaskMixtureSplit(DatasetSplit[PairBatch]):
    """One split of all tasks; row numbers run through them one after another."""

    def __init__(self, settings: TaskMixture, tasks: Sequence[TaskSplit], tokenizer: Tokenizer) -> None:
        self.settings, self.tasks, self.tokenizer = settings, list(tasks), tokenizer

    def __len__(self) -> int:
        return sum(map(len, self.tasks))

    @cached_property
    def sides(self) -> tuple[RaggedTensor, RaggedTensor]:
        """Inputs and outputs of all tasks."""
        return RaggedTensor.concat([t.source for t in self.tasks]), RaggedTensor.concat([t.target for t in self.tasks])

    def shares(self) -> list[float]:
        """Return the share of every task in an epoch."""
        s = self.settings
        if s.temperature <= 0 or s.max_examples_per_task < 1:
            raise BadInput(
                f"data.temperature={s.temperature} and data.max_examples_per_task={s.max_examples_per_task}: both must "
                "be above 0"
            )
        sizes = [min(len(task), s.max_examples_per_task) ** (1 / s.temperature) for task in self.tasks]
        return [size / sum(sizes) for size in sizes]

    def counts(self) -> list[int]:
        """Return the examples of every task in an epoch: at least one."""
        total = sum(min(len(task), self.settings.max_examples_per_task) for task in self.tasks)
        return [max(1, round(share * total)) for share in self.shares()]

    def order(self, seed: int, epoch: int) -> _Epoch:
        return _Epoch(self, seed, epoch)

    def collate(self, rows: Int[Tensor, " B"]) -> PairBatch:
        return collate_pairs(*self.sides, rows, self.tokenizer.pad, self.settings.pad_to_multiple_of)

    def count(self, batch: PairBatch) -> int:
        return count_target_tokens(batch)

    def contents(self) -> Iterable[Tensor]:
        return (x for side in self.sides for x in (side.values, side.lengths))

    def card(self) -> str:
        """Return one line about the tasks and their shares."""
        descriptions = []
        for task, share in zip(self.tasks, self.shares(), strict=True):
            cut = f", {task.cut:,} cut" if task.cut else ""
            descriptions.append(f"{task.name} {share:.0%} ({len(task):,} examples{cut})")
        return f"{', '.join(descriptions)}; inputs of at most {self.settings.max_length} tokens"


class _Epoch:
    """Batches of one epoch, as rows of all tasks together."""

    def __init__(self, mixture: TaskMixtureSplit, seed: int, epoch: int) -> None:
        rows, first = [], 0
        for number, (task, count) in enumerate(zip(mixture.tasks, mixture.counts(), strict=True)):
            rows.append(first + _example_order(len(task), count * epoch, count, mix_seed(seed, -1 - number)))
            first += len(task)
        self.rows = torch.from_numpy(np.concatenate(rows))
        source, target = mixture.sides
        s = mixture.settings
        lengths = source.lengths[self.rows], target.lengths[self.rows] - 1
        self.batches = TokenBatches(
            *lengths, tokens=s.batch_tokens, seed=seed, epoch=epoch, multiple=s.pad_to_multiple_of
        )

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, i: int) -> Int[Tensor, " B"]:
        return self.rows[self.batches[i]]


def _example_order(size: int, begin: int, count: int, key: int) -> np.ndarray:
    """Return `count` steps from step `begin` on, through `size` examples pass after pass, each in its own order."""
    steps = np.arange(begin, begin + count)
    found = np.empty(count, np.int64)
    for lap in np.unique(steps // size):
        in_lap = steps // size == lap
        found[in_lap] = Shuffle(size, mix_seed(key, int(lap)))(steps[in_lap] % size)
    return found
