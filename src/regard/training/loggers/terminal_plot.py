"""Live training curve in the terminal: ``regard train --watch``.

    4.81 ┤⡇                 the loss, in dots, two per character across and four down
         │⢣    ○            validation: ○, the best ●
    2.40 ┤ ⠑⠤⣀⣀⣀●⣀
         └───────────       updates
    bleu  ▁▃▆█ 31.2         every other metric: a line of blocks and its newest value

`render_curve` turns rows of metrics.jsonl into text; `TerminalPlot` shows it in a terminal with the interface of
`Progress`. Which numbers are curves is defined in regard.see.training_curve. Without a terminal plain lines are
printed.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from regard.metrics.base import Metric, find_metric
from regard.see.training_curve import Series, panels, series
from regard.training.loggers.progress import Progress, format_number

TRAIN_KEY, VAL_KEY = "loss", "val_loss"  # shown in the large panel
BLOCKS = "▁▂▃▄▅▆▇█"
DOTS = np.array(
    [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]]
)  # dots of a braille character, by row and column
LABEL_WIDTH = 9  # width of the axis labels


# -- rendering ---------------------------------------------------------------------------------------------------------


def render_curve(
    rows: Sequence[Mapping[str, Any]], width: int = 80, height: int = 20, metrics: Sequence[Metric] = ()
) -> list[str]:
    """Return the rows as `height` lines of text, none wider than `width`; `metrics` are those of the task."""
    found = series(rows)
    others = [key for panel in panels(found) for key in panel if key not in (TRAIN_KEY, VAL_KEY)]
    lines = [] if found else ["", "  nothing to draw yet"]
    if TRAIN_KEY in found or VAL_KEY in found:
        others = others[: max(0, height - 8)]  # at least eight lines for the panel
        lines = _panel(found, width, height - len(others))
    known = {key: find_metric(metrics, key) for key in others}
    names = {key: metric.name if metric else _label(key) for key, metric in known.items()}
    wide = max(map(len, names.values()), default=0)
    lines += [_blocks(names[key].rjust(wide), known[key], found[key], width) for key in others]
    lines = [line[:width].rstrip() for line in lines[:height]]
    return lines + [""] * (height - len(lines))


def _panel(found: Series, width: int, height: int) -> list[str]:
    """Draw losses over updates, with axes."""
    wide, high = max(1, width - LABEL_WIDTH - 2), max(1, height - 3)
    known = [found[key] for key in (TRAIN_KEY, VAL_KEY) if key in found]
    first, last = (float(f(at(steps) for steps, _, _ in known)) for f, at in ((min, np.min), (max, np.max)))
    low, top = (float(f(at(values) for _, values, _ in known)) for f, at in ((min, np.min), (max, np.max)))
    log = low > 0 and top / low > 5  # a loss that fell far: on a linear scale its end would be flat
    low, top = (math.log(low), math.log(top)) if log else (low, top)
    if top - low < 1e-9 * max(1.0, abs(top)):
        low, top = low - 0.5, top + 0.5

    def place(steps: np.ndarray, values: np.ndarray, across: int, down: int) -> tuple[np.ndarray, np.ndarray]:
        """Return columns and rows of points on a grid, the top row 0."""
        values = np.log(values) if log else values
        x = (steps - first) / max(last - first, 1e-9) * (across - 1)
        y = (top - values) / (top - low) * (down - 1)
        return x, np.clip(y, 0, down - 1)

    cells = np.zeros((high, wide), dtype=int)
    if TRAIN_KEY in found:
        steps, values, _ = found[TRAIN_KEY]
        if len(steps) > 2 * wide:  # more points than dots: average
            steps, values = (_means(x, 2 * wide) for x in (steps, values))
        _trace(cells, *place(steps, values, 2 * wide, 4 * high))
    grid = [[chr(0x2800 + cell) if cell else " " for cell in row] for row in cells]
    if VAL_KEY in found:
        steps, values, _ = found[VAL_KEY]
        x, y = (np.rint(at).astype(int) for at in place(steps, values, wide, high))
        best = int(values.argmin())
        for i in [*range(len(steps)), best]:  # the best last, on top
            grid[y[i]][x[i]] = "●" if i == best else "○"
    labels = {round(i * (high - 1) / n) for n in (max(1, high // 4),) for i in range(n + 1)}
    lines = [_legend(found, width)]
    for row, drawn in enumerate(grid):
        value = top - (top - low) * row / max(1, high - 1)
        label = _format_value(math.exp(value) if log else value) if row in labels else ""
        lines.append(f"{label:>{LABEL_WIDTH}} {'┤' if label else '│'}{''.join(drawn)}")
    return [*lines, " " * (LABEL_WIDTH + 1) + "└" + "─" * wide, _axis(first, last, wide)]


def _trace(cells: np.ndarray, x: np.ndarray, y: np.ndarray) -> None:
    """Set the dots of a line through points."""
    columns = np.arange(int(np.rint(x[0])), int(np.rint(x[-1])) + 1)
    heights = np.rint(np.interp(columns, x, y)).astype(int)
    before = heights[0]
    for column, here in zip(columns, heights, strict=True):
        for dot in range(min(before, here), max(before, here) + 1):
            cells[dot // 4, column // 2] |= DOTS[dot % 4, column % 2]
        before = here


def _legend(found: Series, width: int) -> str:
    words = []
    if TRAIN_KEY in found:
        words.append(f"⣀ {_label(TRAIN_KEY)} {_format_value(found[TRAIN_KEY][1][-1])}")
    if VAL_KEY in found:
        steps, values, _ = found[VAL_KEY]
        best = int(values.argmin())
        words.append(f"○ {_label(VAL_KEY)} {_format_value(values[-1])}")
        words.append(f"● best {_format_value(values[best])} at {int(steps[best]):,}")
    lost = sum(found[key][2] for key in (TRAIN_KEY, VAL_KEY) if key in found)
    if lost:
        words.append(f"{lost} not finite")
    return (" " * (LABEL_WIDTH + 2) + "   ".join(words))[:width]


def _axis(first: float, last: float, wide: int) -> str:
    """Return the labels of the horizontal axis: both ends and, where there is space, the middle."""
    line = [" "] * (wide + 1)
    for share in (0.0, 1.0, 0.5):
        word = f"{first + share * (last - first):,.0f}"
        start = min(max(0, round(share * (wide - 1) - len(word) / 2)), max(0, wide - len(word)))
        near = line[max(0, start - 2) : start + len(word) + 2]
        if all(character == " " for character in near) and (last > first or share == 0):
            line[start : start + len(word)] = word
    return " " * (LABEL_WIDTH + 2) + "".join(line)


def _blocks(name: str, metric: Metric | None, curve: tuple[np.ndarray, np.ndarray, int], width: int) -> str:
    """Return a curve in one line, its newest value, and its best."""
    steps, values, _ = curve
    text = _format_value(values[-1]) if metric is None else metric.format(values[-1])
    best = metric.best(values) if metric is not None and len(values) > 1 else None
    if metric is not None and best is not None:
        text += f"   best {metric.format(values[best])} at {int(steps[best]):,}"
    wide = max(1, min(40, width - len(name) - len(text) - 3))
    shown = values if len(values) <= wide else _means(values, wide)
    low, span = shown.min(), np.ptp(shown)
    level = ((shown - low) / span * (len(BLOCKS) - 1)).round().astype(int) if span > 0 else np.zeros(len(shown), int)
    return f"{name} {''.join(BLOCKS[i] for i in level)} {text}"


def _means(values: np.ndarray, n: int) -> np.ndarray:
    return np.array([part.mean() for part in np.array_split(values, n)])


def _label(key: str) -> str:
    return key.replace("_", " ")


def _format_value(value: float) -> str:
    return format_number(float(value))


# -- terminal ----------------------------------------------------------------------------------------------------------


class TerminalPlot(Progress):
    """`Progress` with the curve above the bar; `rows` is the run's list of rows, which grows."""

    def __init__(
        self,
        steps: int,
        done: int = 0,
        rows: Sequence[Mapping[str, Any]] = (),
        name: str = "",
        every: float = 10.0,
        metrics: Sequence[Metric] = (),
        limit: Callable[[], float | None] = lambda: None,
    ) -> None:
        super().__init__(steps, done, every, limit)
        self.rows, self.name, self.numbers, self.task_metrics = rows, name, dict[str, float](), metrics
        self.live: Any = None
        self.console: Any = None
        self.shown = -math.inf

    def __enter__(self) -> TerminalPlot:
        if sys.stderr.isatty() and (sys.stderr.encoding or "").lower().startswith("utf"):
            from rich.console import Console
            from rich.live import Live as Screen

            self.console = Console(stderr=True)
            self.live = Screen(console=self.console, auto_refresh=False, get_renderable=self._picture)
            self.live.start()
        else:
            self._start_ticker()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.refresh()
            self.live.stop()
        self._stop_ticker()

    def update(self, step: int, numbers: Mapping[str, float]) -> None:
        if self.live is None:
            super().update(step, numbers)
            return
        self.numbers.update(numbers)
        self.advance(step)

    def advance(self, step: int) -> None:
        """Move on without new numbers; the plot is redrawn at most twice a second."""
        if self.live is None:
            super().advance(step)
            return
        self._move(step)
        if self.live is not None and time.monotonic() - self.shown > 0.5:
            self.shown = time.monotonic()
            self.live.refresh()

    def print_line(self, line: str) -> None:
        if self.live is None:
            super().print_line(line)
        else:
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _picture(self) -> Any:
        """Return the plot in colour, as large as the terminal allows."""
        from rich.text import Text

        width, height = self.console.width, self.console.height
        curve = render_curve(self.rows, width - 1, max(4, min(height, 40) - 4), self.task_metrics)
        lines = [*curve, "", self.status(width - 1)]
        text = Text("\n".join(lines), no_wrap=True, overflow="crop")
        text.highlight_regex("[\u2800-\u28ff]+", "blue")
        text.highlight_regex("[○●]", "bold dark_orange")
        text.highlight_regex("[▁-█]+", "green")
        text.highlight_regex("[━╸]+", "magenta")
        return text

    def status(self, width: int = 80) -> str:
        """Return the status line: name, bar, updates, newest numbers, time left."""
        words = [f"{self.done:,}/{self.steps:,}", *(f"{key} {format_number(x)}" for key, x in self.numbers.items())]
        text = "  ".join([*words, f"left {self.time_left()}"])
        bar_width = width - len(self.name) - len(text) - 4
        if bar_width < 4:
            return text[:width]
        half = round(2 * bar_width * min(1.0, self.done / max(1, self.steps)))
        bar = "━" * (half // 2) + "╸" * (half % 2)
        return f"{self.name}  {bar:{bar_width}}  {text}"
