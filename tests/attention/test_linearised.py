"""Performer, RFA, DPFP and the delta rule against loops written from their papers."""

import math
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F

from regard.attention.mask import CausalMask
from regard.attention.mechanisms.delta import DeltaRuleAttention
from regard.attention.mechanisms.dpfp import DPFPAttention, dpfp
from regard.attention.mechanisms.performer import PerformerAttention, orthogonal_gaussian
from regard.attention.mechanisms.rfa import GatedRandomFeatureAttention, RandomFeatureAttention
from regard.attention.mechanisms.softmax import SoftmaxAttention
from regard.core.errors import RegardError, UnknownName, Unsupported
from regard.models import build


@pytest.fixture(autouse=True)
def _double(double):
    pass


def parts(n, d=6, heads=3, e=5):
    return [torch.randn(2, heads, n, width, requires_grad=True) for width in (d, d, e)]


def assert_equal_in_value_and_gradient(found, expected, inputs):
    torch.testing.assert_close(found, expected)
    probe = torch.randn_like(found)
    ours, theirs = (torch.autograd.grad((x * probe).sum(), inputs, retain_graph=True) for x in (found, expected))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


# -- Performer


def test_orthogonal_directions_have_the_lengths_of_gaussian_vectors():
    w = orthogonal_gaussian(50, 16, seed=3)
    for block in w.split(16):
        products = block @ block.mT
        torch.testing.assert_close(products, products.diag().diag())
    lengths = orthogonal_gaussian(4000, 16, seed=0).square().sum(-1)  # chi-squared: mean 16, variance 32
    assert abs(lengths.mean() - 16) < 0.5
    assert abs(lengths.var() - 32) < 4
    assert torch.equal(w, orthogonal_gaussian(50, 16, seed=3))


def test_performer_equals_the_sums_of_the_paper():
    """Equation 5 with positive features, one query and one key at a time."""
    attend, (q, k, v) = PerformerAttention(6, features=10), parts(5)
    out = attend(q, k, v, CausalMask())

    def positive(x, shift=0.0):
        x = x / 6**0.25
        return ((attend.projection @ x - x @ x / 2 - shift).exp() + 1e-6) / math.sqrt(10)

    expected = torch.zeros_like(out)
    for b, h, n in torch.cartesian_prod(torch.arange(2), torch.arange(3), torch.arange(5)).tolist():
        scaled = q[b, h, n] / 6**0.25
        query = positive(q[b, h, n], (attend.projection @ scaled - scaled @ scaled / 2).max())
        products = torch.stack([query @ positive(k[b, h, m]) for m in range(n + 1)])
        expected[b, h, n] = products @ v[b, h, : n + 1] / products.sum()
    assert_equal_in_value_and_gradient(out, expected, (q, k, v))


def test_performer_estimates_softmax_without_bias_and_redraws():
    q, k, v = (x.detach() / 2 for x in parts(12))
    expected = SoftmaxAttention(backend="eager")(q, k, v)
    attend = PerformerAttention(6, features=4096)
    first = attend(q, k, v)
    assert (first - expected).abs().max() < 0.05
    attend.redraw(seed=7)
    assert not torch.equal(attend(q, k, v), first)
    attend.redraw(seed=1)
    assert torch.equal(attend(q, k, v), first)


def test_projections_are_redrawn_after_updates_and_resume_where_they_were():
    for attend in (PerformerAttention(6, redraw_interval=2), RandomFeatureAttention(3, 6, redraw_interval=2)):
        draws = []
        for _ in range(5):
            attend.after_update()
            draws.append(attend.projection.clone())
        same = [torch.equal(one, other) for one, other in pairwise(draws)]
        assert same == [False, True, False, True]
        again = (
            type(attend)(6, redraw_interval=2) if len(draws[0].shape) == 2 else type(attend)(3, 6, redraw_interval=2)
        )
        again.load_state_dict(attend.state_dict())
        for each in (attend, again):
            each.after_update()
        assert torch.equal(attend.projection, again.projection)
        assert not torch.equal(attend.projection, draws[-1])


