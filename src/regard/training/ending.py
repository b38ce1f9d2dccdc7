"""How a run ends: last, best and averaged weights are measured on validation, and one of them is saved as a model."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from regard.core.errors import BadInput
from regard.core.files import write
from regard.core.shapes import Tensor
from regard.see.curve import falls
from regard.training.average import mean, put, tensors
from regard.training.checkpoint import read_weights, save_weights
from regard.training.device import machine
from regard.training.progress import Progress, clock
from regard.training.recipe import build
from regard.training.slices import whole
from regard.training.tensorfile import read_header

if TYPE_CHECKING:
    from regard.training.loop import _Run

Weights = Mapping[str, Tensor]


def finish(run: _Run, stopped: str, progress: Progress) -> dict[str, Any]:
    """Measure the candidates, keep one, save it as a model; what comes back is also in result.json."""
    s = run.settings
    measured: dict[str, dict[str, Any]] = {}
    candidates = _candidates(run)
    for name, weights in candidates.items():
        if s.finish in candidates and name not in (s.finish, "last"):
            continue
        try:
            put(run.model, _as_stored(weights(), s.store))
        except BadInput as error:  # a damaged file; there are others
            progress.say(f"{name} weights are passed over: {error}")
            continue
        measured[name] = run.measure(2 if s.score else 0)
        said = "  ".join(f"{key} {value:.4g}" for key, value in measured[name].items() if isinstance(value, float))
        progress.say(f"{name}: {said}")
    chosen = s.finish if s.finish in measured else _best_of(measured, run.task.headline if s.score else "loss")
    if s.finish not in ("auto", chosen):
        progress.say(f"the run was too short for train.finish={s.finish}")
    put(run.model, _as_stored(candidates[chosen](), s.store))
    final = {name: whole(x) for name, x in tensors(run.model).items()}
    found = result(run, stopped, measured, chosen)
    if run.world.leads:
        half = s.store == "float16"
        stored = {name: x.half() if half and x.is_floating_point() else x for name, x in final.items()}
        about = {"step": str(run.step), "chosen": chosen}
        save_weights(run.checkpoints.folder / "final.safetensors", stored, about)
        write((json.dumps(found, indent=2, ensure_ascii=False) + "\n").encode(), run.out / "result.json")
        _export(run, final, found)
    progress.say(
        f"done: {run.step} updates in {clock(run.seconds)} ({stopped}), "
        f"{run.tokens / max(run.seconds, 1e-9):,.0f} {run.task.unit}/s; kept '{chosen}' in {run.out / 'model'}"
    )
    run.world.wait()
    return found


def _candidates(run: _Run) -> dict[str, Callable[[], Weights]]:
    """The weights a run may end with, each fetched when asked for."""
    last = {name: x.detach().clone() for name, x in tensors(run.model).items()}
    found: dict[str, Callable[[], Weights]] = {"last": lambda: last}
    best = run.checkpoints.folder / "best.safetensors"
    if run.best is not None and best.is_file() and _of_this_run(best, run.step):
        found["best"] = lambda: read_weights(best)
    if (ema := run.ema) is not None:
        found["ema"] = lambda: last | ema.kept
    files = run.checkpoints.last(run.settings.average)
    if len(files) > 1:
        found["average"] = lambda: mean(files)
    return found


def _of_this_run(best: Path, step: int) -> bool:
    """Whether the best weights come from an update of this run, not from one that a killed run had reached."""
    try:
        return int(read_header(best)[0]["__metadata__"]["step"]) <= step
    except (BadInput, KeyError, ValueError):
        return True  # what is wrong with it is said when it is read


def _best_of(measured: dict[str, dict[str, Any]], by: str) -> str:
    best = next(iter(measured))
    for name, found in measured.items():
        key, top = (tuple(float(m[k]) for k in (by, "loss")) for m in (found, measured[best]))
        if better(by, key[0], top[0]) or (key[0] == top[0] and key[1] < top[1]):
            best = name
    return best


def better(metric: str, value: float, best: float) -> bool:
    """Whether a number is better than the best so far: losses, perplexities and errors count down."""
    return value < best if falls(metric) else value > best


def _as_stored(weights: Weights, dtype: str) -> dict[str, Tensor]:
    """Weights as they will be once stored."""
    if dtype == "float32":
        return dict(weights)
    if dtype == "int8":
        from regard.weights.rounded import restored, rounded

        return restored(rounded({name: whole(x) for name, x in weights.items()}))
    return {name: x.half().float() if x.is_floating_point() else x for name, x in weights.items()}


def _export(run: _Run, final: Weights, found: dict[str, Any]) -> None:
    from regard.weights.folder import save_model

    model = run.model
    if run.spread.sharded:
        model = build(run.recipe.model)
        put(model, final)
    text, about = getattr(run.task, "text", None), run.task.describe()
    dtype = None if run.settings.store == "float32" else run.settings.store
    save_model(run.out / "model", model.eval(), text, about, _card(run, found), dtype)


def _card(run: _Run, found: dict[str, Any]) -> str:
    kept = found["valid"].get(found["kept"], {})
    scores = "\n".join(f"- {key}: {value}" for key, value in kept.items())
    return (
        f"# {run.recipe.name}\n\n{run.task.card()}\n\nTrained {found['steps']} updates "
        f"({found['epochs']} epochs, {found['tokens']:,} {run.task.unit}, {clock(found['seconds'])}) on "
        f"{found['machine']}; kept weights: {found['kept']}.\n\nOn the validation part:\n\n{scores}\n"
    )


def result(run: _Run, stopped: str, measured: dict[str, dict[str, Any]], kept: str | None) -> dict[str, Any]:
    """The run in numbers."""
    return {
        "recipe": run.recipe.name,
        "stopped": stopped,
        "steps": run.step,
        "epochs": run.place.epoch,
        "tokens": run.tokens,
        "seconds": round(run.seconds, 3),
        "tokens_per_second": round(run.tokens / max(run.seconds, 1e-9), 1),
        "parameters": parameters(run.model),
        "machine": machine(run.device),
        "processes": run.world.size,
        "spread": run.spread.how,
        "precision": run.precision,
        "compiled": run.eager is None,
        "torch": torch.__version__,
        "seed": run.settings.seed,
        "kept": kept,
        "valid": measured,
        "out": str(run.out),
    }


def parameters(model: nn.Module) -> int:
    """How many there are, on all devices together."""
    return sum(p.numel() for p in model.parameters())
