"""Batches of about so many tokens, in an order that depends on (seed, epoch) alone and can be taken up in mid-epoch.

    TokenBatches    one epoch's batches, as tensors of row numbers: alike in length, so that little is padding
    RowBatches      the same, so many rows each, whatever their length
    LengthBucketedBatches    the same, so many rows each, alike in length
    Stream          epoch after epoch of them, turned into tensors, each with the place that comes after it
    prefetch        the same, made ahead by background threads and pinned, so that a fast device never waits

The state of the data is two numbers, (epoch, position). It is handed out *with* each batch and not read off the stream,
since the stream runs ahead of the training that uses it. Neither the number of processes that share a batch nor the
number of threads that make batches is part of it: both may change when a run is taken up again.

Threads and not processes make batches: what takes time there (copying out of a memory map, gathering, decoding an
image) lets go of the interpreter, and nothing has to be sent through a pipe.
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

BUCKET_BATCHES = 32  # batches among which rows are sorted


class TokenBatches:
    """The batches of one epoch: rows of similar length, at most `tokens` numbers on the longer side, padding included.

    Rows are shuffled, sorted by length (so that only rows of equal length keep the shuffled order), cut into batches,
    and the batches are shuffled. Both shuffles come from (seed, epoch). A row that is longer than `tokens` is an error.
    """

    def __init__(
        self, *lengths: Int[Tensor, " rows"], tokens: int = 4096, seed: int = 0, epoch: int = 0, multiple: int = 1
    ) -> None:
        sizes = torch.stack(lengths)
        if sizes.shape[1] == 0:
            raise BadInput("there is nothing to make batches of: the data hold no usable sentence pair")
        longest = sizes.amax(0)
        if round_up(int(longest.max()), multiple) > tokens:
            raise BadInput(
                f"a sentence pair is {int(longest.max())} tokens long, but a batch holds {tokens}: "
                f"raise data.batch_tokens or lower data.max_length"
            )
        generator = torch.Generator().manual_seed(mix_seed(seed, epoch))
        order = torch.randperm(sizes.shape[1], generator=generator)
        for key in (*sizes, longest):  # stable sorts, the last is the first criterion; equal once padded is equal
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
    """The batches of one epoch: so many rows each, in an order of the key's; those left over wait for another."""

    def __init__(self, size: int, rows: int, key: int) -> None:
        if rows < 1:
            raise BadInput(f"a batch of {rows} rows holds nothing; give 1 or more")
        self.rows, self.shuffle = rows, Shuffle(size, key)

    def __len__(self) -> int:
        size = self.shuffle.size
        return max(min(size, 1), size // self.rows)  # all there are, where that is less than a batch

    def __getitem__(self, i: int) -> Int[Tensor, " B"]:
        if not 0 <= i < len(self):
            raise IndexError(i)
        places = np.arange(i * self.rows, min((i + 1) * self.rows, self.shuffle.size))
        return torch.from_numpy(self.shuffle(places))


class LengthBucketedBatches:
    """The batches of one epoch: so many rows each, alike in length; those left over wait for another epoch.

    Rows are shuffled, sorted by length among `BUCKET_BATCHES` batches' worth of them, cut, and the batches are shuffled: which
    rows meet is left to chance but for their length.
    """

    def __init__(self, lengths: Int[Tensor, " rows"], rows: int, key: int) -> None:
        shuffled = RowBatches(len(lengths), rows, key)
        groups = range(0, len(shuffled), BUCKET_BATCHES)
        picked = [torch.cat([shuffled[i] for i in range(at, min(at + BUCKET_BATCHES, len(shuffled)))]) for at in groups]
        alike = [group[torch.sort(lengths[group], stable=True).indices].split(rows) for group in picked]
        batches = [batch for group in alike for batch in group]
        self.batches = [batches[i] for i in Shuffle(len(batches), key)(np.arange(len(batches)))]

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, i: int) -> Int[Tensor, " B"]:
        return self.batches[i]


@dataclass(frozen=True)
class StreamPosition:
    """Where in the data one is: so many whole epochs, and so many batches of the next."""

    epoch: int = 0
    position: int = 0


@dataclass(frozen=True)
class StreamItem(Generic[T]):
    """A batch, how much it counts for (tokens, rows), and the place after it."""

    batch: T
    count: int
    next_position: StreamPosition


class BatchOrder(Protocol):
    """The batches of one epoch as row numbers: so many, and the i-th of them."""

    def __len__(self) -> int: ...

    def __getitem__(self, i: int, /) -> Int[Tensor, " B"]: ...


