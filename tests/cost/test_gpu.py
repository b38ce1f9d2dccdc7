"""On a GPU: the allocator's own peak, and torch's counter, against what was imagined."""

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
WAYS = {
    "bfloat16": ExecutionPlan(),
    "recompute": ExecutionPlan(recompute=True),
    "float32": ExecutionPlan("float32"),
    "muon": ExecutionPlan(optimiser="muon"),
}


def measured(config, shape, way):
    """Bytes that an update holds on the device at most, weights and moments with it."""
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    real = Real(config, shape, way, "cuda")
    real.update()
    torch.cuda.reset_peak_memory_stats()
    real.update()
    return torch.cuda.max_memory_allocated() - before


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("word", CASES)
def test_peak_memory_is_within_15_per_cent_of_the_allocators(word, how):
    settings, shape = CASES[word]
    config, way = resolve_config(*parse_model_name(word), settings), WAYS[how]
    found = training_step(config, shape, way)
    imagined = 4 * found.total + found.buffers + found.state + sum(found.peak.values())
    there = measured(config, shape, way)
    print(f"{word} {how}: imagined {imagined / 2**30:.2f} GiB, measured {there / 2**30:.2f} GiB")
    assert imagined == pytest.approx(there, rel=0.15)


@pytest.mark.parametrize("word", CASES)
def test_operations_are_within_1_per_cent_of_torchs_counter(word):
    settings, shape = CASES[word]
    config = resolve_config(*parse_model_name(word), settings)
    counted = Real(config, shape, ExecutionPlan(), "cuda").operations()
    assert training_step(config, shape, ExecutionPlan()).operations("forward", "loss", "backward") == pytest.approx(
        counted, rel=0.01
    )
