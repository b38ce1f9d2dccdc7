"""``regard show``: everything there is to say about one thing."""

from __future__ import annotations

from typing import Annotated

import typer


def show_card(
    name: Annotated[
        str, typer.Argument(help="A name that regard list knows, kind/name where it has several, or a folder.")
    ],
) -> int:
    """Show one thing: a model's card and sizes, a mechanism's formula and traits, a recipe, a trained translator.

    \b
      regard show transformer
      regard show softmax
      regard show transformer_multi30k
      regard show en-de
    """
    from regard import catalogue

    print(catalogue.show(name))
    return 0
