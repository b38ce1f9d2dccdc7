"""Check a shipped model, a saved model, a run, or one checkpoint of a run.

files         the files of the saved model or checkpoint are intact
checkpoints   all checkpoints of a run are intact
(checks.py)   the contracts of the model
resume        continuing the run from its newest checkpoint, with and without a stop, is bitwise equal:

    first ─── n updates ─── n updates                        in memory
    first ─── n updates ─┤ disk ├─ n updates                 stopped and resumed
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from regard.core.errors import BadInput, RegardError, UnknownName, did_you_mean
from regard.core.skip_init import skip_init
from regard.doctor.checks import examine as checks
from regard.doctor.checks import finding
from regard.doctor.example_inputs import example_inputs
from regard.doctor.report import Failed, Finding, FindingCallback, Report, Skipped
from regard.doctor.target import CheckTarget

if TYPE_CHECKING:
    from regard.training.recipe import Recipe

MAX_OPERATIONS = 3e12  # about a minute of training on a CPU


def examine(source: str | Path, steps: int = 2, on_finding: FindingCallback | None = None) -> Report:
    """Check what a name or a folder holds; see `regard.doctor.examine`."""
    found: list[Finding] = []

    def add(new: Finding) -> None:
        found.append(new)
        if on_finding is not None:
            on_finding(new)

    checkpoint, run = _locate(source)
    if run is not None:
        add(finding("checkpoints", lambda: _checkpoints(run, checkpoint)))
    loaded: list[nn.Module] = []
    add(finding("files", lambda: _read(source, run, checkpoint, loaded)))
    if not loaded:
        return Report(str(source), tuple(found))
    model = loaded[0]
    found += checks(CheckTarget(model, example_inputs(model)), on_finding=on_finding)
    if run is not None and steps:
        add(finding("resume", lambda: _resume(run, checkpoint, steps)))
    size = sum(p.numel() for p in model.parameters())
    return Report(f"{source}: {type(model).__name__}, {size:,} parameters", tuple(found))


def _locate(source: str | Path) -> tuple[Path | None, Path | None]:
    """Return the checkpoint and the run that `source` means, None where it is neither."""
    from regard.api import zoo

    path, shipped = Path(source), zoo()
    if not path.exists() and str(source) not in shipped:
        hint = did_you_mean(str(source), shipped)
        raise UnknownName(f"no model is called '{source}', and there is no such folder; {hint}")
    if not path.is_dir() or (path / "config.json").is_file():
        return None, None  # a name, or a saved model
    if (path / "recipe.json").is_file():
        return None, path
    for parent in path.absolute().parents[:2]:
        if (parent / "recipe.json").is_file():  # a run's folder of checkpoints, or one of them
            return (path if path.name != "checkpoints" else None), parent
    raise BadInput(f"{path} holds neither a saved model (config.json) nor a run (recipe.json)")


# -- loading -----------------------------------------------------------------------------------------------------------


def _read(source: str | Path, run: Path | None, checkpoint: Path | None, loaded: list[nn.Module]) -> str:
    """Load the model into the list `loaded` and return a message."""
    if run is None:
        import regard

        model_or_predictor = regard.load(source)
        loaded.append(model_or_predictor if isinstance(model_or_predictor, nn.Module) else model_or_predictor.model)
        return "intact"
    from regard.training.checkpoint.checkpoints import read_weights
    from regard.training.recipe import build, load_saved_recipe
    from regard.training.weight_averaging import copy_weights

    recipe = load_saved_recipe(run)
    if checkpoint is None and (run / "model" / "config.json").is_file():
        loaded.append(_load_saved(run / "model"))
        return "the files of the finished model are intact"
    path = checkpoint or _newest(run)
    weights = read_weights(path)
    model = build(recipe.model)
    copy_weights(model, weights, path)
    loaded.append(model.eval())
    return f"the weights of {path.name} are intact"


def _load_saved(folder: Path) -> nn.Module:
    from regard.weights.folder import load_model

    return load_model(folder).model


def _newest(run: Path) -> Path:
    from regard.training.checkpoint.checkpoints import Checkpoints

    newest = Checkpoints(run / "checkpoints").newest()
    if newest is None:
        raise Skipped(f"{run} has no checkpoint yet")
    return newest


def _checkpoints(run: Path, checkpoint: Path | None) -> str:
    """Check the files of every checkpoint of a run, or of the one that is named."""
    from regard.training.checkpoint.checkpoints import find_damage

    existing = sorted(path for path in (run / "checkpoints").glob("st[eo]p-*") if path.is_dir())
    paths = [checkpoint] if checkpoint is not None else existing
    if not paths:
        raise Skipped("the run has no checkpoint yet")
    problems = [f"{path.name}: {problem}" for path in paths if (problem := find_damage(path)) is not None]
    if problems:
        raise Failed("; ".join(problems))
    return f"{', '.join(path.name for path in paths)}: all files are intact"


# -- resuming ----------------------------------------------------------------------------------------------------------


def _resume(run: Path, checkpoint: Path | None, steps: int) -> str:
    """Continue a copy of the run, then resume another copy from its middle checkpoint; both must be equal."""
    from regard.training.recipe import load_saved_recipe

    first = checkpoint or _newest(run)
    first_step = int(first.name.partition("-")[2])
    recipe = _short_recipe(load_saved_recipe(run), run, first_step, steps)
    with tempfile.TemporaryDirectory(prefix="regard-doctor-") as folder:
        reference, resumed, third = (Path(folder) / name for name in ("whole", "again", "third"))
        _copy_run(run, first, reference)
        _train(recipe, reference)
        middle, end = _checkpoint_at(reference, first_step + steps), _checkpoint_at(reference, first_step + 2 * steps)
        _copy_run(run, middle, resumed)
        _train(recipe, resumed)
        differences = _differences(end, _checkpoint_at(resumed, first_step + 2 * steps))
        if differences:
            _copy_run(run, middle, third)
            _train(recipe, third)
            repeats = not _differences(
                _checkpoint_at(resumed, first_step + 2 * steps), _checkpoint_at(third, first_step + 2 * steps)
            )
            reason = "some state is missing from the checkpoint" if repeats else "training is not repeatable"
            raise Failed(
                f"{steps} updates after {middle.name} differ in memory and after resuming: {reason}; {differences}"
            )
    device = recipe.train.device
    return f"{2 * steps} updates from {first.name} = {steps}, stop, {steps} more, bitwise equal (on {device}, float32)"


def _short_recipe(recipe: Recipe, run: Path, first_step: int, steps: int) -> Recipe:
    """Return the run's recipe changed to train a few more updates, with a checkpoint half-way."""
    device = "cpu"
    if (operations := _estimate_operations(recipe, run, first_step, steps)) > MAX_OPERATIONS:
        if not torch.cuda.is_available():
            raise Skipped(f"training {3 * steps} updates on a CPU would take minutes ({operations:.1g} operations)")
        device = "cuda"
    train = replace(
        recipe.train,
        steps=first_step + 2 * steps,
        save_interval=first_step + steps,
        keep_checkpoints=3,
        average_checkpoints=1,
        eval_interval=10**9,
        log_interval=10**9,
        score_interval=0,
        max_minutes=0.0,
        budget_minutes=0.0,
        patience=0,
        final_weights="last",
        device=device,
        precision="float32",
        compile=False,
        deterministic=True,
        tensor_parallel=1,
        loggers=(),
    )
    return replace(recipe, train=train)


