"""Work and memory grow with the length as the traits claim: counted, not timed, on mechanisms and mixers."""

import importlib.util
import math
from types import SimpleNamespace

import pytest

from regard.attention import MECHANISMS, MIXERS
from regard.core.spec import resolve
from regard.cost.measurements import claimed_exponent
from tests.docs.blocks import ROOT

TABLE = MECHANISMS | {name: MIXERS[name] for name in MIXERS if name != "multihead"}
CLAIMED = {name: claimed_exponent(resolve(TABLE, name, "attention").traits.cost) for name in TABLE}
SETTINGS = SimpleNamespace(batch=1, heads=1, head_dim=8, dtype="float32", device="cpu")
SHORT, LONG = 1024, 4096
MARGIN = 0.25  # of an exponent: log N counts as 0


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    spec = importlib.util.spec_from_file_location("variants_benchmark", ROOT / "benchmarks" / "variants.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", [name for name, power in CLAIMED.items() if power < 2])
def test_nothing_grows_faster_than_it_claims(name, benchmark, unchecked):
    for mode in benchmark.modes(name):
        short, long = (benchmark.count(name, mode, n, SETTINGS) for n in (SHORT, LONG))
        for what in short:
            power = math.log(long[what] / short[what], LONG / SHORT)
            assert power <= CLAIMED[name] + MARGIN, f"{what}, {mode}: N^{power:.2f}, claimed N^{CLAIMED[name]:g}"


def test_a_hidden_square_is_found(benchmark, monkeypatch, unchecked):
    import torch

    from regard.attention.mechanisms.linear import LinearAttention

    before = LinearAttention.mix

    def mix(self, q, k, v, mask, bias, layer_state=None):
        n = torch.arange(q.shape[2])
        return before(self, q, k, v, mask, bias, layer_state) * (n[:, None] >= n).any(1)[:, None]

    monkeypatch.setattr(LinearAttention, "mix", mix)
    short, long = (benchmark.count("linear", "bidirectional", n, SETTINGS) for n in (SHORT, LONG))
    assert max(math.log(long[what] / short[what], LONG / SHORT) for what in short) > 1 + MARGIN