def test_layers_have_projections_of_their_own():
    model = build("gpt", size="tiny", vocab=11, attention="performer")
    first, second = (block.mix.attend.projection for block in model.decoder.blocks[:2])
    assert not torch.equal(first, second)
    again = build("gpt", size="tiny", vocab=11, attention="performer").decoder.blocks[1].mix.attend.projection
    assert torch.equal(again, second)


def test_sizes_that_do_not_fit_are_refused():
    q, k, v = parts(5)
    with pytest.raises(Unsupported, match="built for head width 8, got 6"):
        PerformerAttention(8)(q, k, v)
    with pytest.raises(Unsupported, match="built for heads 4, got 3"):
        DeltaRuleAttention(4, 6)(q, k, v)


def test_performer_of_relu():
    attend, (q, k, v) = PerformerAttention(6, features=10, kernel="relu"), parts(5)

    def feature(x):
        return (x @ attend.projection.mT).relu() / math.sqrt(10) + 1e-3

    products = feature(q) @ feature(k).mT
    assert_equal_in_value_and_gradient(attend(q, k, v), products / products.sum(-1, keepdim=True) @ v, (q, k, v))
    with pytest.raises(UnknownName, match="did you mean 'softmax'"):
        PerformerAttention(6, kernel="sofmax")


def test_performer_of_wide_heads_does_not_overflow():
    """|w|²/2 is about 128 for D = 256, beyond float32's e^88."""
    attend = PerformerAttention(256, features=64).float()
    k = attend.projection[None, None] * 256**0.25  # each key on top of a direction: the largest exponents
    out = attend(torch.randn(1, 1, 64, 256).float(), k, torch.randn(1, 1, 64, 4).float(), CausalMask())
    assert out.isfinite().all()


@pytest.mark.parametrize("width", [128, 256])
def test_performer_of_wide_heads_tells_keys_apart(width):
    """Its numbers stay far from ε in float32: they are those of features without any shift, in float64."""
    attend = PerformerAttention(width, features=64).float()
    q, k, v = (torch.randn(1, 1, 16, width) for _ in range(3))

    def positive(x):
        x = x / width**0.25
        return (x @ attend.projection.double().mT - x.square().sum(-1, keepdim=True) / 2).exp()

    products = positive(q) @ positive(k).mT
    expected = products / products.sum(-1, keepdim=True) @ v
    assert (attend(q.float(), k.float(), v.float()) - expected).abs().max() < 0.01
    assert (expected - v.mean(2, keepdim=True)).abs().max() > 0.5


# -- random feature attention


def test_rfa_equals_the_recurrence_of_the_paper():
    for cls in (RandomFeatureAttention, GatedRandomFeatureAttention):
        attend, (q, k, v) = cls(3, 6, features=16, floor=0.1), parts(5)
        for parameter in attend.parameters():
            torch.nn.init.normal_(parameter, 1.0)

        def feature(x, h, attend=attend):
            angle = (attend.projection[h] * attend.sigma[h]) @ (x / x.norm())
            return torch.cat([angle.sin(), angle.cos()]) / 4

        out = attend(q, k, v, CausalMask())
        expected = torch.zeros_like(out)
        for b in range(2):
            for h in range(3):
                s, z = torch.zeros(32, 5), torch.zeros(32)
                for t in range(5):
                    phi, keep, new = feature(k[b, h, t], h), 1.0, 1.0
                    if cls is GatedRandomFeatureAttention:
                        gate = (attend.gate_weight[h, :, 0] @ k[b, h, t] + attend.gate_bias[h, 0]).sigmoid()
                        keep, new = gate, 1 - gate
                    s, z = keep * s + new * torch.outer(phi, v[b, h, t]), keep * z + new * phi
                    query = feature(q[b, h, t], h)
                    expected[b, h, t] = query @ s / (query @ z).clamp(min=0.1)
        assert_equal_in_value_and_gradient(out, expected, (q, k, v, *attend.parameters()))


