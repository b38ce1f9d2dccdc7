"""On a GPU: the allocator's own peak, and torch's counter, against what was imagined."""

import gc

import pytest
import torch

from regard.cost.imagine import Shape, config_of, named
from regard.cost.passes import Way, training

from .real import Real

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]

CASES = {
    "transformer:base": (["vocab=8000"], Shape(batch=64, length=64)),
    "transformer:big": (["vocab=8000"], Shape(batch=32, length=64)),
    "gpt:gpt2": (["vocab=50304", "dropout=0", "attention_dropout=0"], Shape(batch=16, length=1024)),
    "gpt:medium": (["vocab=50304", "dropout=0", "attention_dropout=0"], Shape(batch=8, length=1024)),
    "gpt:char": (["vocab=65"], Shape(batch=64, length=256)),
}
WAYS = {"bfloat16": Way(), "recompute": Way(recompute=True), "float32": Way("float32"), "muon": Way(optimiser="muon")}


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
    config, way = config_of(*named(word), settings), WAYS[how]
    found = training(config, shape, way)
    imagined = 4 * found.total + found.buffers + found.state + sum(found.peak.values())
    there = measured(config, shape, way)
    print(f"{word} {how}: imagined {imagined / 2**30:.2f} GiB, measured {there / 2**30:.2f} GiB")
    assert imagined == pytest.approx(there, rel=0.15)


@pytest.mark.parametrize("word", CASES)
def test_operations_are_within_1_per_cent_of_torchs_counter(word):
    settings, shape = CASES[word]
    config = config_of(*named(word), settings)
    counted = Real(config, shape, Way(), "cuda").operations()
    assert training(config, shape, Way()).operations("forward", "loss", "backward") == pytest.approx(counted, rel=0.01)
