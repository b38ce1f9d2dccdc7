"""Advice for a batch that does not fit into memory: how many of its rows would, found by trying.

Estimates of memory are wrong where they matter (fragmentation, kernel workspace), so the batch is halved until one
forward and backward pass succeeds on this device with this model.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import torch

from regard.core.errors import is_out_of_memory

if TYPE_CHECKING:
    from regard.training.loop import TrainingRun


def suggest_batch_size(run: TrainingRun, batch: Any, error: Exception) -> str:
    """Return one line: what did not fit, what would, and what to do. The run is not changed."""
    error.__traceback__ = None  # it references all tensors of the failed pass
    total = rows = len(batch[0])
    problem = f"a batch of {total} rows does not fit on {run.device}"
    advice = "train.gradient_checkpointing=true saves most activation memory, at a fifth more time"
    if run.world.size > 1:  # the other processes wait in the middle of a pass: nothing can be tried here
        return (
            f"{problem}; halve it and double train.gradient_accumulation_steps, or shard the model "
            f"(train.data_parallel=fsdp); {advice}"
        )
    images = run.task.unit == "images"
    rows //= 2
    while rows and not _fits(run, batch.rows(rows)):
        rows //= 2
    if not rows:
        smaller = "smaller images (data.image_size)" if images else "shorter rows"
        return f"{problem}, and neither does a single row; {advice}; or use a smaller model or {smaller}"
    times = -(-total // rows) * run.settings.gradient_accumulation_steps
    batch_advice = f"set data.batch_size={rows}" if images else "make batches this small"
    return (
        f"{problem}, but {rows} rows do: {batch_advice} and set train.gradient_accumulation_steps={times}; or {advice}"
    )


def _fits(run: TrainingRun, batch: Any) -> bool:
    """Return whether one forward and backward pass succeeds."""
    sampling_state, rng_state = run.sampling.get_state(), torch.get_rng_state()
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
        run.sampling.set_state(sampling_state)
        torch.set_rng_state(rng_state)
        run.model.zero_grad(set_to_none=True)
        gc.collect()
        if run.device.type == "cuda":
            torch.cuda.empty_cache()
