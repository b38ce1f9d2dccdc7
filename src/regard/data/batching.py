"""Batches in an order that depends on (seed, epoch) alone and can be resumed in mid-epoch.

    TokenBatches             batches of one epoch, as tensors of row numbers: similar lengths, about so many tokens each
    RowBatches               a fixed number of rows each, whatever their length
    LengthBucketedBatches    a fixed number of rows each, of similar length
    OffsetBatches            the same batches with other row numbers in every epoch
    BatchStream              epoch after epoch, collated, each batch with the position after it
    prefetch                 batches made ahead by background threads and pinned, so that a fast device never waits

The state of the data is two numbers, (epoch, position). It is returned *with* each batch, since the stream runs ahead
of the training. It depends neither on the number of processes that share a batch nor on the number of threads that make
batches: both may change when a run is resumed.

Batches are made by threads, not processes: the slow operations (copying out of a memory map, gathering, decoding an
image) release the interpreter lock, and nothing has to be sent through a pipe.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch

from regard.core.errors import BadInput
from regard.core.shapes import Int, Tensor
from regard.data.ragged import round_up
from regard.data.shuffle import Shuffle

T = TypeVar("T")

BUCKET_BATCHES = 32  # rows are sorted by length within this many batches


class TokenBatches:
    """Batches of one epoch: rows of similar length, at most `tokens` tokens on the longer side, padding included.

    Rows are shuffled, sorted by length (so that only rows of equal length keep the shuffled order), cut into batches,
    and the batches are shuffled. Both shuffles come from (seed, epoch). A row that is longer than `tokens` is an error.
    """

    def __init__(
        self, *lengths: Int[Tensor, " rows"], tokens: int = 4096, seed: int = 0, epoch: int = 0, multiple: int = 1
    ) -> None:
        sizes = torch.stack(lengths)
        if sizes.shape[1] == 0:
            raise BadInput("the data have no usable sentence pair, so there are no batches")
        longest = sizes.amax(0)
        if round_up(int(longest.max()), multiple) > tokens:
            raise BadInput(
                f"a sentence pair is {int(longest.max())} tokens long, but a batch holds {tokens}: "
                f"raise data.batch_tokens or lower data.max_length"
            )
        generator = torch.Generator().manual_seed(mix_seed(seed, epoch))
        order = torch.randperm(sizes.shape[1], generator=generator)
        # stable sorts, the last key is the main one; lengths equal after padding are equal
        for key in (*sizes, longest):
            order = order[torch.sort((key[order] + multiple - 1) // multiple, stable=True).indices]
        longest = longest[order]
        cuts = _batch_boundaries([round_up(n, multiple) for n in longest.tolist()], tokens)
        shuffled = torch.randperm(len(cuts) - 1, generator=generator).tolist()
        self.batches = [order[cuts[i] : cuts[i + 1]] for i in shuffled]

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, i: int) -> Int[Tensor, " B"]:
        return self.batches[i]

    def __iter__(self) -> Iterator[Int[Tensor, " B"]]:
        return iter(self.batches)


class RowBatches:
    """Batches of one epoch: a fixed number of shuffled rows each; leftover rows are dropped."""

    def __init__(self, size: int, rows: int, key: int) -> None:
        if rows < 1:
            raise BadInput(f"data.batch_size must be 1 or more, got {rows}")
        self.rows, self.shuffle = rows, Shuffle(size, key)

    def __len__(self) -> int:
        size = self.shuffle.size
        return max(min(size, 1), size // self.rows)  # one smaller batch if there are fewer rows

    def __getitem__(self, i: int) -> Int[Tensor, " B"]:
        if not 0 <= i < len(self):
            raise IndexError(i)
        positions = np.arange(i * self.rows, min((i + 1) * self.rows, self.shuffle.size))
        return torch.from_numpy(self.shuffle(positions))


class LengthBucketedBatches:
    """Batches of one epoch: a fixed number of rows each, of similar length; leftover rows are dropped.

    Rows are shuffled, sorted by length within `BUCKET_BATCHES` batches, cut, and the batches are shuffled.
    """

    def __init__(self, lengths: Int[Tensor, " rows"], rows: int, key: int) -> None:
        shuffled = RowBatches(len(lengths), rows, key)
        groups = range(0, len(shuffled), BUCKET_BATCHES)
        buckets = [
            torch.cat([shuffled[i] for i in range(first, min(first + BUCKET_BATCHES, len(shuffled)))])
            for first in groups
        ]
        sorted_batches = [group[torch.sort(lengths[group], stable=True).indices].split(rows) for group in buckets]
        batches = [batch for group in sorted_batches for batch in group]
        self.batches = [batches[i] for i in Shuffle(len(batches), key)(np.arange(len(batches)))]

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, i: int) -> Int[Tensor, " B"]:
        return self.batches[i]


class OffsetBatches:
    """Batches with `offset` added to every row number, so that an epoch's rows can differ from another's."""

    def __init__(self, batches: BatchOrder, offset: int) -> None:
        self.batches, self.offset = batches, offset

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, i: int) -> Int[Tensor, " B"]:
        return self.batches[i] + self.offset


@dataclass(frozen=True)
class StreamPosition:
    """Position in the data: finished epochs, and batches of the current one."""

    epoch: int = 0
    position: int = 0


@dataclass(frozen=True)
class StreamItem(Generic[T]):
    """A batch, its weight (tokens, rows), and the position after it."""

    batch: T
    count: int
    next_position: StreamPosition


class BatchOrder(Protocol):
    """Batches of one epoch as row numbers."""

    def __len__(self) -> int: ...

    def __getitem__(self, i: int, /) -> Int[Tensor, " B"]: ...


class BatchStream(Generic[T]):
    """Endless batches: ``order(epoch)`` gives row numbers, ``collate(rows)`` a batch, ``count`` its weight.

    `collate` must depend on nothing but the rows: several threads call it, in any order.
    """

    def __init__(
        self, order: Callable[[int], BatchOrder], collate: Callable[[Tensor], T], count: Callable[[T], int]
    ) -> None:
        self.order, self.collate, self.count = order, collate, count

    def start(self, start: StreamPosition, replica: int = 0, num_replicas: int = 1) -> BatchIterator[T]:
        """Return all batches from a position on.

        With several replicas, each gets the rows replica, replica + num_replicas, ... of every batch, so that the batch
        is the same whatever the number of processes that share it. A replica without rows gets the first row, to have
        something to compute with, and a count of 0.
        """
        if not 0 <= replica < num_replicas:
            raise BadInput(f"replica must be 0 to {num_replicas - 1}, got {replica}")
        return BatchIterator(self._jobs(start, replica, num_replicas))

    def _jobs(self, start: StreamPosition, replica: int, num_replicas: int) -> Iterator[Callable[[], StreamItem[T]]]:
        epoch, position = start.epoch, start.position
        while True:
            rows = self.order(epoch)
            if position > len(rows):
                raise BadInput(
                    f"the data have {len(rows)} batches per epoch, but the checkpoint is at batch {position}: they are "
                    f"not the data this run was started with"
                )
            if not len(rows):
                raise BadInput("the data have no batch")
            while position < len(rows):
                all_rows = rows[position]
                position += 1
                next_position = (
                    StreamPosition(epoch, position) if position < len(rows) else StreamPosition(epoch + 1, 0)
                )
                yield partial(self._make_item, all_rows, replica, num_replicas, next_position)
            epoch, position = epoch + 1, 0

    def _make_item(
        self, all_rows: Tensor, replica: int, num_replicas: int, next_position: StreamPosition
    ) -> StreamItem[T]:
        replica_rows = all_rows[replica::num_replicas]
        batch = self.collate(replica_rows if len(replica_rows) else all_rows[:1])
        return StreamItem(batch, self.count(batch) if len(replica_rows) else 0, next_position)


class BatchIterator(Generic[T]):
    """Iterator over the batches of a stream; `jobs` makes them one by one, for several threads."""

    def __init__(self, jobs: Iterator[Callable[[], StreamItem[T]]]) -> None:
        self.jobs = jobs

    def __iter__(self) -> BatchIterator[T]:
        return self

    def __next__(self) -> StreamItem[T]:
        return next(self.jobs)()


class prefetch(Generic[T]):
    """Iterate in background threads, `ahead` items in advance, in order; errors there are raised here.

    `prepare` is applied to each item in the thread (pinning). With several workers, items of a stream are made in
    parallel; items of any other iterator are drawn one by one and prepared in parallel. Leaving the ``with`` block ends
    all threads.
    """

    def __init__(
        self, items: Iterable[T], ahead: int = 8, prepare: Callable[[T], T] | None = None, workers: int = 1
    ) -> None:
        if workers < 1:
            raise BadInput(f"train.num_workers must be 1 or more, got {workers}")
        self.jobs: Iterator[Callable[[], Any]] = (
            items.jobs if isinstance(items, BatchIterator) else (partial(_identity, item) for item in items)
        )
        self.prepare = prepare
        self.slots = threading.Semaphore(max(ahead, workers))  # limits the items drawn and not yet returned
        self.drawing = threading.Lock()  # one thread draws at a time
        self.drawn, self.returned = 0, 0
        self.ready: dict[int, tuple[list[T], BaseException | None]] = {}  # number -> the item, or the error
        self.changed = threading.Condition()
        self.over = threading.Event()
        self.threads = [
            threading.Thread(target=self._run, name=f"regard-batches-{i}", daemon=True) for i in range(workers)
        ]

    def __enter__(self) -> prefetch[T]:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self.changed:
            self.over.set()
            self.changed.notify_all()
        for _thread in self.threads:  # it may be waiting for a slot
            self.slots.release()
        for thread in self.threads:
            thread.join()
        self.ready.clear()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        with self.changed:
            self.changed.wait_for(lambda: self.returned in self.ready or self.over.is_set())
            if self.returned not in self.ready:
                raise StopIteration
            item, error = self.ready[self.returned]
            if error is not None:  # stays there, so that the next call raises it again
                raise error
            del self.ready[self.returned]
            self.returned += 1
        self.slots.release()
        return item[0]

    def _run(self) -> None:
        while True:
            self.slots.acquire()
            with self.drawing:
                if self.over.is_set():
                    return
                number, self.drawn = self.drawn, self.drawn + 1
                try:
                    job = next(self.jobs)
                except BaseException as error:  # raised in the thread that asks for the next batch
                    return self._fail(number, error)
            try:
                item = job()
                self._store(number, item if self.prepare is None else self.prepare(item))
            except BaseException as error:
                return self._fail(number, error)

    def _store(self, number: int, item: T) -> None:
        with self.changed:
            self.ready[number] = [item], None
            self.changed.notify_all()

    def _fail(self, number: int, error: BaseException) -> None:
        """Store an error as the last item; those before it are still returned."""
        with self.changed:
            self.ready[number] = [], error
            self.changed.notify_all()


def _identity(item: T) -> T:
    return item


def _batch_boundaries(longest: list[int], tokens: int) -> list[int]:
    """Return the boundaries of batches in rows sorted by length; rows x longest stays within `tokens`."""
    cuts, begin, end = [0], 0, len(longest)
    while begin < end:
        low, high = begin + 1, min(end, begin + tokens)  # the cost grows with every row, so bisect
        while low < high:
            middle = (low + high + 1) // 2
            if (middle - begin) * longest[middle - 1] <= tokens:
                low = middle
            else:
                high = middle - 1
        cuts.append(low)
        begin = low
    return cuts


def mix_seed(seed: int, epoch: int) -> int:
    """Hash seed and epoch into one number, so that neighbouring seeds and epochs share no stream."""
    x = (seed * 0x9E3779B97F4A7C15 + epoch * 0xBF58476D1CE4E5B9 + 0x94D049BB133111EB) & (2**64 - 1)
    x = ((x ^ (x >> 31)) * 0xD6E8FEB86659FD93) & (2**64 - 1)
    return (x ^ (x >> 32)) & (2**63 - 1)
