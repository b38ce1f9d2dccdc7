"""Training: one loop for every task, from a recipe, resumable to the bit.

    train       a recipe into a folder                           loop.py
    evaluate    how good the model in such a folder is           evaluation.py
    recipe      recipes found, loaded, overridden, made quick    recipe.py
    task        what the loop asks of a task                     task.py
    optimiser   rules, clipping, skipping; schedules             optimiser.py, optimisers/, schedule.py
    checkpoint  everything a run needs to go on, checksummed     checkpoint.py
    world       one process or many, and how they share a model  world.py, spread.py

From a shell: ``python -m regard.training RECIPE key=value ... --out FOLDER``, or the same under torchrun.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.training.recipe import Recipe


def train(
    recipe: str | Path | Recipe | None,
    out: str | Path,
    resume: bool = False,
    settings: tuple[str, ...] | list[str] = (),
    quick: bool = False,
    command: str | None = None,
    watch: bool = False,
) -> dict[str, Any]:
    """Train a recipe (its name, its file, or a `Recipe`) into a folder; what comes back is also in result.json there.

    `make_generation_config` are overrides, ``"train.steps=200"``. With `resume` the run in the folder goes on, by its own stored
    recipe; the name of another one is refused. `command` is printed as the way to go on when the run is interrupted.
    `watch` draws the curve in the terminal while it grows.
    """
    from regard.core.errors import BadInput
    from regard.training.loop import run_training
    from regard.training.recipe import (
        Recipe,
        load_recipe,
        load_saved_recipe,
        override_recipe,
        quick_recipe,
        recipe_name,
    )

    known = (Path(out) / "recipe.json").is_file()
    if recipe is None and not known:
        raise BadInput(f"{out} holds no run to go on with; say which recipe to train")
    if isinstance(recipe, Recipe):
        chosen = recipe
    elif recipe is None or (resume and known):  # its own settings, not those of the recipe as it is today
        chosen, quick = load_saved_recipe(Path(out)), False
        if recipe is not None and (asked := recipe_name(recipe)) != chosen.name:
            raise BadInput(
                f"{out} holds a run of {chosen.name}, not of {asked}; leave the recipe out, or name another folder"
            )
    else:
        chosen = load_recipe(recipe)
    chosen = override_recipe(quick_recipe(chosen) if quick else chosen, settings)
    return run_training(chosen, Path(out), resume, command, watch)


def evaluate(folder: str | Path, splits: list[str] | tuple[str, ...] | None = None, **settings: Any) -> dict[str, Any]:
    """Measure the model of a run (or a saved model, given `data`) on parts of its data; see evaluation.evaluate."""
    from regard.training.evaluation import evaluate

    return evaluate(Path(folder), splits, **settings)
