"""``regard train``: a recipe into a folder."""

from __future__ import annotations

import os
import shlex
import sys
import time
from pathlib import Path
from typing import Annotated

import typer


def train(
    recipe: Annotated[
        str | None,
        typer.Argument(
            metavar="RECIPE|KIND",
            help="A recipe by name (regard list recipes) or its file; or a kind of data, with their PATH: images, "
            "labelled-texts, pairs, text, audio.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PATH] KEY=VALUE...", help="Fields of the recipe: train.steps=200 model.width=64 data.target=fr"
        ),
    ] = None,
    minutes: Annotated[float, typer.Option(metavar="N", help="With a kind of data: the time to plan for.")] = 5.0,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="The folder of the run.", show_default="runs/RECIPE")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Shrink the recipe to seconds, to check that it runs.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the run in the folder.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Plot the loss in the terminal.")] = False,
) -> int:
    """Train on your own data, or train a recipe; the model, its scores and its curve are written to a folder.

    With a kind of data, model, size and schedule are chosen for them, this machine and the time, and a plan is printed
    first. Ctrl-C saves a checkpoint and the model as it is, and prints the command that resumes.

    \b
      regard train images photos             of photos/cat/*.jpg, photos/dog/*.jpg
      regard train labelled-texts reviews.csv --minutes 2
      regard train pairs en-de.tsv
      regard train text diary.txt
      regard train audio words               of words/yes/*.wav, words/no/*.wav
      regard train transformer_multi30k --quick
      regard train transformer_tatoeba data.target=fr --out runs/french
      regard train --resume --out runs/french
    """
    from regard.cli import INTERRUPTED
    from regard.core.errors import did_you_mean
    from regard.training import train as run
    from regard.training.loggers.progress import say_if_slow

    with say_if_slow("loading PyTorch ...", 2.0):
        from regard.training.recipe import RESERVED_NAMES

    words = [word for word in (recipe, *(settings or ())) if word is not None]
    changes = [word for word in words if "=" in word]
    names = [word for word in words if "=" not in word]
    if names and names[0] in RESERVED_NAMES:
        if len(names) != 2:
            raise typer.BadParameter(f"say where the data are: regard train {names[0]} PATH")
        return _train_own_data(names[0], names[1], minutes, changes, out, quick, resume, watch)
    if len(names) > 1:
        hint = did_you_mean(names[0], RESERVED_NAMES)
        if hint.startswith("did you mean"):
            raise typer.BadParameter(f"there is no kind of data '{names[0]}'; {hint}")
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


def _train_own_data(
    kind: str, path: str, minutes: float, changes: list[str], out: Path | None, quick: bool, resume: bool, watch: bool
) -> int:
    """Plan a run on one's own data, print the plan, and train."""
    began = time.monotonic()
    from regard.cli import INTERRUPTED
    from regard.core.errors import BadInput
    from regard.core.terminal_text import reflow, terminal_width
    from regard.training import train as run
    from regard.training.own_data import make_plan
    from regard.training.own_data.plan import plan_line, run_name
    from regard.training.recipe import override_recipe

    place = Path(path)
    folder = out if out is not None else Path("runs") / f"{run_name(place.resolve())}{'-quick' if quick else ''}"
    command = f"regard train --resume --out {shlex.quote(str(folder))}"
    if resume:
        result = run(None, folder, True, changes, command=command, watch=watch)
    else:
        if (folder / "recipe.json").exists():
            raise BadInput(f"{folder} already holds a run: go on with it ({command}), or use another folder (--out)")
        if folder.exists() and not folder.is_dir():
            raise BadInput(f"{folder} is a file; give a folder for the run (--out)")
        if folder.is_dir() and (others := sorted(p.name for p in folder.glob("[!.]*"))):  # photos, say
            raise BadInput(f"{folder} holds other files ({others[0]}); give a new folder for the run (--out)")
        given = dict(change.split("=", 1) for change in changes)
        device, seed = given.get("train.device", "auto"), given.get("train.seed", "1")
        source = given.get("train.init_from")
        plan = make_plan(kind, place, minutes, device, quick, int(seed) if seed.isdigit() else 1, source, began)
        recipe = override_recipe(plan.recipe, changes)
        width = terminal_width(sys.stderr)
        print(reflow(str(plan), width) if width else plan, file=sys.stderr)
        again = f"regard train {shlex.quote(str(folder / 'recipe.json'))} --out {shlex.quote(f'{folder}-again')}"
        print(plan_line("repeat", again), end="\n\n", file=sys.stderr, flush=True)
        result = run(recipe, folder, False, (), command=command, watch=watch)
        print(plan_line("use it", plan.use.format(model=shlex.quote(str(folder)))), file=sys.stderr)
    if result["stop_reason"] == "interrupted":
        return INTERRUPTED
    print(folder / "model")
    return 0
