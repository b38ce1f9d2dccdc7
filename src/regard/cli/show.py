"""``regard show``: the description of one name."""

from __future__ import annotations

from typing import Annotated

import typer


def show_card(
    name: Annotated[str, typer.Argument(help="A name of regard list (kind/name where it is ambiguous), or a folder.")],
) -> int:
    """Show the description of a model, an attention mechanism, a recipe or a trained model.

    \b
      regard show transformer
      regard show softmax
      regard show transformer_multi30k
      regard show en-de
    """
    from regard import catalogue
    from regard.core.terminal_text import reflow, terminal_width

    card, width = catalogue.show(name), terminal_width()
    print(card if width is None else reflow(card, width))
    return 0
