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
    from regard.cli.output_files import check_output_files, describe_write
    from regard.core.terminal_text import terminal_width
    from regard.training.comparison import compare_runs, draw_runs, table_lines

    check_output_files([output] if output is not None else (), page=False)
    found = compare_runs(runs)
    print("\n".join(table_lines(found, terminal_width())))
    if output is not None:
        line = describe_write(output)
        draw_runs(found, output)
        print_status(line)
    return 0
