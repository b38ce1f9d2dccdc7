"""A batch that does not fit: how much of it would, found by trying.

Estimates of memory are wrong where they matter (fragments, kernels' workspace), so rows are halved until one pass
forward and back goes through on this very device, with this very model.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import torch

from regard.core.errors import is_out_of_memory

if TYPE_CHECKING:
    from regard.training.loop import TrainingRun


def suggest_batch_size(run: TrainingRun, batch: Any, error: Exception) -> str:
    """One line: what did not fit, what would, and what to do. Nothing of the run is changed by trying."""
    error.__traceback__ = None  # it holds on to everything the pass had made
    every = rows = len(batch[0])
    said = f"a batch of {every} rows does not fit on {run.device}"
    advice = "train.gradient_checkpointing=true saves most of what a pass keeps, at a fifth more time"
    if run.world.size > 1:  # the others wait in the middle of a pass: nothing can be tried here
        return f"{said}; halve it and double train.gradient_accumulation_steps, or slice the model (train.data_parallel=fsdp); {advice}"
    images = run.task.unit == "images"
    rows //= 2
    while rows and not _fits(run, batch.rows(rows)):
        rows //= 2
    if not rows:
        smaller = "smaller images (data.image_size)" if images else "shorter rows"
        return f"{said}, and neither does a single row; {advice}; or take a smaller model or {smaller}"
    times = -(-every // rows) * run.settings.gradient_accumulation_steps
    so_small = f"set data.batch_size={rows}" if images else "make batches so small"
    return f"{said}, but {rows} rows do: {so_small} and set train.gradient_accumulation_steps={times}; or {advice}"


def _fits(run: TrainingRun, batch: Any) -> bool:
    """Whether one pass forward and back goes through."""
    state, kept = run.sampling.get_state(), torch.get_rng_state()
    try:
        with run.autocast():
            total, _ = run.task.loss(run.model, batch.to(run.device), run.step, run.sampling)
        total.backward()
        return True
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return False
    finally:
        run.sampling.set_state(state)
        torch.set_rng_state(kept)
        run.model.zero_grad(set_to_none=True)
        gc.collect()
        if run.device.type == "cuda":
            torch.cuda.empty_cache()
