"""Progress of a run: a bar in a terminal, plain lines in a log file; and metrics.jsonl.

metrics.jsonl has one JSON object per line. A resumed run first drops the rows after its checkpoint, so that the file
reads as if the run had never stopped.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from regard.core.errors import BadInput
from regard.core.files import atomic_write


class Progress:
    """A bar if stderr is a terminal, else a line at most every `every` seconds."""

    def __init__(self, steps: int, done: int = 0, every: float = 10.0) -> None:
        self.steps, self.done, self.every = steps, done, every
        self.began, self.first, self.last_line_time = time.monotonic(), done, -math.inf
        self.bar: Any = None
        self.task: Any = None

    def __enter__(self) -> Progress:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar

            columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
            self.bar = Bar(*columns, console=Console(stderr=True), refresh_per_second=4)
            self.bar.start()
            self.task = self.bar.add_task("...", total=self.steps, completed=self.done)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, update: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()

    def update(self, step: int, numbers: Mapping[str, float]) -> None:
        """Show the step and the newest numbers."""
        self.done = step
        words = "  ".join(f"{name} {format_number(value)}" for name, value in numbers.items())
        words += f"  left {self.time_left()}"
        if self.bar is not None:
            self.bar.update(self.task, completed=step, description=words)
        elif time.monotonic() - self.last_line_time >= self.every:
            self.last_line_time = time.monotonic()
            print(f"step {step}/{self.steps}  {words}", file=sys.stderr, flush=True)

    def advance(self, step: int) -> None:
        """Move the bar without new numbers."""
        if self.bar is not None:
            self.bar.update(self.task, completed=step)

    def print_line(self, line: str) -> None:
        """Print a line above the bar."""
        if self.bar is not None:
            self.bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            print(line, file=sys.stderr, flush=True)

    def time_left(self) -> str:
        """Return the remaining time at the speed of this session so far."""
        new = self.done - self.first
        if new <= 0:
            return "?"
        return format_seconds((time.monotonic() - self.began) / new * (self.steps - self.done))


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

    def print_line(self, line: str) -> None:
        pass


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
