"""Memory: what an update holds at most, imagined, against the allocator's record of a real one."""

from dataclasses import replace

import pytest
import torch

from regard.cost.imagine import Shape, config_of, named
from regard.cost.passes import Way, _trained, kept, reading, training, writing

from .real import Real

CASES = {
    "transformer:tiny": ([], Shape(batch=8, source=20, target=24)),
    "gpt:tiny": (["vocab=300"], Shape(batch=8, length=64)),
    "gpt:char": (["vocab=65"], Shape(batch=1, length=128)),
    "rnnsearch:tiny": ([], Shape(batch=4, source=12, target=10)),
}
WAYS = {
    "float32": Way("float32"),
    "bfloat16": Way("bfloat16"),
    "recompute": Way("float32", recompute=True),
    "accumulate": Way("float32", accumulate=3),
    "muon": Way("float32", optimiser="muon"),
    "adafactor": Way("float32", optimiser="adafactor"),
    "sgd": Way("float32", optimiser="sgd"),
}
SHORT = {("transformer:tiny", "bfloat16"), ("rnnsearch:tiny", "float32"), *(("gpt:tiny", how) for how in WAYS)}
PAIRS = [
    pytest.param(word, how, marks=() if (word, how) in SHORT else pytest.mark.long)
    for word in CASES
    for how in WAYS
    if (word, how) not in {("rnnsearch:tiny", "recompute"), ("rnnsearch:tiny", "muon")}  # it has no blocks
]


@pytest.mark.parametrize(("word", "how"), PAIRS)
def test_peak_memory_is_what_a_real_update_allocates(word, how):
    settings, shape = CASES[word]
    config, way = config_of(*named(word), settings), WAYS[how]
    found, measured = training(config, shape, replace(way, host=True)), Real(config, shape, way).peak()
    apart = 4 * found.total + found.state  # weights and moments, there before and after
    assert apart + sum(found.peak.values()) == pytest.approx(apart + measured, rel=0.15)
    assert sum(found.peak.values()) == pytest.approx(measured, rel=0.15)  # and without them


def test_weights_and_moments_are_counted_exactly():
    config = config_of("gpt", "tiny", ["vocab=300"])
    for spec in ("muon", "adafactor"):
        found = training(config, Shape(batch=1, length=8), Way("float32", optimiser=spec))
        real = Real(config, Shape(batch=1, length=8), Way("float32", optimiser=spec))
        assert found.total == sum(p.numel() for p in real.model.parameters())
        assert found.state == sum(x.numel() * x.element_size() for x in real.optimiser.tensors().values())


def test_moments_by_the_rule_of_each_optimiser():
    """AdamW two numbers a weight; Muon one for matrices of blocks; Adafactor a row and a column; SGD one."""
    config = config_of("gpt", "tiny", ["vocab=300"])
    n, shape = training(config, Shape(batch=1, length=8), Way()).total, Shape(batch=1, length=8)
    matrices = config.layers * 12 * config.width**2
    assert training(config, shape, Way()).state == pytest.approx(8 * n, rel=1e-3)
    assert training(config, shape, Way(optimiser="muon")).state == pytest.approx(8 * n - 4 * matrices, rel=1e-3)
    assert training(config, shape, Way(optimiser="sgd")).state == 4 * n
    assert training(config, shape, Way(optimiser="adafactor")).state < 0.1 * n


def test_fused_attention_keeps_no_map():
    def grows(way, settings=()):
        def at(n):
            config = config_of("gpt", "tiny", ["vocab=300", f"length={n}", *settings])
            return kept(config, Shape(batch=1, length=n), way)

        return at(512) / at(256)

    assert grows(Way("float32")) == pytest.approx(2, rel=0.01)
    assert grows(Way("float32"), ["attention='softmax(backend=\"plain\")'"]) > 2.9


def test_recomputation_keeps_what_enters_the_blocks():
    config = config_of("gpt", "tiny", ["vocab=300"])
    shape, layers = Shape(batch=4, length=64), config.layers
    entering = 4 * 64 * config.width * 4
    less = kept(config, shape, Way("float32", recompute=True))
    assert less < 0.3 * kept(config, shape, Way("float32"))
    assert less > layers * entering
    deeper = kept(config_of("gpt", "tiny", ["vocab=300", "layers=5"]), shape, Way("float32", recompute=True))
    assert deeper - less == entering


def test_memory_is_a_convex_line_in_the_batch():
    """What the search for the largest batch relies on."""
    config = config_of("gpt", "tiny", ["vocab=3000"])
    at = [sum(training(config, Shape(batch=b, length=64), Way()).peak.values()) for b in (1, 2, 3, 8, 9)]
    slopes = [at[1] - at[0], at[2] - at[1], (at[3] - at[2]) / 5, at[4] - at[3]]
    assert slopes == sorted(slopes)


def test_the_cache_is_keys_and_values_of_every_layer():
    config = config_of("gpt", "tiny", ["vocab=300"])
    found = writing(config, Shape(batch=3, length=50), Way("float32"))
    slots = 64  # 51, rounded up to what kernels like
    keys = 2 * config.layers * 3 * slots * config.width * 4
    assert keys <= found.cache < 1.01 * keys + 3 * slots * 16
    few = writing(config_of("gpt", "tiny", ["vocab=300", "groups=1"]), Shape(batch=3, length=50), Way("float32"))
    assert few.cache < 0.3 * found.cache
    half = writing(config, Shape(batch=3, length=50), Way("bfloat16"))
    assert half.cache == pytest.approx(found.cache / 2, rel=0.02)


def test_beams_share_what_was_read_of_the_source():
    config = config_of("transformer", "tiny", [])
    one, four = (writing(config, Shape(2, source=40, target=10), Way("float32"), beams) for beams in (1, 4))
    memory = 2 * config.decoder_layers * 2 * 40 * config.width * 4  # keys and values of the source, in every layer
    written = 2 * config.decoder_layers * 2 * config.width * 4
    assert four.cache - one.cache == pytest.approx(written * 3 * 10, rel=0.2)
    assert one.cache > memory


def test_reading_holds_little():
    config = config_of("transformer", "small", [])
    shape = Shape(batch=8, length=30)
    assert sum(reading(config, shape, Way("float32")).peak.values()) < 0.4 * kept(config, shape, Way("float32"))


def test_an_estimate_does_not_depend_on_what_ran_before():
    config, shape = config_of("transformer", "tiny", []), Shape(batch=2, length=9)
    first = _trained(config, shape, Way())
    junk = [torch.zeros(100) for _ in range(100)]
    junk.append(junk)
    second = _trained(config, shape, Way())
    assert first.peak() == second.peak()
    assert [type(x) for x in first.entries] == [type(x) for x in second.entries]