def _estimate_operations(recipe: Recipe, run: Path, first_step: int, steps: int) -> float:
    """Estimate the operations of the updates: six per parameter and token."""
    from regard.training.recipe import build

    with torch.device("meta"), skip_init():
        num_parameters = sum(p.numel() for p in build(recipe.model).parameters())
    tokens = 0.0
    with contextlib.suppress(OSError, ValueError):
        for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            tokens = row["tokens"] / max(row["step"], 1) if "tokens" in row else tokens
    return 6.0 * num_parameters * tokens * 3 * steps


def _copy_run(run: Path, checkpoint: Path, copy: Path) -> None:
    """Copy the files that a run needs to resume from a checkpoint."""
    (copy / "checkpoints").mkdir(parents=True)
    for path in run.iterdir():
        if path.is_file() and not path.name.startswith("."):
            shutil.copy2(path, copy / path.name)
    shutil.copytree(checkpoint, copy / "checkpoints" / checkpoint.name)


def _train(recipe: Recipe, folder: Path) -> None:
    """Resume a run without printing."""
    from regard.training import train

    with _silence_output():
        try:
            train(recipe, folder, resume=True)
        except RegardError as error:
            raise Skipped(f"the run cannot be resumed: {error}") from None


@contextlib.contextmanager
def _silence_output() -> Iterator[None]:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


def _checkpoint_at(run: Path, step: int) -> Path:
    """Return the checkpoint of this step."""
    for kind in ("step", "stop"):
        if (path := run / "checkpoints" / f"{kind}-{step:08d}").is_dir():
            return path
    raise Failed(f"the run left no checkpoint at step {step}")


def _differences(a: Path, b: Path) -> str:
    """Describe how two checkpoints differ; empty if they are bitwise equal."""
    from regard.training.checkpoint.checkpoints import read_weights

    messages = []
    for group in sorted({path.stem for path in a.iterdir() if path.suffix in ("", ".safetensors")}):
        a_tensors, b_tensors = read_weights(a, group), read_weights(b, group)
        differing = [
            name for name in {**a_tensors, **b_tensors} if not _equal(a_tensors.get(name), b_tensors.get(name))
        ]
        if differing:
            messages.append(f"{group}: {len(differing)} of {len(a_tensors)} tensors differ, e.g. {differing[0]}")
    a_state, b_state = (_without_times(torch.load(path / "state.pt", weights_only=True)) for path in (a, b))
    differing = [name for name in a_state if not _equal(a_state[name], b_state.get(name))]
    return "; ".join([*messages, *([f"state: {', '.join(differing)}"] if differing else [])])


def _without_times(state: dict[str, Any]) -> dict[str, Any]:
    """Return the state without measured times."""
    remaining = {name: value for name, value in state.items() if name not in ("seconds", "eval_seconds", "elapsed")}
    if isinstance(remaining.get("since_log"), dict):
        remaining["since_log"] = {name: value for name, value in remaining["since_log"].items() if name != "seconds"}
    return remaining


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        return isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and torch.equal(a, b)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal(a[name], b[name]) for name in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(_equal(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)
