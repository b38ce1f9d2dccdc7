"""Training: one loop for every task, from a recipe, resumable to the bit.

    train         train a recipe into a folder                     loop.py
    finish        end an interrupted or killed run as it is        loop.py, finalize.py
    evaluate      measure the model in such a folder               evaluation.py
    recipe        find, load, override and shrink recipes          recipe.py
    task          what the loop needs from a task                  task.py
    optimizers/   update rules, clipping; learning rate schedules  optimizers/, schedule.py
    checkpoint/   everything a run needs to resume, checksummed    checkpoint/
    parallel/     several processes and devices                    parallel/
    loggers/      metrics.jsonl, TensorBoard, Weights & Biases     loggers/

From a shell: ``python -m regard.training RECIPE key=value ... --out FOLDER``, or the same under torchrun.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.core.lazy_exports import public_dir

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
    """Train a recipe (its name, its file, or a `Recipe`) into a folder and return the content of its result.json.

    `settings` are overrides, ``"train.steps=200"``. With `resume` the run in the folder continues, by its own stored
    recipe; the name of another recipe is an error. `command` is printed as the way to resume when the run is
    interrupted. `watch` plots the curve in the terminal.

    A recipe by name that starts from given weights (``"train.init_from=minilm"``) adopts their architecture and
    preprocessing, except for what `settings` name; a `Recipe` is trained as it is.
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

    has_run = (Path(out) / "recipe.json").is_file()
    if recipe is None and not has_run:
        raise BadInput(f"{out} holds no run to resume; name a recipe to train")
    if isinstance(recipe, Recipe):
        chosen = recipe
    elif recipe is None or (resume and has_run):  # the stored recipe, which may differ from the recipe file of today
        chosen, quick = load_saved_recipe(Path(out)), False
        if recipe is not None and (name := recipe_name(recipe)) != chosen.name:
            raise BadInput(
                f"{out} holds a run of {chosen.name}, not of {name}; leave the recipe out, or use another folder"
            )
    else:
        chosen = load_recipe(recipe)
    chosen = override_recipe(quick_recipe(chosen) if quick else chosen, settings)
    if chosen.train.init_from is not None and not isinstance(recipe, Recipe) and not (resume and has_run):
        from regard.training.init_from import adopt_source

        chosen, line = adopt_source(chosen, [setting.split("=")[0].strip() for setting in settings])
        if line:
            print(line, file=sys.stderr, flush=True)
    return run_training(chosen, Path(out), resume, command, watch)


def finish(out: str | Path) -> dict[str, Any]:
    """End a run as it is: measure its weights on validation, save the best as its model, and return its result."""
    from regard.training.loop import run_training
    from regard.training.recipe import load_saved_recipe

    return run_training(load_saved_recipe(Path(out)), Path(out), resume=True, finish=True)


def evaluate(folder: str | Path, splits: list[str] | tuple[str, ...] | None = None, **settings: Any) -> dict[str, Any]:
    """Evaluate the model of a run (or a saved model, given `data`) on splits of its data; see evaluation.evaluate."""
    from regard.training.evaluation import evaluate

    return evaluate(Path(folder), splits, **settings)


__dir__ = public_dir(__name__)
