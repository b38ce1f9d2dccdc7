"""Tapes: sequences of random bit vectors to be written to a memory and read back, generated from row numbers.

    copy           v1 v2 v3 |                        ->  v1 v2 v3                    end mark |
    repeat copy    v1 v2 v3 | 2                      ->  v1 v2 v3 v1 v2 v3 end       the number of copies in the mark
    recall         , v1 v2 v3 , v4 v5 v6 ? v1 v2 v3 ?  ->  v4 v5 v6                  the item after the one asked for

A mark is a vector of zeros with one more channel on. During the answer the input is zero. All rows of a batch have one
size (length, copies, items); it depends on the seed and the number of the batch alone, so a run is resumed exactly.
Training, validation and test differ in their seeds, and the test has sizes of its own: does the rule hold beyond what
was trained?

Graves, Wayne, Danihelka: Neural Turing Machines. 2014. arXiv:1410.5401 (sections 4.1 to 4.3)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import ClassVar, NamedTuple

import numpy as np
import torch

from regard.core.config import field
from regard.core.errors import BadInput, shorten
from regard.core.shapes import Float, Tensor
from regard.core.validation import validate
from regard.data.base import Dataset, DatasetSplit, TensorBatch
from regard.data.batching import mix_seed
from regard.data.shuffle import random_bits

MAX_SIZE = 1 << 10  # of each number of a size, exclusive: a row number encodes them
EVAL_ROWS = 50  # of a batch of an evaluation


class Size(NamedTuple):
    """How large a row is: vectors of the sequence (or items), and copies."""

    length: int
    copies: int = 1


@dataclass(frozen=True, eq=False)
class TapeBatch(TensorBatch):
    """Rows of one size; the answer belongs to the last A steps."""

    inputs: Float[Tensor, "B T C"]
    targets: Float[Tensor, "B A O"]


@dataclass(frozen=True)
class TapeDataset(Dataset):
    """What the three share: a subclass says how many vectors a size has, and lays them out."""

    bits: int = 8  # of a vector
    min_length: int = 1
    max_length: int = 20  # of a training sequence, each length as likely
    val_lengths: tuple[int, ...] = (10, 20, 30)  # some longer than those of training: which weights hold beyond them?
    test_lengths: tuple[int, ...] = (20, 40, 80, 120)
    train_examples: int = 30_000
    eval_examples: int = 100  # of each length
    batch_size: int = 1
    seed: int = field(0, low=0, below=2**63)

    quick_settings = {  # noqa: RUF012
        "bits": 3,
        "max_length": 3,
        "val_lengths": (2, 4),
        "test_lengths": (3, 5),
        "train_examples": 32,
        "eval_examples": 8,
        "batch_size": 4,
    }
    marks: ClassVar[int]  # input channels besides the bits
    extra_outputs: ClassVar[int] = 0

    def __post_init__(self) -> None:
        validate(self, "data.")
        if self.min_length > self.max_length:
            raise BadInput(f"data.min_length={self.min_length} is above data.max_length={self.max_length}")
        if max(self.max_length, *self.val_lengths, *self.test_lengths) >= MAX_SIZE:
            raise BadInput(f"tapes have at most {MAX_SIZE - 1} vectors")

    @property
    def input_dim(self) -> int:
        return self.bits + self.marks

    @property
    def output_dim(self) -> int:
        return self.bits + self.extra_outputs

    def load(self, split: str) -> TapeSplit:
        return TapeSplit(self, self.split(split))

    def draw_size(self, numbers: np.ndarray) -> Size:
        """Return the size of a training batch from random 64-bit numbers."""
        return Size(self.min_length + int(numbers[0] % np.uint64(self.max_length + 1 - self.min_length)))

    def eval_sizes(self, split: str) -> Sequence[Size]:
        """Return the sizes that are evaluated."""
        return [Size(length) for length in (self.test_lengths if split == "test" else self.val_lengths)]

    def describe_size(self, size: Size) -> str:
        """Return the size in the names of metrics."""
        return str(size.length)

    def vectors(self, size: Size) -> int:
        """Return the number of random vectors of a row."""
        return size.length

    def lay_out(self, drawn: Float[Tensor, "B V bits"], size: Size, asked: np.ndarray) -> TapeBatch:
        """Return the batch of these vectors; `asked` is a random number for each row."""
        raise NotImplementedError

    def read_line(self, line: str) -> TapeBatch:
        """Return a tape written as text: a word of bits for each vector."""
        return self.lay_out(self.read_vectors(line)[None], Size(len(line.split())), np.zeros(1, np.uint64))

    def read_vectors(self, line: str) -> Float[Tensor, "V bits"]:
        """Return words of bits as vectors."""
        words = line.split()
        for word in words:
            if len(word) != self.bits or {*word} - {*"01"}:
                raise BadInput(f"{shorten(repr(word))} is no vector of this tape; write {self.bits} digits 0 or 1")
        if not 1 <= len(words) < MAX_SIZE:
            raise BadInput(f"a tape has 1 to {MAX_SIZE - 1} vectors, got {len(words)}; write {self.example}")
        return torch.tensor([[float(digit) for digit in word] for word in words])

    @property
    def example(self) -> str:
        """A tape as text."""
        return f"{self._word(0)} {self._word(1)}"

    def _word(self, number: int) -> str:
        return "".join(str((number + place) % 2) for place in range(self.bits))


@dataclass(frozen=True)
class CopyTape(TapeDataset):
    """Copy: a sequence of vectors, an end mark, and then the same sequence."""

    marks: ClassVar[int] = 1

    def title(self) -> str:
        return "copy"

    def lay_out(self, drawn: Float[Tensor, "B V bits"], size: Size, asked: np.ndarray) -> TapeBatch:
        inputs = torch.zeros(len(drawn), 2 * size.length + 1, self.input_dim)
        inputs[:, : size.length, : self.bits] = drawn
        inputs[:, size.length, self.bits] = 1
        return TapeBatch(inputs, drawn)


@dataclass(frozen=True)
class RepeatCopyTape(TapeDataset):
    """Repeat copy: the sequence several times, and then an end mark on an output channel of its own.

    The number of copies stands in the mark, less the mean and divided by the deviation of those of training.
    """

    max_length: int = 10
    max_copies: int = 10  # of training; each number as likely
    val_lengths: tuple[int, ...] = (5, 10)
    test_lengths: tuple[int, ...] = (10, 20)
    test_copies: tuple[int, ...] = (10, 20)  # every length with every number

    quick_settings = TapeDataset.quick_settings | {"max_copies": 3, "test_copies": (2,)}
    marks: ClassVar[int] = 2  # the end, the number of copies
    extra_outputs: ClassVar[int] = 1

    def title(self) -> str:
        return "repeat copy"

    def draw_size(self, numbers: np.ndarray) -> Size:
        return super().draw_size(numbers)._replace(copies=1 + int(numbers[1] % np.uint64(self.max_copies)))

    def eval_sizes(self, split: str) -> Sequence[Size]:
        copies = self.test_copies if split == "test" else sorted({(self.max_copies + 1) // 2, self.max_copies})
        return [Size(size.length, many) for size in super().eval_sizes(split) for many in copies]

    def describe_size(self, size: Size) -> str:
        return f"{size.length}x{size.copies}"

    def lay_out(self, drawn: Float[Tensor, "B V bits"], size: Size, asked: np.ndarray) -> TapeBatch:
        answer = size.length * size.copies + 1
        inputs = torch.zeros(len(drawn), size.length + 1 + answer, self.input_dim)
        inputs[:, : size.length, : self.bits] = drawn
        inputs[:, size.length, self.bits] = 1
        spread = ((self.max_copies**2 - 1) / 12) ** 0.5  # of a uniform number from 1 to max_copies
        inputs[:, size.length, self.bits + 1] = (size.copies - (self.max_copies + 1) / 2) / max(spread, 1.0)
        targets = torch.zeros(len(drawn), answer, self.output_dim)
        targets[:, :-1, : self.bits] = drawn.repeat(1, size.copies, 1)
        targets[:, -1, self.bits] = 1
        return TapeBatch(inputs, targets)

    def read_line(self, line: str) -> TapeBatch:
        words, _, copies = line.partition("x")
        if not re.fullmatch(r"\s*[0-9]{1,9}\s*", copies) or not 1 <= int(copies) < MAX_SIZE:
            raise BadInput(f"say how often to repeat the tape, from 1 to {MAX_SIZE - 1}: {self.example}")
        drawn = self.read_vectors(words)
        return self.lay_out(drawn[None], Size(len(drawn), int(copies)), np.zeros(1, np.uint64))

    @property
    def example(self) -> str:
        return f"{super().example} x3"


@dataclass(frozen=True)
class RecallTape(TapeDataset):
    """Associative recall: items of three vectors, then one of them again; the answer is the item after it.

    Lengths count items; a sequence has at least two.
    """

    bits: int = 6
    min_length: int = field(2, low=2)
    max_length: int = 6
    item_vectors: int = 3
    val_lengths: tuple[int, ...] = field((4, 6, 8), low=2)
    test_lengths: tuple[int, ...] = field((6, 10, 15, 20), low=2)

    marks: ClassVar[int] = 2  # before an item, around the question

    def title(self) -> str:
        return "associative recall"

    def vectors(self, size: Size) -> int:
        return size.length * self.item_vectors

    def lay_out(self, drawn: Float[Tensor, "B V bits"], size: Size, asked: np.ndarray) -> TapeBatch:
        items = drawn.unflatten(1, (size.length, -1))  # B items 3 bits
        each = self.item_vectors + 1
        inputs = torch.zeros(len(drawn), (size.length + 1) * each + 1 + self.item_vectors, self.input_dim)
        told = inputs[:, : size.length * each].unflatten(1, (size.length, each))
        told[:, :, 0, self.bits] = 1
        told[:, :, 1:, : self.bits] = items
        row, at = torch.arange(len(drawn)), torch.from_numpy((asked % np.uint64(size.length - 1)).astype(np.int64))
        question = inputs[:, size.length * each :]
        question[:, [0, each], self.bits + 1] = 1
        question[:, 1:each, : self.bits] = items[row, at]
        return TapeBatch(inputs, items[row, at + 1])

    def read_line(self, line: str) -> TapeBatch:
        told, mark, asked = line.partition("?")
        if not mark:
            raise BadInput(f"say which item to ask for, after a question mark: {self.example}")
        items = [self.read_vectors(item) for item in told.split(",")]
        question = self.read_vectors(asked)
        if any(len(item) != self.item_vectors for item in (*items, question)):
            raise BadInput(f"an item has {self.item_vectors} vectors; write {self.example}")
        found = [at for at, item in enumerate(items[:-1]) if torch.equal(item, question)]
        if not found:
            raise BadInput("the item asked for is not one of those that another item follows")
        return self.lay_out(torch.cat(items)[None], Size(len(items)), np.array(found[:1], np.uint64))

    @property
    def example(self) -> str:
        first, second = (" ".join([self._word(number)] * self.item_vectors) for number in (0, 1))
        return f"{first} , {second} ? {first}"


class TapeSplit(DatasetSplit[TapeBatch]):
    """The rows of one split, made when they are asked for. A row number encodes an index and a size."""

    def __init__(self, settings: TapeDataset, part: str) -> None:
        self.settings, self.part, self.batch_size = settings, part, settings.batch_size
        digest = blake2b(f"{settings.seed}/{part}/{settings.title()}".encode(), digest_size=7).digest()
        self.key = int.from_bytes(digest, "big")

    def __len__(self) -> int:
        """Return the number of rows of an epoch, or of an evaluation."""
        s = self.settings
        return s.train_examples if self.part == "train" else s.eval_examples * len(s.eval_sizes(self.part))

    def fingerprint(self) -> str:
        return blake2b(f"{self.key} {sorted(asdict(self.settings).items())}".encode(), digest_size=8).hexdigest()

    def order(self, seed: int, epoch: int) -> _Epoch:
        return _Epoch(self.settings, seed, epoch)

    def count(self, batch: TapeBatch) -> int:
        """Return the number of bits of the answers."""
        return batch.targets.numel()

    def eval_batches(self, rows: int = EVAL_ROWS) -> Iterator[TapeBatch]:
        for size in self.settings.eval_sizes(self.part):
            yield from self.batches_of(size, rows)

    def batches_of(self, size: Size, rows: int = EVAL_ROWS) -> Iterator[TapeBatch]:
        """Yield the evaluated rows of one size."""
        for numbers in torch.arange(self.settings.eval_examples).split(rows):
            yield self.collate(encode_rows(numbers, size))

    def collate(self, rows: Tensor) -> TapeBatch:
        """Return these rows as a batch; all have the size of the first."""
        size = Size(int(rows[0]) % MAX_SIZE, int(rows[0]) // MAX_SIZE % MAX_SIZE)
        vectors, bits = self.settings.vectors(size), self.settings.bits
        index = (rows // MAX_SIZE**2).numpy().astype(np.uint64)[:, None]
        numbers = index * np.uint64(1 << 24) + np.arange(vectors * bits + 1, dtype=np.uint64)
        found = random_bits(mix_seed(self.key, size.length * MAX_SIZE + size.copies), numbers)
        drawn = torch.from_numpy((found[:, 1:] >> np.uint64(63)).astype(np.float32))
        return self.settings.lay_out(drawn.unflatten(1, (vectors, bits)), size, found[:, 0])


class _Epoch:
    """The batches of one epoch: row numbers of one size each."""

    def __init__(self, settings: TapeDataset, seed: int, epoch: int) -> None:
        self.settings, self.key, self.epoch = settings, mix_seed(seed, epoch), epoch

    def __len__(self) -> int:
        return max(1, self.settings.train_examples // self.settings.batch_size)

    def __getitem__(self, i: int) -> Tensor:
        if not 0 <= i < len(self):
            raise IndexError(i)
        size = self.settings.draw_size(random_bits(self.key, np.arange(2 * i, 2 * i + 2, dtype=np.uint64)))
        rows = self.settings.batch_size
        return encode_rows((self.epoch * len(self) + i) * rows + torch.arange(rows), size)


def encode_rows(numbers: Tensor, size: Size) -> Tensor:
    """Return row numbers: index, copies and length."""
    return (numbers * MAX_SIZE + size.copies) * MAX_SIZE + size.length