class BatchStream(Generic[T]):
    """Batches without end: ``order(epoch)`` gives row numbers, ``collate(rows)`` a batch, ``count`` its weight.

    `collate` must depend on nothing but the rows: several threads call it, in any order.
    """

    def __init__(
        self, order: Callable[[int], BatchOrder], collate: Callable[[Tensor], T], count: Callable[[T], int]
    ) -> None:
        self.order, self.collate, self.count = order, collate, count

    def start(self, place: StreamPosition, replica: int = 0, num_replicas: int = 1) -> BatchIterator[T]:
        """All batches from a place on; of each, with several shares, the rows share, share + shares, ...

        So the batch is the same whatever the number of processes that share it. One whose part is empty gets the
        first row, to have something to compute with, and a count of 0.
        """
        if not 0 <= replica < num_replicas:
            raise BadInput(f"share {replica} of {num_replicas}: shares are numbered from 0 to {num_replicas - 1}")
        return BatchIterator(self._jobs(place, replica, num_replicas))

    def _jobs(self, place: StreamPosition, replica: int, num_replicas: int) -> Iterator[Callable[[], StreamItem[T]]]:
        epoch, position = place.epoch, place.position
        while True:
            rows = self.order(epoch)
            if position > len(rows):
                raise BadInput(
                    f"the data have {len(rows)} batches an epoch, but the checkpoint stands at {position}: "
                    f"they are not the data this run was started with"
                )
            if not len(rows):
                raise BadInput("there is nothing to make batches of: an epoch of the data holds no batch")
            while position < len(rows):
                whole = rows[position]
                position += 1
                after = StreamPosition(epoch, position) if position < len(rows) else StreamPosition(epoch + 1, 0)
                yield partial(self._make, whole, replica, num_replicas, after)
            epoch, position = epoch + 1, 0

    def _make(self, whole: Tensor, replica: int, num_replicas: int, next_position: StreamPosition) -> StreamItem[T]:
        own = whole[replica::num_replicas]
        batch = self.collate(own if len(own) else whole[:1])
        return StreamItem(batch, self.count(batch) if len(own) else 0, next_position)


class BatchIterator(Generic[T]):
    """An iterator over the batches of a stream that can also hand out the making of them, for several threads to do."""

    def __init__(self, jobs: Iterator[Callable[[], StreamItem[T]]]) -> None:
        self.jobs = jobs

    def __iter__(self) -> BatchIterator[T]:
        return self

    def __next__(self) -> StreamItem[T]:
        return next(self.jobs)()


class prefetch(Generic[T]):
    """Draw from an iterator in background threads, `ahead` items in advance, in order; an error there is raised here.

    `pack_weights` is done to each item in the thread (pinning). With several workers, items of a stream are made side by
    side; of any other iterator they are drawn one by one, and prepared side by side. Leaving the ``with`` block ends
    all threads.
    """

    def __init__(
        self, items: Iterable[T], ahead: int = 8, prepare: Callable[[T], T] | None = None, workers: int = 1
    ) -> None:
        if workers < 1:
            raise BadInput(f"{workers} threads cannot make batches; give 1 or more")
        self.jobs: Iterator[Callable[[], Any]] = (
            items.jobs if isinstance(items, BatchIterator) else (partial(_identity, item) for item in items)
        )
        self.prepare = prepare
        self.room = threading.Semaphore(max(ahead, workers))  # items drawn and not yet handed out
        self.drawing = threading.Lock()  # one at a time
        self.drawn, self.taken = 0, 0
        self.ready: dict[int, tuple[list[T], BaseException | None]] = {}  # number -> the item, or what went wrong
        self.news = threading.Condition()
        self.over = threading.Event()
        self.threads = [
            threading.Thread(target=self._run, name=f"regard-batches-{i}", daemon=True) for i in range(workers)
        ]

    def __enter__(self) -> prefetch[T]:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self.news:
            self.over.set()
            self.news.notify_all()
        for _one in self.threads:  # it may be waiting for room
            self.room.release()
        for thread in self.threads:
            thread.join()
        self.ready.clear()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        with self.news:
            self.news.wait_for(lambda: self.taken in self.ready or self.over.is_set())
            if self.taken not in self.ready:
                raise StopIteration
            item, error = self.ready[self.taken]
            if error is not None:  # it stays where it is: asked again, it is raised again
                raise error
            del self.ready[self.taken]
            self.taken += 1
        self.room.release()
        return item[0]

    def _run(self) -> None:
        while True:
            self.room.acquire()
            with self.drawing:
                if self.over.is_set():
                    return
                number, self.drawn = self.drawn, self.drawn + 1
                try:
                    job = next(self.jobs)
                except BaseException as error:  # it belongs to whoever asks for the next batch
                    return self._last(number, error)
            try:
                item = job()
                self._put(number, item if self.prepare is None else self.prepare(item))
            except BaseException as error:
                return self._last(number, error)

    def _put(self, number: int, item: T) -> None:
        with self.news:
            self.ready[number] = [item], None
            self.news.notify_all()

    def _last(self, number: int, error: BaseException) -> None:
        """After this one there is nothing more to draw; those before it still come."""
        with self.news:
            self.ready[number] = [], error
            self.news.notify_all()


def _identity(item: T) -> T:
    return item


def _batch_boundaries(longest: list[int], tokens: int) -> list[int]:
    """Where batches begin and end, in rows sorted by length; rows x the longest of them stays within `tokens`."""
    cuts, begin, end = [0], 0, len(longest)
    while begin < end:
        low, high = begin + 1, min(end, begin + tokens)  # the cost grows with every row, so halve the interval
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
    """One number of the two, so that neighbouring seeds and epochs share no stream."""
    x = (seed * 0x9E3779B97F4A7C15 + epoch * 0xBF58476D1CE4E5B9 + 0x94D049BB133111EB) & (2**64 - 1)
    x = ((x ^ (x >> 31)) * 0xD6E8FEB86659FD93) & (2**64 - 1)
    return (x ^ (x >> 32)) & (2**63 - 1)
