"""Runs beside each other: the settings in which they differ, their sizes, times and scores, and their curves."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.core.errors import BadInput, shorten
from regard.metrics.base import Metric, find_metric
from regard.training.loggers.progress import format_seconds, read_rows
from regard.training.recipe import GROUPS, Recipe, load_saved_recipe, to_json

LONGEST_CELL = 40  # characters of a setting
SHORTEST_CELL = 12  # characters that a run has in a narrow terminal


@dataclass(frozen=True)
class Run:
    """A run as its folder tells it."""

    name: str
    recipe: Recipe
    rows: list[dict[str, Any]]  # of metrics.jsonl
    result: dict[str, Any]  # of result.json; empty where the run has not ended
    metrics: tuple[Metric, ...]

    @property
    def validation(self) -> dict[str, float]:
        """The scores of the weights it ended with; without an end those of the last evaluation."""
        measured = self.result.get("validation", {}).get(self.result.get("final_weights"))
        if measured is None:
            rows = [row for row in self.rows if "val_loss" in row]
            measured = {("loss" if key == "val_loss" else key): x for key, x in rows[-1].items()} if rows else {}
        return {key: x for key, x in measured.items() if isinstance(x, float) and find_metric(self.metrics, key)}

    @property
    def last(self) -> dict[str, Any]:
        """The newest row of training."""
        return next((row for row in reversed(self.rows) if "seconds" in row), {})


def compare_runs(folders: Sequence[Path]) -> list[Run]:
    """Read runs, named by their folders, as short as they differ."""
    if len(folders) < 2:
        raise BadInput(f"two runs or more are compared, got {len(folders)}")
    names = [folder.resolve().name for folder in folders]
    found = []
    for folder, name in zip(folders, names, strict=True):
        recipe = load_saved_recipe(folder)
        file = folder / "result.json"
        try:
            result = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        except (OSError, ValueError):
            raise BadInput(f"{file} is damaged: it is not JSON") from None
        rows = read_rows(folder / "metrics.jsonl")
        shown = name if names.count(name) == 1 else str(folder)
        found.append(Run(shown, recipe, rows, result, _metrics(recipe)))
    return found


def _metrics(recipe: Recipe) -> tuple[Metric, ...]:
    """Return the metrics that the task of a recipe declares."""
    from regard.core.spec import resolve
    from regard.tasks import TASKS

    task: Any = resolve(TASKS, str(to_json(recipe)["task"]["name"]), "task")
    metrics: tuple[Metric, ...] = task.metrics
    return metrics


def table_lines(runs: Sequence[Run], width: int | None = None) -> Iterator[str]:
    """Yield the lines of a table: a row for each number or setting, a column for each run.

    Cells that have no room within `width` characters are cut.
    """
    rows: list[tuple[str, list[str]]] = [("", [run.name for run in runs])]
    recipes = [to_json(run.recipe) for run in runs]
    if len({run.recipe.name for run in runs}) > 1:
        rows.append(("recipe", [run.recipe.name for run in runs]))
    for group in GROUPS:
        for key in dict.fromkeys(key for recipe in recipes for key in recipe[group]):
            if not all(key in recipe[group] for recipe in recipes):  # of another family, task or kind of data
                continue
            cells = [_cell(recipe[group][key]) for recipe in recipes]
            if len({*cells}) > 1:
                rows.append((f"{group}.{key}", cells))
    rows.append(("updates", [f"{run.result.get('steps', run.last.get('step', 0)):,}" for run in runs]))
    seconds = [run.result.get("seconds", run.last.get("seconds", 0)) for run in runs]
    rows.append(("time of updates", [*map(format_seconds, seconds)]))
    rows.append(("parameters", [f"{run.result['parameters']:,}" if run.result else "-" for run in runs]))
    rows.append(("ended", [run.result.get("stop_reason", "not yet") for run in runs]))
    keys = dict.fromkeys(key for run in runs for key in run.validation)
    for key in keys:
        metrics = [find_metric(run.metrics, key) for run in runs]
        shown = next(metric for metric in metrics if metric is not None)
        values = [run.validation.get(key) for run in runs]
        known = [value for value in values if value is not None]
        best = shown.best(known)
        alike = len({recipe["task"]["name"] for recipe in recipes}) == 1
        top = None if best is None or len({*known}) < 2 or not alike else known[best]
        marks = [" *" if value is not None and value == top else "" for value in values]
        cells = ["-" if value is None else shown.format(value, unit=False) for value in values]
        cells = [cell + mark for cell, mark in zip(cells, marks, strict=True)]
        rows.append((shown.label, cells))
    wide = max(len(name) for name, _ in rows)
    if width is not None:
        room = max(SHORTEST_CELL, (width - wide) // len(runs) - 2)
        rows = [(name, [shorten(cell, room) for cell in cells]) for name, cells in rows]
    widths = [max(len(row[1][n]) for row in rows) for n in range(len(runs))]
    for name, cells in rows:
        columns = [f"{cell:>{size}}" for cell, size in zip(cells, widths, strict=True)]
        yield "  ".join([f"{name:{wide}}", *columns]).rstrip()
    if any(cell.endswith(" *") for _, cells in rows for cell in cells):
        yield "* best on validation"


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST_CELL else f"{text[: LONGEST_CELL - 3]}..."


def draw_runs(runs: Sequence[Run], path: Path) -> None:
    """Draw the curves of runs: training loss thin, validation strong, every other score in a panel of its own."""
    from regard.see.run_curves import run_curves

    metrics = [metric for run in runs for metric in run.metrics]
    run_curves({run.name: run.rows for run in runs}, path, metrics)
