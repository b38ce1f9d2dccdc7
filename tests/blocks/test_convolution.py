"""Convolutions over time: equal to torch's, blind to what is ahead, the same step by step, however long."""

import pytest
import torch
from torch import nn

from regard.blocks.convolution import (
    CausalConvolution,
    Convolution,
    WeightNormLinear,
    materialize_weights,
    unfolded_lengths,
)
from regard.core.errors import BadInput

pytestmark = pytest.mark.usefixtures("double")
SHAPES = [(1, 1), (2, 1), (3, 1), (3, 2), (3, 16), (5, 3)]  # kernel, dilation


def torchs(conv):
    """torch's own convolution with the same weights."""
    theirs = nn.Conv1d(conv.width, conv.map.out_features, conv.kernel, dilation=conv.dilation)
    with torch.no_grad():
        theirs.weight.copy_(conv.map.weight.unflatten(1, (conv.kernel, conv.width)).transpose(1, 2))
        theirs.bias.copy_(conv.map.bias)
    return theirs


@pytest.mark.parametrize("kind", [Convolution, CausalConvolution])
@pytest.mark.parametrize(("kernel", "dilation"), SHAPES)
def test_it_is_torchs_convolution_in_value_and_gradient(kind, kernel, dilation):
    conv, x = kind(4, 5, kernel, dilation), torch.randn(3, 11, 4, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    padded = nn.functional.pad(y.mT, (conv.left_context, conv.context_size - conv.left_context))
    found, expected = conv(x), torchs(conv)(padded).mT
    torch.testing.assert_close(found, expected)
    push = torch.randn_like(found)
    (found * push).sum().backward()
    (expected * push).sum().backward()
    torch.testing.assert_close(x.grad, y.grad)


@pytest.mark.parametrize(("kernel", "dilation"), SHAPES)
def test_a_causal_convolution_sees_its_window_and_nothing_ahead(kernel, dilation):
    conv, x, at = CausalConvolution(4, 5, kernel, dilation), torch.randn(2, 40, 4, requires_grad=True), 33
    whole = conv(x)
    (gradient,) = torch.autograd.grad(whole[:, at].sum(), x)
    seen = gradient.abs().sum((0, 2)).nonzero()[:, 0].tolist()
    assert seen == [n for n in range(at - conv.context_size, at + 1, dilation) if n >= 0]
    other = x.detach().clone()
    other[:, at + 1 :] = torch.randn_like(other[:, at + 1 :])
    torch.testing.assert_close(conv(other)[:, : at + 1], whole[:, : at + 1], rtol=0, atol=0)


@pytest.mark.parametrize("frozen", [False, True], ids=["value", "frozen"])
@pytest.mark.parametrize(("kernel", "dilation"), SHAPES)
def test_steps_equal_one_forward(kernel, dilation, frozen):
    conv, x = CausalConvolution(4, 5, kernel, dilation), torch.randn(3, 45, 4)
    whole = conv(x)
    with torch.no_grad():
        ring = conv.empty_ring(x)
        address = ring.data_ptr()
        for time in range(45):
            out, ring = conv.step(x[:, time : time + 1], ring, torch.tensor(time), frozen)
            torch.testing.assert_close(out, whole[:, time : time + 1])
    assert ring.shape == (3, 1, conv.context_size, 4)
    assert not frozen or ring.data_ptr() == address


def test_a_ring_that_is_not_frozen_is_a_value():
    conv, x = CausalConvolution(4, 5, 3, 2), torch.randn(3, 1, 4)
    ring = torch.randn(3, 1, conv.context_size, 4)
    before = ring.clone()
    conv.step(x, ring, torch.tensor(7))
    assert torch.equal(ring, before)


def test_after_five_thousand_steps_it_is_what_the_last_window_says():
    conv, x = CausalConvolution(3, 2, 3, 4), torch.randn(1, 5000, 3)
    with torch.no_grad():
        ring = conv.empty_ring(x)
        for time in range(5000):
            out, ring = conv.step(x[:, time : time + 1], ring, torch.tensor(time), True)
    torch.testing.assert_close(out[:, 0], conv(x[:, -9:])[:, -1])
    assert ring.shape == (1, 1, 8, 3)


def test_what_reads_nothing_is_refused():
    for kernel, dilation in ((0, 1), (3, 0)):
        with pytest.raises(BadInput, match="at least 1"):
            Convolution(3, 3, kernel, dilation)


# -- weight norm -------------------------------------------------------------------------------------------------------


def test_weight_norm_is_torchs_and_begins_as_a_plain_map():
    ours = WeightNormLinear(7, 5, std=0.3)
    theirs = nn.utils.parametrizations.weight_norm(nn.Linear(7, 5), dim=0)
    with torch.no_grad():
        theirs.parametrizations.weight.original0.copy_(ours.gain[:, None])
        theirs.parametrizations.weight.original1.copy_(ours.direction)
        theirs.bias.copy_(ours.bias)
    torch.testing.assert_close(ours.weight(), ours.direction.detach())
    x = torch.randn(3, 7)
    torch.testing.assert_close(ours(x), theirs(x))
    ours(x).square().sum().backward()
    theirs(x).square().sum().backward()
    torch.testing.assert_close(ours.direction.grad, theirs.parametrizations.weight.original1.grad)
    torch.testing.assert_close(ours.gain.grad, theirs.parametrizations.weight.original0.grad[:, 0])
    # the length of a row says nothing of its direction
    assert (ours.direction.grad * ours.direction).sum(1).abs().max() < 1e-12


def test_a_row_of_zeros_stays_finite():
    layer = WeightNormLinear(4, 3, std=0.5)
    with torch.no_grad():
        layer.direction[1].zero_()
        layer.gain[1] = 0
    layer(torch.randn(2, 4)).square().sum().backward()
    assert torch.isfinite(layer.direction.grad).all()
    assert torch.isfinite(layer.gain.grad).all()


def test_folded_matrices_are_what_the_maps_apply():
    stack = nn.Sequential(WeightNormLinear(4, 5, 0.3), nn.ReLU(), WeightNormLinear(5, 3, 0.3), nn.Linear(3, 3))
    matrices = materialize_weights(stack)
    assert list(matrices) == ["0", "2"]
    x = torch.randn(2, 4)
    torch.testing.assert_close(stack[0](x, matrices["0"]), stack[0](x))


def test_sources_unfold_alike_alone_and_in_a_batch():
    for n in range(1, 60):
        for length_ratio, length_offset in ((1.2, 0.0), (1.0, 4.0), (1.5, 0.5), (0.7, 1.0)):
            together, each = unfolded_lengths(60, torch.tensor([n, 60]), length_ratio, length_offset)
            alone, single = unfolded_lengths(n, torch.tensor([n]), length_ratio, length_offset)
            assert int(each[0]) == alone == int(single[0])
            assert int(each[1]) == together
    assert unfolded_lengths(10, None, 1.2, 0.0) == (12, None)
