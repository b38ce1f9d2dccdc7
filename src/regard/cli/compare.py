"""``regard compare``: runs beside each other, as a table and as curves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN RUN...", help="The folders of two runs or more.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where to draw the curves (.png or .svg)."),
    ] = None,
) -> int:
    """Compare runs: what they were trained with, for how long, and their scores on validation; draw their curves.

    Settings that are the same in all runs are left out. A run that has not ended counts as it is now.

    \b
      regard compare runs/small runs/large
      regard compare runs/* --output runs.png
    """
    from regard.cli import print_status
    from regard.training.comparison import compare_runs, draw_runs, table_lines

    found = compare_runs(runs)
    print("\n".join(table_lines(found)))
    if output is not None:
        if output.suffix.lower() not in (".png", ".svg"):
            raise typer.BadParameter(f"cannot draw to {output}; end its name in .png or .svg")
        draw_runs(found, output)
        print_status(f"drawn: {output}")
    return 0
