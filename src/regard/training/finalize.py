"""The end of a run: evaluate last, best and averaged weights on validation, and save one of them as a model."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from regard.core.cancellation import Cancelled
from regard.core.errors import BadInput
from regard.core.files import atomic_write
from regard.core.shapes import Tensor
from regard.metrics.base import Metric, describe_metrics, loss_metric
from regard.training.checkpoint.checkpoints import read_weights, save_weights
from regard.training.checkpoint.safetensors_file import read_header
from regard.training.device import device_name
from regard.training.loggers.progress import Progress, format_seconds
from regard.training.parallel.sharded_tensor import to_full
from regard.training.recipe import build
from regard.training.weight_averaging import average_weights, copy_weights, named_tensors

if TYPE_CHECKING:
    from regard.training.loop import TrainingRun

Weights = Mapping[str, Tensor]


def finalize(run: TrainingRun, stopped: str, progress: Progress) -> dict[str, Any]:
    """Evaluate the candidates, choose one, save it as a model; return the content of result.json."""
    s = run.settings
    measured: dict[str, dict[str, Any]] = {}
    candidates = _candidates(run)
    for name, weights in candidates.items():
        if s.final_weights in candidates and name not in (s.final_weights, "last"):
            continue
        try:
            copy_weights(run.model, _cast_to_save_dtype(weights(), s.save_dtype))
        except BadInput as error:  # a damaged file; the other candidates remain
            progress.print_line(f"{name} weights are skipped: {error}")
            continue
        try:
            measured[name] = run.measure(2 if s.score_interval else 0)
        except Cancelled:
            copy_weights(run.model, candidates["last"]())
            return save_interrupted(run, progress)
        progress.print_line(f"{name}: {describe_metrics(run.task.metrics, measured[name])}")
    chosen = (
        s.final_weights
        if s.final_weights in measured
        else _best_candidate(measured, run.task.metrics[0] if s.score_interval else loss_metric(""))
    )
    if s.final_weights not in ("auto", chosen):
        progress.print_line(f"the run was too short for train.final_weights={s.final_weights}")
    copy_weights(run.model, _cast_to_save_dtype(candidates[chosen](), s.save_dtype))
    final = _gather(run)
    result = build_result(run, stopped, measured, chosen)
    if run.world.is_main_process:
        half = s.save_dtype == "float16"
        stored = {name: x.half() if half and x.is_floating_point() else x for name, x in final.items()}
        about = {"step": str(run.step), "chosen": chosen}
        save_weights(run.checkpoints.folder / "final.safetensors", stored, about)
        atomic_write((json.dumps(result, indent=2, ensure_ascii=False) + "\n").encode(), run.out / "result.json")
        _export(run, final, result)
    share = run.eval_seconds / max(run.seconds + run.eval_seconds, 1e-9)  # without those of this function
    progress.print_line(
        f"done: {run.step} updates in {format_seconds(run.seconds)} ({stopped}), {share:.0%} of the time evaluations, "
        f"{run.tokens / max(run.seconds, 1e-9):,.0f} {run.task.unit}/s; saved '{chosen}' to {run.out / 'model'}"
    )
    run.world.barrier()
    return result


def _gather(run: TrainingRun) -> dict[str, Tensor]:
    """Return the whole weights on the main process, nothing on the others; gathered one by one."""
    final: dict[str, Tensor] = {}
    for name, x in named_tensors(run.model).items():
        gathered = to_full(x)
        if run.world.is_main_process:
            final[name] = gathered.cpu() if run.parallel.is_sharded else gathered
    return final


def save_interrupted(run: TrainingRun, progress: Progress) -> dict[str, Any]:
    """Save the model of an interrupted run as it is, without measuring it; return what is known of the run.

    The weights are those that were best on validation; before the first evaluation their moving average, or the last.
    """
    progress.print_line(f"stopped after update {run.step}, everything is saved. To resume:\n  {run.command}")
    candidates = _candidates(run)
    chosen = next(name for name in ("best", "ema", "last") if name in candidates)
    result = build_result(run, "interrupted", {}, chosen)
    if run.world.size == 1:  # several processes may be given seconds to end
        last = candidates["last"]()
        with suppress(BadInput):
            copy_weights(run.model, _cast_to_save_dtype(candidates[chosen](), run.settings.save_dtype))
            _export(run, {name: to_full(x) for name, x in named_tensors(run.model).items()}, result)
            progress.print_line(f"its {chosen} weights can be used as they are: {run.out / 'model'}")
        copy_weights(run.model, last)
    return result


def _candidates(run: TrainingRun) -> dict[str, Callable[[], Weights]]:
    """Return the weights a run may end with, each loaded when called."""
    last = {name: x.detach().clone() for name, x in named_tensors(run.model).items()}
    found: dict[str, Callable[[], Weights]] = {"last": lambda: last}
    best = run.checkpoints.folder / "best.safetensors"
    if run.best is not None and best.is_file() and _belongs_to_run(best, run.step):
        found["best"] = lambda: read_weights(best)
    if (ema := run.ema) is not None:
        found["ema"] = lambda: last | ema.averages
    files = run.checkpoints.last(run.settings.average_checkpoints)
    if len(files) > 1:
        found["average"] = lambda: average_weights(files)
    return found


def _belongs_to_run(best: Path, step: int) -> bool:
    """Return whether the best weights come from an update of this run, not from one that a killed run had reached."""
    try:
        return int(read_header(best)[0]["__metadata__"]["step"]) <= step
    except (BadInput, KeyError, ValueError):
        return True  # reading it reports the problem


def _best_candidate(measured: dict[str, dict[str, Any]], by: Metric) -> str:
    """Return the name of the best weights by a metric; equal ones by the loss."""
    best = next(iter(measured))
    for name, found in measured.items():
        key, top = (tuple(float(m[k]) for k in (by.key, "loss")) for m in (found, measured[best]))
        if by.is_better(key[0], top[0]) or (key[0] == top[0] and key[1] < top[1]):
            best = name
    return best


def _cast_to_save_dtype(weights: Weights, dtype: str) -> dict[str, Tensor]:
    """Return weights as they will be after saving and loading."""
    if dtype == "float32":
        return dict(weights)
    if dtype == "int8":
        from regard.weights.int8 import dequantize_int8, quantize_int8

        return dequantize_int8(quantize_int8({name: to_full(x) for name, x in weights.items()}))
    return {name: x.half().float() if x.is_floating_point() else x for name, x in weights.items()}


def _export(run: TrainingRun, final: Weights, found: dict[str, Any]) -> None:
    from regard.weights.folder import save_model

    model = run.model
    if run.parallel.is_sharded:
        model = build(run.recipe.model)
        copy_weights(model, final)
    text, about = getattr(run.task, "text", None), run.task.describe()
    dtype = None if run.settings.save_dtype == "float32" else run.settings.save_dtype
    save_model(run.out / "model", model.eval(), text, about, _card(run, found), dtype)


def _card(run: TrainingRun, found: dict[str, Any]) -> str:
    chosen = found["validation"].get(found["final_weights"], {})
    scores = "\n".join(f"- {key}: {value}" for key, value in chosen.items())
    return (
        f"# {run.recipe.name}\n\n{run.task.card()}\n\nTrained {found['steps']} updates "
        f"({found['epochs']} epochs, {found['tokens']:,} {run.task.unit}, {format_seconds(found['seconds'])}) on "
        f"{found['machine']}; weights: {found['final_weights']}.\n\nOn the validation split:\n\n{scores}\n"
    )


def build_result(
    run: TrainingRun, stopped: str, measured: dict[str, dict[str, Any]], chosen: str | None
) -> dict[str, Any]:
    """Return the run in numbers, as in result.json."""
    return {
        "recipe": run.recipe.name,
        "stop_reason": stopped,
        "steps": run.step,
        "epochs": run.position.epoch,
        "tokens": run.tokens,
        "seconds": round(run.seconds, 3),
        "eval_seconds": round(run.eval_seconds, 3),
        "tokens_per_second": round(run.tokens / max(run.seconds, 1e-9), 1),
        "parameters": count_parameters(run.model),
        "machine": device_name(run.device),
        "world_size": run.world.size,
        "data_parallel": run.parallel.mode,
        "precision": run.precision,
        "compiled": run.eager is None,
        "captured_shapes": len(run.graphs.graphs) if run.graphs is not None else 0,
        "replayed_updates": run.graphs.replays if run.graphs is not None else 0,
        "torch": torch.__version__,
        "seed": run.settings.seed,
        "final_weights": chosen,
        "validation": measured,
        "out": str(run.out),
    }


def count_parameters(model: nn.Module) -> int:
    """Return the number of parameters over all devices."""
    return sum(p.numel() for p in model.parameters())
