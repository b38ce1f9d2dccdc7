"""Tables of docs/positions.md, made from the measurements alone (docs/mkdocs_hook.py calls it).

<!-- positions: back -->         a task of benchmarks/positions.py (back, text, images): score by size
<!-- positions: temperature -->  a task of benchmarks/globe.py (land, temperature): score by latitude
<!-- positions: conditions -->   when and on which machine all that was measured; the file has the command of every case
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent.parent / "benchmarks" / "results" / "positions"
FILES = {"sizes": "encoding", "globe": "positions"}  # file -> what a case names its encoding
DIGITS = {"back": 1, "text": 2, "images": 1, "land": 1, "temperature": 2}
UNITS = {
    "back": "accuracy %",
    "text": "bits per character",
    "images": "accuracy %",
    "land": "accuracy %",
    "temperature": "RMSE, K",
}

Scores = dict[str, dict[str, list[float | None]]]  # encoding -> size -> one score a seed


def read(name: str) -> dict[str, Any]:
    """Return a record of the benchmarks; an empty one where there is none."""
    path = RESULTS / f"{name}.json"
    found: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {"cases": []}
    return found


def scores(task: str) -> Scores:
    """Return what every encoding scored on a task."""
    found: Scores = {}
    for file, key in FILES.items():
        for case in read(file)["cases"]:
            if case["task"] == task:
                sizes = found.setdefault(case[key], {})
                for size, score in case["scores"].items():
                    sizes.setdefault(size, []).append(score)
    return found


def expand(what: str) -> str:
    """Return a table as Markdown."""
    if what == "conditions":
        return conditions()
    found = scores(what)
    if not found:
        return "(not measured yet)"
    sizes = [*next(iter(found.values()))]
    lines = [[f"{UNITS[what]}", *sizes, "seeds"], ["---"] * (len(sizes) + 2)]
    for name, by_size in found.items():
        cells = [_cell(by_size[size], DIGITS[what]) for size in sizes]
        lines.append([name, *cells, str(len(by_size[sizes[0]]))])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(values: list[float | None], digits: int) -> str:
    """Return mean and spread (the lowest and highest) of the seeds."""
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    mean = f"{statistics.mean(known):.{digits}f}"
    return mean if len(known) == 1 else f"{mean} ({min(known):.{digits}f} to {max(known):.{digits}f})"


def conditions() -> str:
    """Return a line for each record."""
    lines = []
    for file in FILES:
        record = read(file)
        if record["cases"]:
            dates = sorted({case["measured"]["date"] for case in record["cases"]})
            seeds = sorted({case["seed"] for case in record["cases"]})
            lines.append(
                f"- `benchmarks/results/positions/{file}.json`: {' to '.join(dict.fromkeys((dates[0], dates[-1])))}, "
                f"{record['cpu']}, {record['threads']} thread, torch {record['versions']['torch']}, seeds "
                f"{', '.join(map(str, seeds))}; on a busy machine, so the times in it say little"
            )
    return "\n".join(lines) or "(not measured yet)"
