"""Linear attention: the chunked causal form against the quadratic one, and a state of constant size."""

import pytest
import torch

from regard.attention.kv_cache import BeamTable
from regard.attention.mask import CausalMask, PaddingMask, WindowMask
from regard.attention.mechanisms.linear import LinearAttention, feature
from regard.attention.mixers import build_mixer
from regard.core.errors import Unsupported
from regard.core.positions import TensorBias


def quadratic(q, k, v, mask=None):
    """The formula written out: weights φ(q)·φ(k), divided by their sum."""
    each = q.shape[1] // k.shape[1]
    products = feature(q) @ feature(k).repeat_interleave(each, 1).mT
    if mask is not None:
        products = products * mask.dense(q.shape[0], q.shape[2], k.shape[2])
    return products / products.sum(-1, keepdim=True).clamp(min=1e-30) @ v.repeat_interleave(each, 1)


def parts(n, m, kv_heads=2):
    shapes = (3, 4, n, 6), (3, kv_heads, m, 6), (3, kv_heads, m, 5)
    return [torch.randn(shape, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize(("n", "m"), [(13, 13), (1, 1), (8, 8), (5, 13), (1, 9), (9, 4)])
@pytest.mark.parametrize("chunk", [1, 4, 64])
@pytest.mark.parametrize("causal", [True, False])
def test_chunked_form_equals_the_quadratic_one_in_value_and_gradient(double, n, m, chunk, causal):
    attend, (q, k, v) = LinearAttention(chunk), parts(n, m)
    lengths = PaddingMask(torch.tensor([m, max(1, m // 2), 1]))
    for mask in (CausalMask(), CausalMask() & lengths) if causal else (None, lengths):
        probe = torch.randn(3, 4, n, 5)
        out, expected = attend(q, k, v, mask), quadratic(q, k, v, mask)
        torch.testing.assert_close(out, expected)
        found = torch.autograd.grad((out * probe).sum(), (q, k, v))
        for one, other in zip(found, torch.autograd.grad((expected * probe).sum(), (q, k, v)), strict=True):
            torch.testing.assert_close(one, other)


def test_state_does_not_grow_with_the_text():
    mixer = build_mixer("linear", width=8, heads=2).eval()
    state, table = mixer.start(1, 64), BeamTable.start(1, 64, torch.device("cpu"))
    sizes = set()
    for _ in range(20):
        table.add_step(1)
        _, state = mixer.step(torch.randn(1, 1, 8), state, table)
        sizes.add((state.kv.shape, state.total.shape))
    assert sizes == {((1, 1, 2, 4, 4), (1, 1, 2, 4))}


def test_other_masks_and_biases_are_refused():
    attend, (q, k, v) = LinearAttention(), parts(5, 5)
    with pytest.raises(Unsupported, match="causal, padding"):
        attend(q, k, v, WindowMask(2))
    with pytest.raises(Unsupported, match="cannot add a bias"):
        attend(q, k, v, None, TensorBias(torch.zeros(1, 1, 5, 5)))


def test_sums_are_taken_in_float32():
    mixer = build_mixer("linear", width=8, heads=2).bfloat16()
    state, table = mixer.start(1, 8), BeamTable.start(1, 8, torch.device("cpu"))
    table.add_step(1)
    out, state = mixer.step(torch.randn(1, 1, 8, dtype=torch.bfloat16), state, table)
    assert (out.dtype, state.kv.dtype, state.total.dtype) == (torch.bfloat16, torch.float32, torch.float32)