def test_rfa_approaches_softmax_attention_of_unit_vectors():
    q, k, v = (x.detach() for x in parts(12))
    unit_q, unit_k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    expected = SoftmaxAttention(backend="eager", scale=1.0)(unit_q, unit_k, v)
    errors = [
        float((RandomFeatureAttention(3, 6, features=r)(q, k, v) - expected).detach().abs().mean()) for r in (16, 4096)
    ]
    assert errors[1] < 0.02 < errors[0]


# -- DPFP and the delta rule


def test_dpfp_equals_the_definition_of_the_paper():
    """Equation 37: φ_(i ν')(x) = r_i r_(i + ν'), indices modulo 2 D; fla rolls the same way."""
    x = torch.randn(3, 4)
    r = torch.cat([x.relu(), (-x).relu()], -1)
    for nu in (1, 3):
        expected = torch.empty(3, 8 * nu)
        for shift in range(1, nu + 1):
            for i in range(8):
                expected[:, (shift - 1) * 8 + i] = r[:, i] * r[:, (i - shift) % 8]
        torch.testing.assert_close(dpfp(x, nu), expected)
    with pytest.raises(RegardError, match="less than twice the head width 4, got 8"):
        dpfp(x, 8)


def test_dpfp_attention_equals_its_sums():
    attend, (q, k, v) = DPFPAttention(nu=2), parts(5)
    products = (dpfp(q, 2) @ dpfp(k, 2).mT).tril()
    expected = products / products.sum(-1, keepdim=True).clamp(min=1e-30) @ v
    assert_equal_in_value_and_gradient(attend(q, k, v, CausalMask()), expected, (q, k, v))


def delta_rule_loop(q, k, v, beta):
    """One token after another, as in fla's naive recurrence, which scales q by the width of the keys."""
    state = q.new_zeros(*q.shape[:2], k.shape[-1], v.shape[-1])
    out = []
    for t in range(q.shape[2]):
        key, value = k[:, :, t, :, None], v[:, :, t, None]
        state = state + key @ (beta[:, :, t, None, None] * (value - (state * key).sum(-2, keepdim=True)))
        out.append((q[:, :, t, None] * k.shape[-1] ** -0.5 @ state).squeeze(2))
    return torch.stack(out, 2)


@pytest.mark.parametrize("chunk", [1, 4, 64])
def test_delta_rule_equals_the_recurrence_in_value_and_gradient(chunk):
    attend, (q, k, v) = DeltaRuleAttention(3, 6, nu=2, chunk=chunk), parts(11)
    attend.scale = 24**-0.5  # fla's, of the 2 ν D features
    for parameter in attend.parameters():
        torch.nn.init.normal_(parameter)
    phi_q, phi_k = (dpfp(x, 2) / dpfp(x, 2).sum(-1, keepdim=True) for x in (q, k))
    beta = ((k * attend.beta_weight[:, :, 0][:, None]).sum(-1) + attend.beta_bias).sigmoid()
    expected = delta_rule_loop(phi_q, phi_k, v, beta)
    assert_equal_in_value_and_gradient(attend(q, k, v, CausalMask()), expected, (q, k, v, *attend.parameters()))


def test_delta_rule_replaces_what_a_key_returned():
    """The same key twice, written with full strength: the second value remains, and not their sum."""
    attend = DeltaRuleAttention(1, 6, scale=1.0)
    torch.nn.init.constant_(attend.beta_bias, 50.0)
    k = torch.zeros(1, 1, 2, 6)
    k[..., :2] = 1.0  # one feature
    v = torch.randn(1, 1, 2, 5)
    torch.testing.assert_close(attend(k, k, v, CausalMask()), v)
    torch.testing.assert_close(attend(k, k, v), v[:, :, 1:].expand_as(v))
