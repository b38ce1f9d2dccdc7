"""Evaluate a trained model on splits of its data that training did not see.

evaluate("runs/tiny")                               every test split, with the run's final weights
evaluate("runs/tiny", ["val"], weights="average")   another split, other weights
evaluate("model folder", data=ParallelCorpus(...))  a saved model, on data of your choice (an object or a corpus name)
evaluate("runs/tiny", attention="linear")           the same weights under another attention mechanism
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

import regard
from regard.core.errors import BadInput, RegardError, oom_advice
from regard.models.replace_attention import replace_attention
from regard.tasks.image import image_classification
from regard.training.checkpoint.checkpoints import Checkpoints, read_weights
from regard.training.device import device_name, select_device
from regard.training.recipe import build, load_saved_recipe, task_config_class
from regard.training.weight_averaging import average_weights, copy_weights
from regard.weights.checkpoint_formats import find_image_importer, load_image_model
from regard.weights.folder import CONFIG, read_json


def evaluate(
    folder: Path,
    splits: Sequence[str] | None = None,
    weights: str = "final",
    device: str = "auto",
    data: Any = None,
    attention: str | None = None,
    **search: Any,
) -> dict[str, Any]:
    """Evaluate a run's model (or a saved model) on splits of its data, by default all test splits.

    Data that are given without splits are measured whole. `weights` of a run: final, best, last, ema, average, or the
    name of a checkpoint. `search` goes to the task's decoding (beam_size, length_penalty) or evaluation (stride). With
    `attention`, the spec of a mechanism without parameters of its own, the weights are evaluated under that mechanism.
    Returns plain values: machine, versions, and under "results" a report for each split.
    """
    target_device = select_device(device)
    if (folder / "recipe.json").is_file():
        recipe = load_saved_recipe(folder)
        task = recipe.task.build(data or recipe.data, folder=folder)
        model = build(recipe.model)
        copy_weights(
            model, _weights(folder, weights, recipe.train.keep_checkpoints, recipe.train.average_checkpoints), folder
        )
        name = recipe.name
    else:
        model, task, name = *_load_saved_model(folder, data), folder.name
    model = model if attention is None else replace_attention(model, attention)
    model = model.to(target_device).float().eval()
    parts = list(splits) if splits else default_splits(task.data, data is not None)
    if not parts:
        raise BadInput(f"the data have no test split; choose one with --split: {', '.join(task.data.splits())}")
    return {
        "model": str(folder),
        "recipe": name,
        "weights": weights,
        **({} if attention is None else {"attention": attention}),
        "parameters": sum(p.numel() for p in model.parameters()),
        "machine": device_name(target_device),
        "torch": torch.__version__,
        "regard": regard.__version__,
        "split_size": task.split_size,
        "metrics": [asdict(metric) for metric in task.metrics],
        "results": {task.data.split(part): _evaluate_split(task, model, part, search) for part in parts},
    }


def check_attention(folder: Path, attention: str, data: Any = None) -> None:
    """Raise an error if the weights of a run or a saved model cannot be evaluated under another attention mechanism."""
    is_run = (folder / "recipe.json").is_file()
    model = build(load_saved_recipe(folder).model) if is_run else _load_saved_model(folder, data)[0]
    replace_attention(model, attention)


def default_splits(data: Any, is_given: bool) -> list[str]:
    """Return the splits to evaluate: of data that are given without splits all of them, else every test split."""
    known = data.splits()
    return ["all"] if is_given and "all" in known else [part for part in known if part.startswith("test")]


def _evaluate_split(task: Any, model: nn.Module, part: str, search: dict[str, Any]) -> dict[str, Any]:
    beams = "with fewer beams (--beam-size), or " if hasattr(getattr(task, "config", None), "beam_size") else ""
    with oom_advice(f"evaluate it {beams}on another device (--device cpu)"):
        found: dict[str, Any] = task.report(model, part, **search)
    return found


def _weights(folder: Path, which: str, keep: int, average: int) -> dict[str, Any]:
    """Return weights of a run by name."""
    checkpoints = Checkpoints(folder / "checkpoints", keep, average)
    if which in ("final", "best"):
        return read_weights(checkpoints.folder / f"{which}.safetensors")
    if which == "average":
        files = checkpoints.last(max(average, 1))
        if not files:
            raise BadInput(f"{folder} holds no checkpoints to average")
        return average_weights(files)
    if which in ("last", "ema"):
        newest = checkpoints.newest()
        if newest is None:
            raise BadInput(f"{folder} holds no checkpoint")
        return read_weights(newest) | (read_weights(newest, "ema") if which == "ema" else {})
    return read_weights(checkpoints.folder / which)


def _load_saved_model(folder: Path, data: Any) -> tuple[nn.Module, Any]:
    """Load a model saved without its run, and the task it was saved for on these data."""
    if data is None:
        raise RegardError(f"{folder} is a saved model without a recipe: give the data to evaluate it on")
    saved = load_image_model(folder)
    name = _task_name(folder, saved.task)
    if saved.text is None and not issubclass(task_config_class(name), image_classification.Config):
        raise BadInput(f"{folder} has no vocabulary, so its model cannot be evaluated on text")
    if isinstance(data, str):
        data = dataset_for_model(folder, data)
    return saved.model, task_config_class(name)().build(data, folder=folder)


def dataset_for_model(folder: Path, corpus: str, **changes: Any) -> Any:
    """Return the dataset of a name as a saved model needs it: in its languages, in rows of its length."""
    saved = load_image_model(folder).config if find_image_importer(folder) else read_json(folder / CONFIG)
    name = _task_name(folder, saved.get("task"))
    task = task_config_class(name)
    if not hasattr(task, "eval_data"):
        raise BadInput(
            f"a model of the task '{name}' can only be evaluated in the folder of its run, which says how data are read"
        )
    return task.eval_data(corpus, saved, **changes)


def _task_name(folder: Path, task: Mapping[str, Any] | None) -> str:
    """Return the name of the task that a saved model is evaluated by."""
    if not task and read_json(folder / CONFIG).get("model_type"):
        raise BadInput(
            f"{folder} is a checkpoint of another library; load it and evaluate the folder that regard.save writes"
        )
    if not task or "name" not in task:
        raise BadInput(f"{folder} was saved without a task, so it cannot be evaluated")
    if task.get("labels") == []:
        raise BadInput(f"the model in {folder} has no classes, so it cannot be evaluated")
    return str(task["name"])
