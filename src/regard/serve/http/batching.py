"""Dynamic batching: requests that arrive together run together, and none changes another's answer.

    one thread for each model      nothing else computes with it, so nothing else has to lock it
    one queue                      bounded; where it is full a request is refused at once, with a time to come back
    a group                        the oldest request, and those behind it that ask for the same thing in the same way

A group is formed of what waits; only where nothing ran before it does the oldest wait for company, `wait` seconds at
most. So a lone request is answered at once, and under load groups grow by themselves while the one before them runs.

The work of a group is a function of all its items: a list of answers, or a generator that yields lists of (item, news)
while it goes on and returns that list. Generators take turns, a step each, so that a long text holds nobody up; one
whose requests are all gone (answered late, or their clients left) is closed. Where a group fails, its requests are
tried one by one, so that each gets its own error or its own answer.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Hashable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

MAX_GENERATORS = 4  # generators that take turns; more wait, and so come together

BatchFunction = Callable[
    [list[Any]], Any
]  # items -> answers, or a generator of lists of (item, news) that returns them
ProgressCallback = Callable[[int, Any], None]  # told (item, news)


class Unavailable(Exception):
    """A request that is not taken now; it may come back after so many seconds."""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class QueueFull(Unavailable):
    """Too many wait already."""


class ShuttingDown(Unavailable):
    """The service is about to stop."""


class DeadlineExceeded(Unavailable):
    """No answer in time."""


@dataclass(eq=False)
class Job:
    """One request: what it is like (jobs of one key may run together), what it holds, and where its answer goes."""

    key: Hashable
    items: list[Any]
    run: BatchFunction
    on_progress: ProgressCallback | None = None
    weight: int = 0  # how much of a group it is; 0: as its items
    future: Future[list[Any]] = field(default_factory=Future)
    since: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.weight = self.weight or len(self.items)

    @property
    def is_abandoned(self) -> bool:
        """Nobody waits for it any more."""
        return self.future.done()

    def answer(self, found: Sequence[Any]) -> None:
        """Here it is; to whoever is still there."""
        with suppress(InvalidStateError):
            self.future.set_result(list(found))

    def fail(self, error: BaseException) -> None:
        """It could not be answered."""
        with suppress(InvalidStateError):
            self.future.set_exception(error)


@dataclass(eq=False)
class _RunningBatch:
    """A group whose work is a generator."""

    jobs: list[Job]
    work: Generator[Sequence[tuple[int, Any]], None, Sequence[Any]]
    told: bool = False  # whether anybody has been told anything
    since: float = field(default_factory=time.monotonic)


class Batcher:
    """The thread of a model and the queue before it. `observe` is told (jobs, items, seconds) of every group."""

    def __init__(
        self,
        max_queue_size: int = 256,
        max_batch_size: int = 64,
        wait: float = 0.005,
        max_generators: int = MAX_GENERATORS,
        on_batch: Callable[[int, int, float], None] | None = None,
        name: str = "model",
    ) -> None:
        self.max_queue_size, self.max_batch_size, self.wait, self.max_generators, self.on_batch = (
            max_queue_size,
            max_batch_size,
            wait,
            max_generators,
            on_batch,
        )
        self.lock = threading.RLock()  # held while the model computes
        self._waiting: deque[Job] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._each = 0.05  # seconds a request takes, about
        self._thread = threading.Thread(target=self._work, name=f"regard {name}", daemon=True)
        self._begun = False

    # -- those who ask -------------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    def retry_after(self) -> int:
        """When it is worth coming back, in whole seconds."""
        return min(60, max(1, math.ceil(self._each * len(self._waiting))))

    def put(
        self,
        key: Hashable,
        items: Sequence[Any],
        run: BatchFunction,
        on_progress: ProgressCallback | None = None,
        weight: int = 0,
    ) -> Job:
        """Stand in the queue, or be refused."""
        job = Job(key, list(items), run, on_progress, weight)
        with self._changed:
            if self._closing:
                raise ShuttingDown("the service is about to stop", 5)
            if len(self._waiting) >= self.max_queue_size:
                self._waiting = deque(job for job in self._waiting if not job.is_abandoned)
            if len(self._waiting) >= self.max_queue_size:
                raise QueueFull(
                    f"{self.max_queue_size} requests wait for this model already; come back later", self.retry_after()
                )
            self._waiting.append(job)
            if not self._begun:
                self._begun = True
                self._thread.start()
            self._changed.notify()
        return job

    async def ask(
        self,
        key: Hashable,
        items: Sequence[Any],
        run: BatchFunction,
        seconds: float,
        on_progress: ProgressCallback | None = None,
        weight: int = 0,
    ) -> list[Any]:
        """The answers to some items, or Late. A request that is given up leaves the queue."""
        job = self.put(key, items, run, on_progress, weight)
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.wrap_future(job.future)
        except TimeoutError:
            if job.future.done() and not job.future.cancelled() and job.future.exception() is not None:
                raise  # the work's own
            raise DeadlineExceeded(
                f"no answer within {seconds:g} s; ask for less, or come back later", self.retry_after()
            ) from None

    def close(self, grace: float = 10.0) -> None:
        """Take no more, finish what waits; what is not done after `grace` seconds is given up."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._begun:
            self._thread.join(grace)
        with self._changed:
            for job in self._waiting:
                job.fail(ShuttingDown("the service has stopped", 5))
            self._waiting.clear()

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        going: deque[_RunningBatch] = deque()
        idle = True
        while True:
            group = self._group(going, idle)
            if group is None and not going:
                return
            began = time.monotonic()
            if group:
                self._start(group, going)
            for _ in range(len(going)):
                one = going.popleft()
                if self._step(one, going):
                    going.append(one)
            idle = not group and not going
            if group and not going:
                self._learn(time.monotonic() - began, group)

    def _learn(self, seconds: float, jobs: Sequence[Job]) -> None:
        """How long a request takes, about: what those who are refused are told goes by it."""
        self._each += 0.2 * (seconds / len(jobs) - self._each)

    def _group(self, going: Sequence[_RunningBatch], idle: bool) -> list[Job] | None:
        """Those who are next; an empty list where others have a turn first, None at the end."""
        with self._changed:
            if len(going) >= self.max_generators:
                return []
            if not going:
                while not self._waiting and not self._closing:
                    idle = True
                    self._changed.wait()
            if not self._waiting:
                return [] if going else None
            if idle and not going and not self._closing:
                self._company()
            return self._picked()

    def _company(self) -> None:
        """Wait a little for others that go with the oldest."""
        first = self._waiting[0]
        until = first.since + self.wait
        while (left := until - time.monotonic()) > 0 and not self._closing:
            if sum(job.weight for job in self._waiting if job.key == first.key) >= self.max_batch_size:
                return
            self._changed.wait(left)

    def _picked(self) -> list[Job]:
        """The oldest that is still wanted and those that go with it, as many as a group may hold, in their order."""
        picked, left, full = list[Job](), deque[Job](), 0
        for job in self._waiting:
            if job.is_abandoned:
                continue
            if not picked or (job.key == picked[0].key and full + job.weight <= self.max_batch_size):
                picked.append(job)
                full += job.weight
            else:
                left.append(job)
        self._waiting = left
        return picked

    def _start(self, jobs: list[Job], going: deque[_RunningBatch]) -> None:
        """Do the work of a group, or begin it; where it fails, of each by itself."""
        if not jobs:
            return
        began, items = time.monotonic(), [item for job in jobs for item in job.items]
        try:
            with self.lock:
                found = jobs[0].run(items)
            if isinstance(found, Generator):
                going.append(_RunningBatch(jobs, found))
            else:
                _resolve(jobs, found)
        except BaseException as error:
            self._failed(jobs, error, going)
        if self.on_batch is not None:
            self.on_batch(len(jobs), len(items), time.monotonic() - began)

    def _step(self, one: _RunningBatch, going: deque[_RunningBatch]) -> bool:
        """One step of a group; whether there are more. Where nobody waits for it there are none."""
        if all(job.is_abandoned for job in one.jobs):
            one.work.close()
            return False
        try:
            with self.lock:
                news = next(one.work)
            for item, what in news:
                one.told = True
                _report_progress(one.jobs, item, what)
            return True
        except StopIteration as stop:
            _resolve(one.jobs, stop.value)
            self._learn((time.monotonic() - one.since) / (1 + len(going)), one.jobs)
        except BaseException as error:
            self._failed(one.jobs, error, going, again=not one.told)
        return False

    def _failed(self, jobs: list[Job], error: BaseException, going: deque[_RunningBatch], again: bool = True) -> None:
        """The error of a lone request is its own; of several each is tried `again` by itself."""
        if len(jobs) == 1 or not again:
            for job in jobs:
                job.fail(error)
        else:
            for job in jobs:
                self._start([job], going)


def _resolve(jobs: Sequence[Job], found: Sequence[Any]) -> None:
    at = 0
    for job in jobs:
        job.answer(found[at : at + len(job.items)])
        at += len(job.items)


def _report_progress(jobs: Sequence[Job], item: int, news: Any) -> None:
    for job in jobs:
        if item < len(job.items):
            if job.on_progress is not None and not job.is_abandoned:
                job.on_progress(item, news)
            return
        item -= len(job.items)
