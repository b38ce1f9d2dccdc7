"""Shared by the sections of docs/results.md: tables, means and ranges, reading and writing files."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any


def table(rows: Iterable[Sequence[str]]) -> str:
    """Format rows as a Markdown table; the first is the heading."""
    head, *body = [[str(cell).replace("|", "\\|") for cell in row] for row in rows]
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def bullet_list(lines: Iterable[str]) -> str:
    """Format lines as a Markdown list, without duplicates."""
    return "\n".join(f"- {line}" for line in dict.fromkeys(lines))


def console_block(command: str) -> str:
    """Format one command per line as a console block."""
    return "\n".join(["```console", *(f"$ {line}" for line in command.splitlines()), "```"])


def mean_and_range(values: Sequence[float], digits: int = 2) -> str:
    """Format one value, or mean, minimum and maximum of several."""
    if len(values) < 2:
        return f"{values[0]:.{digits}f}" if values else ""
    return f"{sum(values) / len(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def pluralize(count: int | str, noun: str) -> str:
    """Return e.g. "1 thread" or "2 threads"; a count may be formatted already."""
    return f"{count} {noun}{'s' if str(count) != '1' else ''}"


def describe_search(score: Mapping[str, Any]) -> str:
    """Describe the search of a score; "" where none is recorded, and of losses, which need none."""
    is_of_targets = score.get("metric") in ("loss", "perplexity", "bits_per_byte")
    is_of_targets |= score.get("metric") == "accuracy" and "signature" not in score
    if "beam_size" not in score or is_of_targets:
        return ""
    if score["beam_size"] == 1:
        return "greedy"
    penalty = f", length penalty {score['length_penalty']:g}" if "length_penalty" in score else ""
    return f"beam {score['beam_size']}{penalty}"


def by_search(found: Iterable[tuple[Any, Mapping[str, Any]]]) -> dict[str, list[tuple[Any, Mapping[str, Any]]]]:
    """Group scores, each with its run, by their search, since a table shows one; those without are in the first."""
    pairs = list(found)
    searches = sorted({describe_search(score) for _, score in pairs} - {""}, key=lambda how: (how[:4] == "beam", how))
    groups: dict[str, list[tuple[Any, Mapping[str, Any]]]] = {}
    for how in searches or [""]:
        groups[how] = [pair for pair in pairs if describe_search(pair[1]) in ((how,) if groups else (how, ""))]
    return groups


def search_caption(how: str) -> Iterator[str]:
    """Yield the line above a table that says with which search its texts were found."""
    if how:
        yield f"Search: {how}."


def format_seeds(runs: Iterable[Mapping[str, Any]]) -> str:
    """Format the seeds of a row, and of how many folds it is the mean; "not recorded" for runs without a seed."""
    rows = list(runs)
    seeds = {"not recorded" if run["seed"] is None else str(run["seed"]) for run in rows}
    folds = len({run["fold"] for run in rows if "fold" in run})
    return ", ".join(sorted(seeds, key=lambda seed: (len(seed), seed))) + (f" ({folds} folds)" if folds else "")


def strip_seed(name: str) -> str:
    """Return the name of a run without its seed of one or two digits (the 300 of resnet-cifar10-300 are epochs)."""
    return re.sub(r"-\d{1,2}$", "", name)


def read_json(file: Path) -> dict[str, Any]:
    """Read a JSON object; raise ValueError with the file's name if it is missing or damaged."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"there is no {file.name} in {file.parent}") from None
    except ValueError as error:
        raise ValueError(f"{file} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{file} does not hold a JSON object")
    return found


def write(file: Path, text: str) -> None:
    """Write a file atomically."""
    part = file.with_name(f".{file.name}.part")
    try:
        with open(part, "w", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(part, file)
    finally:
        part.unlink(missing_ok=True)
