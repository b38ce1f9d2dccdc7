"""Pages of verbs that draw: what the explorer shows of an input, as one HTML file that works from disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.core.trace import Trace


def is_page(file: Path) -> bool:
    """Whether a file is to be a page."""
    return file.suffix.lower() in (".html", ".htm")


def write_page(file: Path, name: str, predictor: Any, given: Mapping[str, Any], title: str) -> None:
    """The page of what a model of that name reads, to a file."""
    from regard import see
    from regard.interpret.inspection import inspect
    from regard.see.html_export import render_html
    from regard.serve.explorer.snapshot import all_relevances, take_snapshot

    seen = inspect(predictor, given, name=name)
    see.save(render_html(take_snapshot(seen, relevance=all_relevances(seen)), title), file)


def traces_page(traces: Sequence[Trace], title: str) -> Callable[[Path], Any]:
    """What writes the page of maps alone to a file."""
    from regard import see

    return lambda file: see.page(traces, file, title)


def text_page(
    name: str, predictor: Any, line: str, traces: Sequence[Trace], title: str, **options: Any
) -> Callable[[Path], Any]:
    """What writes the page of a text to a file: with all that a look knows, where the task has one and what it needs is
    among the options; else of the traces alone. Of the options those are used that such a look takes."""
    from regard.core.spec import resolve
    from regard.interpret.inspection import INSPECTIONS
    from regard.serve.http.model_pool import task_name

    kind: Any = resolve(INSPECTIONS, task, "inspection") if (task := task_name(predictor)) in INSPECTIONS else None
    if kind is None or any(options.get(need) is None for need in kind.required_inputs):
        return traces_page(traces, title)
    given = {option: value for option, value in options.items() if option in kind.input_types and value is not None}
    return lambda file: write_page(file, name, predictor, {"text": line} | given, title)
