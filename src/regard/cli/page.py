"""Pages of verbs that draw: what the explorer shows of an input, as one HTML file that works from disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.core.trace import Trace


def is_page(file: Path) -> bool:
    """Whether a file is to be a page."""
    return file.suffix.lower() in (".html", ".htm")


def write(file: Path, name: str, predictor: Any, given: Mapping[str, Any], title: str) -> None:
    """The page of what a model of that name reads, to a file."""
    from regard import see
    from regard.see.exported import page
    from regard.serve.taking import relevances, take
    from regard.tasks.look import look

    seen = look(predictor, given, name=name)
    see.save(page(take(seen, relevance=relevances(seen)), title), file)


def of_traces(traces: Sequence[Trace], title: str) -> Callable[[Path], Any]:
    """What writes the page of maps alone to a file."""
    from regard import see

    return lambda file: see.page(traces, file, title)


def of_text(
    name: str, predictor: Any, line: str, traces: Sequence[Trace], title: str, **options: Any
) -> Callable[[Path], Any]:
    """What writes the page of a text to a file: with all that a look knows, where the task has one and what it needs is
    among the options; else of the traces alone. Of the options those are used that such a look takes."""
    from regard.core.spec import resolve
    from regard.serve.host import task_of
    from regard.tasks.look import LOOKS

    kind: Any = resolve(LOOKS, task, "look") if (task := task_of(predictor)) in LOOKS else None
    if kind is None or any(options.get(need) is None for need in kind.needs):
        return of_traces(traces, title)
    given = {option: value for option, value in options.items() if option in kind.takes and value is not None}
    return lambda file: write(file, name, predictor, {"text": line} | given, title)
