"""Estimated peak memory of an update against the allocator's record of a real one."""

from dataclasses import replace

import pytest
import torch

from regard.cost.meta_model import InputShape, parse_model_name, resolve_config
from regard.cost.passes import (
    ExecutionPlan,
    _training_log,
    decoding_step,
    forward_pass,
    saved_activation_bytes,
    training_step,
)

from .real import Real

CASES = {
    "transformer:tiny": ([], InputShape(batch=8, source=20, target=24)),
    "gpt:tiny": (["vocab=300"], InputShape(batch=8, length=64)),
    "gpt:char": (["vocab=65"], InputShape(batch=1, length=128)),
    "rnnsearch:tiny": ([], InputShape(batch=4, source=12, target=10)),
}
PLANS = {
    "float32": ExecutionPlan("float32"),
    "bfloat16": ExecutionPlan("bfloat16"),
    "recompute": ExecutionPlan("float32", recompute=True),
    "accumulate": ExecutionPlan("float32", accumulate=3),
    "muon": ExecutionPlan("float32", optimizer="muon"),
    "adafactor": ExecutionPlan("float32", optimizer="adafactor"),
    "sgd": ExecutionPlan("float32", optimizer="sgd"),
}
SHORT = {("transformer:tiny", "bfloat16"), ("rnnsearch:tiny", "float32"), ("gpt:tiny", "recompute")}
PAIRS = [
    pytest.param(name, mode, marks=() if (name, mode) in SHORT else pytest.mark.long)
    for name in CASES
    for mode in PLANS
    if (name, mode) not in {("rnnsearch:tiny", "recompute"), ("rnnsearch:tiny", "muon")}  # it has no blocks
]


@pytest.mark.parametrize(("name", "mode"), PAIRS)
def test_peak_memory_is_what_a_real_update_allocates(name, mode):
    settings, shape = CASES[name]
    config, plan = resolve_config(*parse_model_name(name), settings), PLANS[mode]
    found, measured = training_step(config, shape, replace(plan, is_cpu=True)), Real(config, shape, plan).peak()
    constant_bytes = 4 * found.total + found.state  # weights and moments, there before and after
    assert constant_bytes + sum(found.peak.values()) == pytest.approx(constant_bytes + measured, rel=0.15)
    assert sum(found.peak.values()) == pytest.approx(measured, rel=0.15)  # and without them


def test_weights_and_moments_are_counted_exactly():
    config = resolve_config("gpt", "tiny", ["vocab=300"])
    for spec in ("muon", "adafactor"):
        found = training_step(config, InputShape(batch=1, length=8), ExecutionPlan("float32", optimizer=spec))
        real = Real(config, InputShape(batch=1, length=8), ExecutionPlan("float32", optimizer=spec))
        assert found.total == sum(p.numel() for p in real.model.parameters())
        assert found.state == sum(x.numel() * x.element_size() for x in real.optimizer.tensors().values())


def test_optimizer_state_size():
    """AdamW: two numbers per weight; Muon: one for matrices of blocks; Adafactor: a row and a column; SGD: one."""
    config = resolve_config("gpt", "tiny", ["vocab=300"])
    n, shape = (
        training_step(config, InputShape(batch=1, length=8), ExecutionPlan()).total,
        InputShape(batch=1, length=8),
    )
    matrices = config.layers * 12 * config.width**2
    assert training_step(config, shape, ExecutionPlan()).state == pytest.approx(8 * n, rel=1e-3)
    assert training_step(config, shape, ExecutionPlan(optimizer="muon")).state == pytest.approx(
        8 * n - 4 * matrices, rel=1e-3
    )
    assert training_step(config, shape, ExecutionPlan(optimizer="sgd")).state == 4 * n
    assert training_step(config, shape, ExecutionPlan(optimizer="adafactor")).state < 0.1 * n


def test_fused_attention_stores_no_map():
    def grows(plan, settings=()):
        def at(n):
            config = resolve_config("gpt", "tiny", ["vocab=300", f"length={n}", *settings])
            return saved_activation_bytes(config, InputShape(batch=1, length=n), plan)

        return at(512) / at(256)

    assert grows(ExecutionPlan("float32")) == pytest.approx(2, rel=0.01)
    assert grows(ExecutionPlan("float32"), ["attention='softmax(backend=\"eager\")'"]) > 2.9


def test_recomputation_saves_only_block_inputs():
    config = resolve_config("gpt", "tiny", ["vocab=300"])
    shape, layers = InputShape(batch=4, length=64), config.layers
    entering = 4 * 64 * config.width * 4
    less = saved_activation_bytes(config, shape, ExecutionPlan("float32", recompute=True))
    assert less < 0.3 * saved_activation_bytes(config, shape, ExecutionPlan("float32"))
    assert less > layers * entering
    deeper = saved_activation_bytes(
        resolve_config("gpt", "tiny", ["vocab=300", "layers=5"]), shape, ExecutionPlan("float32", recompute=True)
    )
    assert deeper - less == entering


def test_memory_is_convex_in_the_batch_size():
    """The search for the largest batch relies on this."""
    config = resolve_config("gpt", "tiny", ["vocab=3000"])
    at = [
        sum(training_step(config, InputShape(batch=b, length=64), ExecutionPlan()).peak.values())
        for b in (1, 2, 3, 8, 9)
    ]
    slopes = [at[1] - at[0], at[2] - at[1], (at[3] - at[2]) / 5, at[4] - at[3]]
    assert slopes == sorted(slopes)


def test_cache_bytes():
    config = resolve_config("gpt", "tiny", ["vocab=300"])
    found = decoding_step(config, InputShape(batch=3, length=50), ExecutionPlan("float32"))
    slots = 64  # 51, rounded up to what kernels like
    keys = 2 * config.layers * 3 * slots * config.width * 4
    assert keys <= found.cache < 1.01 * keys + 3 * slots * 16
    few = decoding_step(
        resolve_config("gpt", "tiny", ["vocab=300", "kv_heads=1"]),
        InputShape(batch=3, length=50),
        ExecutionPlan("float32"),
    )
    assert few.cache < 0.3 * found.cache
    half = decoding_step(config, InputShape(batch=3, length=50), ExecutionPlan("bfloat16"))
    assert half.cache == pytest.approx(found.cache / 2, rel=0.02)


def test_beams_share_the_encoded_source():
    config = resolve_config("transformer", "tiny", [])
    one, four = (
        decoding_step(config, InputShape(2, source=40, target=10), ExecutionPlan("float32"), beam_size)
        for beam_size in (1, 4)
    )
    memory = 2 * config.decoder_layers * 2 * 40 * config.width * 4  # keys and values of the source, in every layer
    written = 2 * config.decoder_layers * 2 * config.width * 4
    assert four.cache - one.cache == pytest.approx(written * 3 * 10, rel=0.2)
    assert one.cache > memory


def test_forward_pass_needs_little_memory():
    config = resolve_config("transformer", "small", [])
    shape = InputShape(batch=8, length=30)
    assert sum(forward_pass(config, shape, ExecutionPlan("float32")).peak.values()) < 0.4 * saved_activation_bytes(
        config, shape, ExecutionPlan("float32")
    )


def test_estimate_does_not_depend_on_earlier_ones():
    config, shape = resolve_config("transformer", "tiny", []), InputShape(batch=2, length=9)
    first = _training_log(config, shape, ExecutionPlan())
    junk = [torch.zeros(100) for _ in range(100)]
    junk.append(junk)
    second = _training_log(config, shape, ExecutionPlan())
    assert first.peak() == second.peak()
    assert [type(x) for x in first.entries] == [type(x) for x in second.entries]
