"""Progress of a run: a bar in a terminal, plain lines in a log file; and metrics.jsonl.

metrics.jsonl has one JSON object per line. A resumed run first drops the rows after its checkpoint, so that the file
reads as if the run had never stopped.
"""

from __future__ import annotations

import json
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from regard.core.errors import BadInput
from regard.core.files import atomic_write

FIRST_LINE = 5.0  # seconds


class Progress:
    """A bar if stderr is a terminal, else a line every `every` seconds, and the first within `FIRST_LINE` seconds.

    A thread prints where the run does not: however long an update takes, a line says how long it has been at it.
    `limit` returns the seconds that a time limit leaves, or None.
    """

    def __init__(
        self,
        steps: int,
        done: int = 0,
        every: float = 10.0,
        limit: Callable[[], float | None] = lambda: None,
    ) -> None:
        self.steps, self.done, self.every, self.limit = steps, done, every, limit
        self.began, self.first, self.last_line_time = time.monotonic(), done, -math.inf
        self.moved_at, self.words = self.began, ""
        self.bar: Any = None
        self.task: Any = None
        self._ended = threading.Event()
        self._ticker: threading.Thread | None = None

    def __enter__(self) -> Progress:
        self._start_ticker()
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn
            from rich.progress import Progress as Bar
            from rich.table import Column

            # In a narrow terminal the bar gives way, then the end of the text; the count is never cut.
            columns = BarColumn(None, table_column=Column(max_width=40)), TextColumn("{task.description}", markup=False)
            self.bar = Bar(*columns, console=Console(stderr=True), refresh_per_second=4)
            self.bar.start()
            self.task = self.bar.add_task(f"{self.done}/{self.steps}  ...", total=self.steps, completed=self.done)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, update: TracebackType | None
    ) -> None:
        self._stop_ticker()
        if self.bar is not None:
            self.bar.stop()

    def _start_ticker(self) -> None:
        self._ticker = threading.Thread(target=self._tick, name="progress", daemon=True)
        self._ticker.start()

    def _stop_ticker(self) -> None:
        self._ended.set()
        if self._ticker is not None:
            self._ticker.join(timeout=2)

    def update(self, step: int, numbers: Mapping[str, float]) -> None:
        """Show the step and the newest numbers."""
        self.words = "  ".join(f"{name} {format_number(value)}" for name, value in numbers.items())
        self._move(step)
        if self.bar is not None or time.monotonic() - self.last_line_time >= self.every:
            self._show()

    def advance(self, step: int) -> None:
        """Show the step without new numbers."""
        self._move(step)
        if self.bar is not None or time.monotonic() - self.last_line_time >= self.every:
            self._show()

    def _move(self, step: int) -> None:
        self.moved_at = time.monotonic() if step != self.done else self.moved_at
        self.done = step

    def is_due(self) -> bool:
        """Whether nothing was shown for a second: time to show something."""
        return time.monotonic() - self.moved_at > 1

    def _show(self, more: str = "") -> None:
        words = "  ".join(filter(None, (self.words, more, f"left {self.time_left()}")))
        if self.bar is not None:
            count = f"{self.done}/{self.steps} in {format_seconds(time.monotonic() - self.began)}"
            self.bar.update(self.task, completed=self.done, description=f"{count}  {words}")
        else:
            self.last_line_time = time.monotonic()
            print(f"step {self.done}/{self.steps}  {words}", file=sys.stderr, flush=True)

    def _tick(self) -> None:
        """Show how long an update (or an evaluation) takes, where the run shows nothing itself."""
        while not self._ended.wait(1.0):
            now = time.monotonic()
            waited = FIRST_LINE - 1 if self.last_line_time == -math.inf else self.every
            since = self.began if self.last_line_time == -math.inf else self.last_line_time
            if now - self.moved_at > 2 and (self.bar is not None or now - since >= waited):
                self._show(f"working for {format_seconds(now - self.moved_at)}")

    def print_line(self, line: str) -> None:
        """Print a line above the bar."""
        if self.bar is not None:
            self.bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            print(line, file=sys.stderr, flush=True)

    def time_left(self) -> str:
        """Return the remaining time at the speed of this session so far, and at most what a time limit leaves."""
        new, limit = self.done - self.first, self.limit()
        if new <= 0:
            return "?" if limit is None else f"at most {format_seconds(max(0.0, limit))}"
        left = (time.monotonic() - self.began) / new * (self.steps - self.done)
        return format_seconds(left if limit is None else max(0.0, min(left, limit)))


class NullProgress:
    """`Progress` of a process that prints nothing."""

    def __enter__(self) -> NullProgress:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, step: int, numbers: Mapping[str, float]) -> None:
        pass

    def advance(self, step: int) -> None:
        pass

    def is_due(self) -> bool:
        return False

    def print_line(self, line: str) -> None:
        pass


@contextmanager
def say_if_slow(line: str, seconds: float = 3.0, every: float = 10.0) -> Iterator[None]:
    """Print a line if the block takes longer than so many seconds, and again with its time as long as it lasts."""
    began, ended = time.monotonic(), threading.Event()

    def say() -> None:
        if ended.wait(seconds):
            return
        print(line, file=sys.stderr, flush=True)
        while not ended.wait(every):
            print(f"{line} {format_seconds(time.monotonic() - began)}", file=sys.stderr, flush=True)

    threading.Thread(target=say, name="say_if_slow", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


class MetricsFile:
    """metrics.jsonl, appended row by row; without `writes` rows are only kept in memory."""

    def __init__(self, path: Path, upto: int, writes: bool = True) -> None:
        self.path, self.writes = path, writes
        self.rows = [row for row in read_rows(path) if row.get("step", 0) <= upto] if writes else []
        text = "".join(json.dumps(row) + "\n" for row in self.rows)
        if writes:
            atomic_write(text.encode(), path)

    def add(self, row: dict[str, Any]) -> None:
        """Append a row; numbers that are not finite are written as null."""
        row = {key: None if isinstance(v, float) and not math.isfinite(v) else v for key, v in row.items()}
        self.rows.append(row)
        if not self.writes:
            return
        try:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        except OSError as error:
            raise BadInput(f"cannot write {self.path}: {(error.strerror or str(error)).lower()}") from None


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a metrics.jsonl; incomplete lines are skipped."""
    rows = []
    if path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines():
            with suppress(ValueError):
                rows.append(json.loads(line))
    return rows


def format_seconds(seconds: float) -> str:
    """Format seconds as 1:02:03 or 2:03."""
    minutes, rest = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def format_number(value: float) -> str:
    """Format a number in few characters."""
    if abs(value) < 1e-9:  # rounding errors
        return "0"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
