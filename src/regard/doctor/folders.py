"""What a name or a folder holds, examined: a model that ships, a saved model, a run, or one checkpoint of a run.

    files         every file is as it was written
    checkpoints   the same for every checkpoint of a run
    (checks.py)   the contracts of the model
    resume        from its newest checkpoint the run trains on twice, in copies, and both agree to the bit:

        begin ─── n updates ─── n updates                        in memory
        begin ─── n updates ─┤ disk ├─ n updates                 stopped and gone on

The files are those of a folder that regard.save wrote, or of a checkpoint.
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

MAX_OPERATIONS = 3e12  # operations of training that a CPU is asked for: about a minute


def examine(source: str | Path, steps: int = 2, on_finding: FindingCallback | None = None) -> Report:
    """Examine what a name or a folder holds."""
    found: list[Finding] = []

    def add(one: Finding) -> None:
        found.append(one)
        if on_finding is not None:
            on_finding(one)

    checkpoint, run = _locate(source)
    if run is not None:
        add(finding("checkpoints", lambda: _checkpoints(run, checkpoint)))
    box: list[nn.Module] = []
    add(finding("files", lambda: _read(source, run, checkpoint, box)))
    if not box:
        return Report(str(source), tuple(found))
    model = box[0]
    found += checks(CheckTarget(model, example_inputs(model)), on_finding=on_finding)
    if run is not None and steps:
        add(finding("resume", lambda: _resume(run, checkpoint, steps)))
    size = sum(p.numel() for p in model.parameters())
    return Report(f"{source}: {type(model).__name__}, {size:,} parameters", tuple(found))


def _locate(source: str | Path) -> tuple[Path | None, Path | None]:
    """The checkpoint and the run that are meant, where there are such."""
    from regard.api import zoo

    path, shipped = Path(source), zoo()
    if not path.exists() and str(source) not in shipped:
        known = did_you_mean(str(source), shipped)
        raise UnknownName(f"no model is called '{source}', and there is no such folder; {known}")
    if not path.is_dir() or (path / "config.json").is_file():
        return None, None  # a name, or a saved model
    if (path / "recipe.json").is_file():
        return None, path
    for up in path.absolute().parents[:2]:
        if (up / "recipe.json").is_file():  # a run's folder of checkpoints, or one of them
            return (path if path.name != "checkpoints" else None), up
    raise BadInput(f"{path} holds neither a saved model (config.json) nor a run (recipe.json)")


# -- reading -----------------------------------------------------------------------------------------------------------


def _read(source: str | Path, run: Path | None, checkpoint: Path | None, box: list[nn.Module]) -> str:
    """Put the model into the box; what cannot be read is said."""
    if run is None:
        import regard

        found = regard.load(source)
        box.append(found if isinstance(found, nn.Module) else found.model)
        return "as they were written"
    from regard.training.checkpoint.checkpoints import read_weights
    from regard.training.recipe import build, load_saved_recipe
    from regard.training.weight_averaging import copy_weights

    recipe = load_saved_recipe(run)
    if checkpoint is None and (run / "model" / "config.json").is_file():
        box.append(_saved(run / "model"))
        return "those of the finished model are as they were written"
    at = checkpoint or _newest(run)
    weights = read_weights(at)
    model = build(recipe.model)
    copy_weights(model, weights, at)
    box.append(model.eval())
    return f"the weights of {at.name} are as they were written"


def _saved(folder: Path) -> nn.Module:
    from regard.weights.folder import load_model

    return load_model(folder).model


def _newest(run: Path) -> Path:
    from regard.training.checkpoint.checkpoints import Checkpoints

    newest = Checkpoints(run / "checkpoints").newest()
    if newest is None:
        raise Skipped(f"{run} has no checkpoint yet")
    return newest


def _checkpoints(run: Path, checkpoint: Path | None) -> str:
    """Every checkpoint of a run, or the one that is meant, as it was written."""
    from regard.training.checkpoint.checkpoints import find_damage

    kept = sorted(path for path in (run / "checkpoints").glob("st[eo]p-*") if path.is_dir())
    every = [checkpoint] if checkpoint is not None else kept
    if not every:
        raise Skipped("the run has none yet")
    wrong = [f"{path.name}: {problem}" for path in every if (problem := find_damage(path)) is not None]
    if wrong:
        raise Failed("; ".join(wrong))
    return f"{', '.join(path.name for path in every)}: every file is as it was written"


# -- going on ----------------------------------------------------------------------------------------------------------


def _resume(run: Path, checkpoint: Path | None, steps: int) -> str:
    """Train on in a copy, and from a checkpoint of the copy in another one: both must end alike."""
    from regard.training.recipe import load_saved_recipe

    start = checkpoint or _newest(run)
    begin = int(start.name.partition("-")[2])
    recipe = _shortened(load_saved_recipe(run), run, begin, steps)
    with tempfile.TemporaryDirectory(prefix="regard-doctor-") as here:
        whole, again, third = (Path(here) / name for name in ("whole", "again", "third"))
        _copy(run, start, whole)
        _train(recipe, whole)
        between, end = _checkpoint_at(whole, begin + steps), _checkpoint_at(whole, begin + 2 * steps)
        _copy(run, between, again)
        _train(recipe, again)
        apart = _differences(end, _checkpoint_at(again, begin + 2 * steps))
        if apart:
            _copy(run, between, third)
            _train(recipe, third)
            repeats = not _differences(
                _checkpoint_at(again, begin + 2 * steps), _checkpoint_at(third, begin + 2 * steps)
            )
            why = "something is not in the checkpoint" if repeats else "training is not repeatable here"
            raise Failed(f"trained {steps} updates on from {between.name}, in memory and from disk: {why}; {apart}")
    device = recipe.train.device
    return f"{2 * steps} updates from {start.name} = {steps}, stop, {steps} more, to the bit (on {device}, float32)"


def _shortened(recipe: Recipe, run: Path, begin: int, steps: int) -> Recipe:
    """The run's recipe, to train a few updates more, with a checkpoint half-way and nothing beside."""
    device = "cpu"
    if (work := _work(recipe, run, begin, steps)) > MAX_OPERATIONS:
        if not torch.cuda.is_available():
            raise Skipped(f"training {3 * steps} updates on a CPU would take minutes ({work:.1g} operations)")
        device = "cuda"
    train = replace(
        recipe.train,
        steps=begin + 2 * steps,
        save_interval=begin + steps,
        keep_checkpoints=3,
        average_checkpoints=1,
        eval_interval=10**9,
        log_interval=10**9,
        score_interval=0,
        max_minutes=0.0,
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


def _work(recipe: Recipe, run: Path, begin: int, steps: int) -> float:
    """About how many operations the updates take: six for each parameter and token."""
    from regard.training.recipe import build

    with torch.device("meta"), skip_init():
        size = sum(p.numel() for p in build(recipe.model).parameters())
    tokens = 0.0
    with contextlib.suppress(OSError, ValueError):
        for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            tokens = row["tokens"] / max(row["step"], 1) if "tokens" in row else tokens
    return 6.0 * size * tokens * 3 * steps


def _copy(run: Path, checkpoint: Path, to: Path) -> None:
    """What a run needs to go on from a checkpoint, somewhere else."""
    (to / "checkpoints").mkdir(parents=True)
    for path in run.iterdir():
        if path.is_file() and not path.name.startswith("."):
            shutil.copy2(path, to / path.name)
    shutil.copytree(checkpoint, to / "checkpoints" / checkpoint.name)


def _train(recipe: Recipe, folder: Path) -> None:
    """Go on with a run, and say nothing."""
    from regard.training import train

    with _quietly():
        try:
            train(recipe, folder, resume=True)
        except RegardError as error:
            raise Skipped(f"it cannot be trained on here: {error}") from None


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


def _checkpoint_at(run: Path, step: int) -> Path:
    """The checkpoint after an update."""
    for kind in ("step", "stop"):
        if (path := run / "checkpoints" / f"{kind}-{step:08d}").is_dir():
            return path
    raise Failed(f"the run was asked for {step} updates and left no checkpoint there")


def _differences(a: Path, b: Path) -> str:
    """In what two checkpoints differ, in a few words; nothing where they are equal to the bit."""
    from regard.training.checkpoint.checkpoints import read_weights

    said = []
    for group in sorted({path.stem for path in a.iterdir() if path.suffix in ("", ".safetensors")}):
        mine, other = read_weights(a, group), read_weights(b, group)
        wrong = [name for name in {**mine, **other} if not _same(mine.get(name), other.get(name))]
        if wrong:
            said.append(f"{group}: {len(wrong)} of {len(mine)} tensors differ, such as {wrong[0]}")
    one, two = (_without_clock(torch.load(path / "state.pt", weights_only=True)) for path in (a, b))
    wrong = [name for name in one if not _same(one[name], two.get(name))]
    return "; ".join([*said, *([f"state: {', '.join(wrong)}"] if wrong else [])])


def _without_clock(state: dict[str, Any]) -> dict[str, Any]:
    """The state without what a clock says."""
    kept = {name: value for name, value in state.items() if name != "seconds"}
    if isinstance(kept.get("since_log"), dict):
        kept["since_log"] = {name: value for name, value in kept["since_log"].items() if name != "seconds"}
    return kept


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        return isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and torch.equal(a, b)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[name], b[name]) for name in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)
