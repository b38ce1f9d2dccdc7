"""Pages of verbs that draw: what the explorer shows of an input, as one HTML file that works from disk."""

from __future__ import annotations

from pathlib import Path

from regard.interpret.figures import InspectionFigure


def is_page(file: Path) -> bool:
    """Return whether a file name asks for a page."""
    return file.suffix.lower() in (".html", ".htm")


def write_page(figure: InspectionFigure, file: Path) -> None:
    """Write the page of a figure: its whole inspection or, where the figure says so, some maps alone."""
    from regard import see
    from regard.see.html_export import render_html
    from regard.serve.explorer.snapshot import all_relevances, take_snapshot

    if figure.page_traces is not None:
        see.page(figure.page_traces, file, figure.title)
        return
    snapshot = take_snapshot(figure.inspection, relevance=all_relevances(figure.inspection))
    see.save(render_html(snapshot, figure.title), file)
