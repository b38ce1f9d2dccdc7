"""Kernel attention: chunked and quadratic forms agree with fading sums too, in value and gradient; half precision."""

import pytest
import torch

from regard.attention.kernel import KernelAttention
from regard.attention.mask import CausalMask, PaddingMask
from regard.attention.mechanisms import MECHANISMS
from regard.attention.mixers import build_mixer
from regard.attention.protocol import Mechanism
from regard.core.spec import build_part, resolve

SIZES = {"width": 24, "heads": 4, "kv_heads": 2, "head_dim": 6, "length": 64, "causal": True}
NAMES = [name for name in MECHANISMS if issubclass(resolve(MECHANISMS, name, "attention"), KernelAttention)]


def parts(n, m, dtype=None, scale=1.0):
    shapes = (3, 4, n, 6), (3, 2, m, 6), (3, 2, m, 5)
    return [(scale * torch.randn(shape)).to(dtype or torch.get_default_dtype()).requires_grad_() for shape in shapes]


def attention(name, chunk):
    attend = build_part(MECHANISMS, f"{name}(chunk={chunk})", "attention", **SIZES)
    for parameter in attend.parameters():
        torch.nn.init.normal_(parameter, 0.5)
    return attend


@pytest.mark.parametrize("name", NAMES)
def test_any_chunk_gives_the_quadratic_form_in_value_and_gradient(double, name):
    for n, m in [(13, 13), (1, 1), (5, 13), (9, 4)]:
        (q, k, v), probe = parts(n, m), torch.randn(3, 4, n, 5)
        lengths = PaddingMask(torch.tensor([m, max(1, m // 2), 1]))
        for mask in (None, lengths, CausalMask(), CausalMask() & lengths):
            expected = None
            for chunk in (1, 4, 64):
                attend = attention(name, chunk)
                torch.manual_seed(3)
                for parameter in attend.parameters():
                    torch.nn.init.normal_(parameter, 0.5)
                out = attend(q, k, v, mask)
                found = [out, *torch.autograd.grad((out * probe).sum(), (q, k, v))]
                if expected is None:  # each query with its own weights, from the formula where there is one
                    out = attend.weights(q, k, mask) @ v.repeat_interleave(2, 1)
                    expected = [out, *torch.autograd.grad((out * probe).sum(), (q, k, v))]
                for one, other in zip(found, expected, strict=True):
                    torch.testing.assert_close(one, other)


@pytest.mark.parametrize("name", NAMES)
def test_half_precision_is_close_to_float32_for_large_inputs_too(name):
    """Nothing overflows: keys of length 50 over 300 tokens, whose sums of features leave the range of float16."""
    for dtype, tolerance in ((torch.float16, 0.01), (torch.bfloat16, 0.06)):
        for scale in (1.0, 20.0):
            attend = attention(name, 64)
            q, k, v = (x.detach().to(dtype).requires_grad_() for x in parts(300, 300, scale=scale))
            out = attend(q, k, v / scale, CausalMask())
            assert out.dtype == dtype
            out.float().square().sum().backward()
            assert all(x.grad.isfinite().all() for x in (q, k, v))
            expected = attend(*(x.detach().float() for x in (q, k, v / scale)), CausalMask())
            error = (out.float() - expected).square().mean() / expected.square().mean()
            assert error.sqrt() < tolerance, (name, dtype, scale, float(error.sqrt()))


def test_the_default_weights_agree_with_those_of_the_formula(double):
    for name in NAMES:
        attend, (q, k, _) = attention(name, 4), parts(7, 7)
        found = attend.weights(q, k, CausalMask())
        torch.testing.assert_close(found, Mechanism.weights(attend, q, k, CausalMask()))


def test_a_layer_of_every_kernel_has_a_state_of_constant_size():
    for name in NAMES:
        mixer = build_mixer(name, **SIZES).eval()
        assert mixer.start(2, 8).kv is None
