"""Estimates against the GPU allocator's peak and torch's operation counter."""

import gc

import pytest
import torch

from regard.cost.meta_model import InputShape, parse_model_name, resolve_config
from regard.cost.passes import ExecutionPlan, training_step

from .real import Real

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]

CASES = {
    "transformer:base": (["vocab=8000"], InputShape(batch=64, length=64)),
    "transformer:big": (["vocab=8000"], InputShape(batch=32, length=64)),
    "gpt:gpt2": (["vocab=50304", "dropout=0", "attention_dropout=0"], InputShape(batch=16, length=1024)),
    "gpt:medium": (["vocab=50304", "dropout=0", "attention_dropout=0"], InputShape(batch=8, length=1024)),
    "gpt:char": (["vocab=65"], InputShape(batch=64, length=256)),
}
PLANS = {
    "bfloat16": ExecutionPlan(),
    "recompute": ExecutionPlan(recompute=True),
    "float32": ExecutionPlan("float32"),
    "muon": ExecutionPlan(optimizer="muon"),
}


def measured(config, shape, plan):
    """Return the peak bytes of an update on the device, with weights and moments."""
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    real = Real(config, shape, plan, "cuda")
    real.update()
    torch.cuda.reset_peak_memory_stats()
    real.update()
    return torch.cuda.max_memory_allocated() - before


@pytest.mark.parametrize("mode", PLANS)
@pytest.mark.parametrize("name", CASES)
def test_peak_memory_is_within_15_percent_of_the_allocator(name, mode):
    settings, shape = CASES[name]
    config, plan = resolve_config(*parse_model_name(name), settings), PLANS[mode]
    found = training_step(config, shape, plan)
    estimated = 4 * found.total + found.buffers + found.state + sum(found.peak.values())
    actual = measured(config, shape, plan)
    print(f"{name} {mode}: estimated {estimated / 2**30:.2f} GiB, measured {actual / 2**30:.2f} GiB")
    assert estimated == pytest.approx(actual, rel=0.15)


@pytest.mark.parametrize("name", CASES)
def test_operations_are_within_1_per_cent_of_torchs_counter(name):
    settings, shape = CASES[name]
    config = resolve_config(*parse_model_name(name), settings)
    counted = Real(config, shape, ExecutionPlan(), "cuda").operations()
    assert training_step(config, shape, ExecutionPlan()).operations("forward", "loss", "backward") == pytest.approx(
        counted, rel=0.01
    )
