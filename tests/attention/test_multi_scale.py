"""Multi-scale attention: every head is softmax attention within its own window."""

import pytest
import torch

from regard.attention.mask import PaddingMask, WindowMask
from regard.attention.mechanisms.multi_scale import MultiScaleAttention, layer_scales
from regard.attention.mechanisms.softmax import SoftmaxAttention
from regard.core.errors import BadInput
from regard.models import build


@pytest.fixture(autouse=True)
def _double(double):
    pass


def test_every_head_is_softmax_attention_within_its_window_in_value_and_gradient():
    softmax = SoftmaxAttention(backend="eager")
    for n in (1, 2, 37, 50):
        q, k, v = (torch.randn(2, 4, n, 3, requires_grad=True) for _ in range(3))
        lengths = torch.tensor([n, (n + 1) // 2])
        attend = MultiScaleAttention((2, 5, 0.25, 100))
        found = attend(q, k, v, PaddingMask(lengths))
        expected = torch.zeros_like(found)
        for b, length in enumerate(lengths.tolist()):
            for head, reach in enumerate((2, 5, max(1, length // 4), 100)):
                mask = WindowMask(reach + 1) & PaddingMask(lengths[b : b + 1])
                one = (x[b : b + 1, head : head + 1] for x in (q, k, v))
                expected[b, head] = softmax(*one, mask)[0, 0]
        torch.testing.assert_close(found, expected)
        for a, b in zip(*(torch.autograd.grad(x.square().sum(), (q, k, v)) for x in (found, expected)), strict=True):
            torch.testing.assert_close(a, b)


def test_scales_are_shared_out_evenly():
    assert MultiScaleAttention((1, 3))._groups(4) == [(1, 0, 2), (3, 2, 4)]
    assert [group[0] for group in MultiScaleAttention((1, 3, 0.1, 0.2, 0.5))._groups(2)] == [3, 0.2]


def test_lower_layers_have_more_heads_of_small_scales():
    specs = layer_scales(4, 10, alpha=4.0)
    counts = [spec.count("1,") + spec.count("3,") for spec in specs]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1] == 4  # two of five scales, two heads each
    assert layer_scales(3, 10, alpha=0.0)[0] == specs[-1]
    model = build("bert", vocab=11, width=20, heads=10, layers=4, length=8, attention=specs, head=None)
    assert model(torch.randint(11, (1, 6))).shape == (1, 6, 20)


def test_scales_that_are_none_are_refused():
    for scales in ((), (1.5,), (-1,)):
        with pytest.raises(BadInput, match="whole numbers of tokens"):
            MultiScaleAttention(scales)
