"""Batches of about so many tokens, in an order that depends on (seed, epoch) alone and can be taken up in mid-epoch.

    TokenBatches    one epoch's batches, as tensors of row numbers: alike in length, so that little is padding
    Stream          epoch after epoch of them, turned into tensors, each with the place that comes after it
    prefetch        the same, made ahead in a background thread and pinned, so that a fast device never waits

The state of the data is two numbers, (epoch, position). It is handed out *with* each batch and not read off the stream,
since the stream runs ahead of the training that uses it.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch

from regard.core.errors import BadInput
from regard.core.shapes import Int, Tensor
from regard.data.flat import rounded

T = TypeVar("T")


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
        if rounded(int(longest.max()), multiple) > tokens:
            raise BadInput(
                f"a sentence pair is {int(longest.max())} tokens long, but a batch holds {tokens}: "
                f"raise data.tokens or lower data.longest"
            )
        generator = torch.Generator().manual_seed(_mix(seed, epoch))
        order = torch.randperm(sizes.shape[1], generator=generator)
        for key in (*sizes, longest):  # stable sorts, the last is the first criterion; equal once padded is equal
            order = order[torch.sort((key[order] + multiple - 1) // multiple, stable=True).indices]
        longest = longest[order]
        cuts = _cut([rounded(n, multiple) for n in longest.tolist()], tokens)
        shuffled = torch.randperm(len(cuts) - 1, generator=generator).tolist()
        self.batches = [order[cuts[i] : cuts[i + 1]] for i in shuffled]

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, i: int) -> Int[Tensor, " B"]:
        return self.batches[i]

    def __iter__(self) -> Iterator[Int[Tensor, " B"]]:
        return iter(self.batches)


@dataclass(frozen=True)
class Place:
    """Where in the data one is: so many whole epochs, and so many batches of the next."""

    epoch: int = 0
    position: int = 0


@dataclass(frozen=True)
class Drawn(Generic[T]):
    """A batch, how much it counts for (tokens, rows), and the place after it."""

    batch: T
    count: int
    after: Place


class Stream(Generic[T]):
    """Batches without end: ``order(epoch)`` gives row numbers, ``collate(rows)`` a batch, ``count`` its weight."""

    def __init__(
        self, order: Callable[[int], TokenBatches], collate: Callable[[Tensor], T], count: Callable[[T], int]
    ) -> None:
        self.order, self.collate, self.count = order, collate, count

    def start(self, place: Place) -> Iterator[Drawn[T]]:
        """All batches from a place on."""
        epoch, position = place.epoch, place.position
        while True:
            rows = self.order(epoch)
            if position > len(rows):
                raise BadInput(
                    f"the data have {len(rows)} batches an epoch, but the checkpoint stands at {position}: "
                    f"they are not the data this run was started with"
                )
            while position < len(rows):
                batch = self.collate(rows[position])
                position += 1
                after = Place(epoch, position) if position < len(rows) else Place(epoch + 1, 0)
                yield Drawn(batch, self.count(batch), after)
            epoch, position = epoch + 1, 0


class prefetch(Generic[T]):
    """Draw from an iterator in a background thread, `ahead` items in advance; an error there is raised here.

    `prepare` is done to each item in the thread (pinning). Leaving the ``with`` block ends the thread.
    """

    def __init__(self, items: Iterator[T], ahead: int = 8, prepare: Callable[[T], T] | None = None) -> None:
        self.items, self.prepare = items, prepare
        self.queue: queue.Queue[Any] = queue.Queue(maxsize=ahead)
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._run, name="regard-batches", daemon=True)

    def __enter__(self) -> prefetch[T]:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        while self.thread.is_alive():  # it may be waiting for room
            with contextlib.suppress(queue.Empty):
                self.queue.get(timeout=0.01)
        self.thread.join()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        item, error = self.queue.get()
        if error is not None:
            raise error
        found: T = item
        return found

    def _run(self) -> None:
        try:
            for item in self.items:
                if self.over.is_set():
                    return
                self._put((item if self.prepare is None else self.prepare(item), None))
            self._put((None, StopIteration()))
        except BaseException as error:  # it belongs to whoever asks for the next batch
            self._put((None, error))

    def _put(self, item: Any) -> None:
        while not self.over.is_set():
            try:
                return self.queue.put(item, timeout=0.1)
            except queue.Full:
                continue


def _cut(longest: list[int], tokens: int) -> list[int]:
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


def _mix(seed: int, epoch: int) -> int:
    """One number of the two, so that neighbouring seeds and epochs share no stream."""
    x = (seed * 0x9E3779B97F4A7C15 + epoch * 0xBF58476D1CE4E5B9 + 0x94D049BB133111EB) & (2**64 - 1)
    x = ((x ^ (x >> 31)) * 0xD6E8FEB86659FD93) & (2**64 - 1)
    return (x ^ (x >> 32)) & (2**63 - 1)
