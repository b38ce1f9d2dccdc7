"""``regard list``: names by kind."""

from __future__ import annotations

from typing import Annotated

import typer

KINDS = "attention, mechanisms, mixers, aligners, positions, models, tokens, tasks, recipes, zoo"


def list_things(
    kind: Annotated[str | None, typer.Argument(help=f"One of: {KINDS}.", show_default="all kinds")] = None,
) -> int:
    """List attention mechanisms, positions, models, recipes, trained models and other parts.

    \b
      regard list
      regard list attention
      regard list zoo
    """
    from regard import catalogue
    from regard.core.terminal_text import terminal_width

    print(catalogue.format_listing(kind, terminal_width()))
    return 0
