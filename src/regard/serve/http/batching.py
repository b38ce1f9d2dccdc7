"""Dynamic batching: requests that arrive together run together, and none changes another's answer.

    one thread per model     nothing else computes with the model, so no lock is needed
    one queue per model      bounded; a full queue refuses requests at once and says when to try again
    a batch                  the oldest request and those behind it with the same key (the same options)

A batch is formed from what waits. Only an idle model waits for more requests, at most `wait` seconds after the oldest
one arrived: a single request is answered at once, and under load batches grow while the one before them runs.

The work of a batch is a function of all its items. It returns a list of answers, or a generator that yields lists of
(item, news) after each step and returns the answers. Generators take turns, one step each, so that a long text does
not block others. A batch that nobody waits for any more, because its clients left or its time is up, is cancelled
(core.cancellation). If a batch fails, its requests are tried one by one: each gets its own answer or its own error.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Hashable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from regard.core.cancellation import Cancelled, cancel_when

MAX_GENERATORS = 4  # generators that take turns; more would wait, and so form larger batches

BatchFunction = Callable[[list[Any]], Any]  # items -> answers, or a generator (see above)
ProgressCallback = Callable[[int, Any], None]  # called with (item, news)


class Unavailable(Exception):
    """A request that cannot be answered now; the client may try again after `retry_after` seconds."""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class QueueFull(Unavailable):
    """Too many requests wait for the model."""


class ShuttingDown(Unavailable):
    """The service is stopping."""


class DeadlineExceeded(Unavailable):
    """The answer took too long."""


@dataclass(eq=False)
class Job:
    """One request in the queue of a model. Jobs with equal keys may run together."""

    key: Hashable
    items: list[Any]
    run: BatchFunction
    on_progress: ProgressCallback | None = None
    weight: int = 0  # its share of a batch; 0: the number of its items
    future: Future[list[Any]] = field(default_factory=Future)
    since: float = field(default_factory=time.monotonic)
    reported: Counter[int] = field(default_factory=Counter)  # news sent to the client, per item

    def __post_init__(self) -> None:
        self.weight = self.weight or len(self.items)

    @property
    def is_abandoned(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return self.future.done()

    def answer(self, found: Sequence[Any]) -> None:
        """Deliver the answers, unless nobody waits for them."""
        with suppress(InvalidStateError):
            self.future.set_result(list(found))

    def fail(self, error: BaseException) -> None:
        """Deliver an error, unless nobody waits for the answer."""
        with suppress(InvalidStateError):
            self.future.set_exception(error)


class _Batch:
    """Jobs that run together. Positions in the list of all their items lead back to a job and its own item."""

    def __init__(self, jobs: list[Job]) -> None:
        self.jobs, self.since = jobs, time.monotonic()
        self.owners = [(job, number) for job in jobs for number in range(len(job.items))]
        self.steps: Generator[Sequence[tuple[int, Any]], None, Sequence[Any]] | None = None
        self._seen = Counter[tuple[Job, int]]()  # news of this run, per item

    def is_abandoned(self) -> bool:
        return all(job.is_abandoned for job in self.jobs)

    def start(self) -> bool:
        """Run the work, or begin it where it is a generator; return whether there are more steps."""
        with cancel_when(self.is_abandoned):
            found = self.jobs[0].run([job.items[number] for job, number in self.owners])
        if isinstance(found, Generator):
            self.steps = found
            return True
        self._resolve(found)
        return False

    def step(self) -> bool:
        """Run one step of the generator and report its news; return whether there are more steps."""
        assert self.steps is not None
        try:
            with cancel_when(self.is_abandoned):
                news = next(self.steps)
        except StopIteration as stop:
            self._resolve(stop.value)
            return False
        for position, what in news:
            self._report(*self.owners[position], what)
        return True

    def close(self) -> None:
        """End the generator of a batch that is cancelled."""
        if self.steps is not None:
            self.steps.close()

    def _resolve(self, found: Sequence[Any]) -> None:
        if len(found) != len(self.owners):
            raise RuntimeError(f"a batch of {len(self.owners)} items got {len(found)} answers")
        answers: dict[Job, list[Any]] = {job: [] for job in self.jobs}
        for (job, _), answer in zip(self.owners, found, strict=True):
            answers[job].append(answer)
        for job, own in answers.items():
            job.answer(own)

    def _report(self, job: Job, item: int, what: Any) -> None:
        """Call a job's callback; a job that runs again, alone, is not told twice. What the callback raises is the
        error of its job alone."""
        self._seen[job, item] += 1
        if job.on_progress is None or job.is_abandoned or self._seen[job, item] <= job.reported[item]:
            return
        job.reported[item] += 1
        try:
            job.on_progress(item, what)
        except Exception as error:
            job.fail(error)


class Batcher:
    """The thread of a model and the queue in front of it. `on_batch` gets (jobs, items, seconds) of every batch."""

    def __init__(
        self,
        max_queue_size: int = 256,
        max_batch_size: int = 64,
        wait: float = 0.005,
        max_generators: int = MAX_GENERATORS,
        on_batch: Callable[[int, int, float], None] | None = None,
        name: str = "model",
    ) -> None:
        self.max_queue_size, self.max_batch_size, self.wait = max_queue_size, max_batch_size, wait
        self.max_generators, self.on_batch = max_generators, on_batch
        self._waiting: deque[Job] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._seconds_per_request = 0.05  # running average
        self._thread = threading.Thread(target=self._work, name=f"regard {name}", daemon=True)
        self._started = False

    # -- called by requests --------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """The number of waiting requests."""
        return len(self._waiting)

    def retry_after(self) -> int:
        """Return after how many seconds the queue should have been worked off, from 1 to 60."""
        return min(60, max(1, math.ceil(self._seconds_per_request * len(self._waiting))))

    def put(
        self,
        key: Hashable,
        items: Sequence[Any],
        run: BatchFunction,
        on_progress: ProgressCallback | None = None,
        weight: int = 0,
    ) -> Job:
        """Add a request to the queue; raise `QueueFull` or `ShuttingDown` where it is not accepted."""
        job = Job(key, list(items), run, on_progress, weight)
        with self._changed:
            if self._closing:
                raise ShuttingDown("The service is stopping.", 5)
            if len(self._waiting) >= self.max_queue_size:
                self._waiting = deque(job for job in self._waiting if not job.is_abandoned)
            if len(self._waiting) >= self.max_queue_size:
                message = f"{self.max_queue_size} requests wait for this model already; try again later."
                raise QueueFull(message, self.retry_after())
            self._waiting.append(job)
            if not self._started:
                self._started = True
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
        """Return the answers to some items; raise `DeadlineExceeded` after `seconds`. A cancelled call, or one that
        runs out of time, leaves the queue, and its work stops."""
        job = self.put(key, items, run, on_progress, weight)
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.wrap_future(job.future)
        except TimeoutError:
            if job.future.done() and not job.future.cancelled() and job.future.exception() is not None:
                raise  # raised by the work itself
            message = f"No answer within {seconds:g} s; ask for less, or try again later."
            raise DeadlineExceeded(message, self.retry_after()) from None

    def close(self, timeout: float = 10.0) -> None:
        """Accept no more requests and finish those that wait; after `timeout` seconds the others fail."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._started:
            self._thread.join(timeout)
        with self._changed:
            for job in self._waiting:
                job.fail(ShuttingDown("The service has stopped.", 5))
            self._waiting.clear()

    # -- the model's thread --------------------------------------------------------------------------------------------

    def _work(self) -> None:
        running: deque[_Batch] = deque()  # batches whose work is a generator
        idle = True
        while True:
            jobs = self._next_jobs(running, idle)
            if jobs is None and not running:
                return
            if jobs:
                self._start(jobs, running)
            for _ in range(len(running)):
                batch = running.popleft()
                if self._step(batch, running):
                    running.append(batch)
            idle = not jobs and not running

    def _next_jobs(self, running: Sequence[_Batch], idle: bool) -> list[Job] | None:
        """Return the jobs of the next batch: empty where running batches go on first, None where all is done."""
        with self._changed:
            if len(running) >= self.max_generators:
                return []
            if not running:
                while not self._waiting and not self._closing:
                    idle = True
                    self._changed.wait()
            if not self._waiting:
                return [] if running else None
            if idle and not running and not self._closing:
                self._wait_for_more()
            return self._take()

    def _wait_for_more(self) -> None:
        """Wait a little for requests that can run together with the oldest."""
        first = self._waiting[0]
        until = first.since + self.wait
        while (left := until - time.monotonic()) > 0 and not self._closing:
            if sum(job.weight for job in self._waiting if job.key == first.key) >= self.max_batch_size:
                return
            self._changed.wait(left)

    def _take(self) -> list[Job]:
        """Remove and return the oldest request and those with its key, in their order, as many as a batch may hold."""
        taken, left, weight = list[Job](), deque[Job](), 0
        for job in self._waiting:
            if job.is_abandoned:
                continue
            if not taken or (job.key == taken[0].key and weight + job.weight <= self.max_batch_size):
                taken.append(job)
                weight += job.weight
            else:
                left.append(job)
        self._waiting = left
        return taken

    def _start(self, jobs: list[Job], running: deque[_Batch]) -> None:
        """Run the work of some jobs, or begin it."""
        batch = _Batch(jobs)
        try:
            if batch.start():
                running.append(batch)
            else:
                self._learn(time.monotonic() - batch.since, jobs)
        except BaseException as error:
            self._failed(batch, error, running)
        if self.on_batch is not None:
            self.on_batch(len(jobs), len(batch.owners), time.monotonic() - batch.since)

    def _step(self, batch: _Batch, running: deque[_Batch]) -> bool:
        """Run one step of a batch; return whether there are more."""
        if batch.is_abandoned():
            batch.close()
            return False
        try:
            if batch.step():
                return True
            self._learn((time.monotonic() - batch.since) / (1 + len(running)), batch.jobs)
        except BaseException as error:
            self._failed(batch, error, running)
        return False

    def _learn(self, seconds: float, jobs: Sequence[Job]) -> None:
        """Update the time that a request takes, from which `retry_after` is estimated."""
        self._seconds_per_request += 0.2 * (seconds / len(jobs) - self._seconds_per_request)

    def _failed(self, batch: _Batch, error: BaseException, running: deque[_Batch]) -> None:
        """Deliver the error of a single request; try each of several again, alone."""
        if isinstance(error, Cancelled):
            return
        waiting = [job for job in batch.jobs if not job.is_abandoned]
        for job in waiting:
            if len(batch.jobs) == 1:
                job.fail(error)
            else:
                self._start([job], running)
