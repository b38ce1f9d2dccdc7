"""``regard train``: a recipe into a folder."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer


def train(
    recipe: Annotated[
        str | None, typer.Argument(metavar="RECIPE", help="A recipe by name (regard list recipes), or its file.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE...", help="Fields of the recipe: train.steps=200 model.width=64 data.target=fr"
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="The folder of the run.", show_default="runs/RECIPE")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Shrink the recipe to seconds, to check that it runs.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the run in the folder.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Plot the loss in the terminal.")] = False,
) -> int:
    """Train a recipe; the model, its scores and its curve are written to a folder.

    Ctrl-C saves a checkpoint and prints the command that resumes.

    \b
      regard train transformer_multi30k --quick
      regard train transformer_tatoeba data.target=fr train.steps=2000 --out runs/french
      regard train --resume --out runs/french
    """
    from regard.cli import INTERRUPTED
    from regard.training import train as run

    words = [word for word in (recipe, *(settings or ())) if word is not None]
    changes = [word for word in words if "=" in word]
    names = [word for word in words if "=" not in word]
    if len(names) > 1:
        raise typer.BadParameter(f"one recipe at a time, not {' and '.join(names)}; settings are written key=value")
    recipe = names[0] if names else None  # None: that of the run to go on with
    if recipe is None and (not resume or out is None):
        raise typer.BadParameter("say which recipe (regard list recipes), or --resume with the run's --out folder")
    folder = out if out is not None else Path("runs") / f"{Path(str(recipe)).stem}{'-quick' if quick else ''}"
    command = f"regard train --resume --out {shlex.quote(str(folder))}"
    result = run(recipe, folder, resume, changes, quick, command, watch)
    if result["stop_reason"] == "interrupted":
        return INTERRUPTED
    if os.environ.get("RANK", "0") == "0":  # of the processes that torchrun started, one speaks
        print(folder / "model")
    return 0
