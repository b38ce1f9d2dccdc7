"""The local relation layer equals its form with copied neighbourhoods; its weights can be watched."""

import pytest
import torch
import torch.nn.functional as F

import regard
from regard.blocks.local_relation import LocalRelation, neighbours_inside
from regard.core.errors import BadInput


def unfold_form(layer, x):
    """The paper's formula with every neighbourhood copied."""
    channels, kernel, stride, shared = x.shape[1], layer.kernel, layer.stride, layer.shared

    def neighbours(grid):
        return F.unfold(grid, kernel, padding=kernel // 2, stride=stride).unflatten(1, (grid.shape[1], -1))

    q = layer.query(x)[:, :, ::stride, ::stride]
    scores = q.flatten(2)[:, :, None] * neighbours(layer.key(x)) + layer.prior().T[None, :, :, None]
    outside = neighbours(torch.ones_like(x[:1, :1]))[:, :1] == 0
    weights = scores.masked_fill(outside, float("-inf")).softmax(2)
    each = weights.repeat_interleave(shared, 1)[:, :channels]
    return layer.out((each * neighbours(x)).sum(2).unflatten(2, q.shape[2:]))


@pytest.mark.parametrize("stride", [1, 2])
def test_equals_the_form_with_unfold_in_value_and_gradient(stride):
    for channels, kernel, size in ((16, 3, (7, 5)), (12, 7, (9, 10)), (8, 5, (1, 3)), (3, 1, (4, 4))):
        layer = LocalRelation(channels, kernel, stride).double()
        x = torch.randn(2, channels, *size, dtype=torch.float64, requires_grad=True)
        given, parameters = layer(x), [x, *layer.parameters()]
        expected = unfold_form(layer, x)
        torch.testing.assert_close(given, expected, rtol=1e-12, atol=1e-12)
        into = torch.randn_like(given)
        found, wanted = (torch.autograd.grad(y, parameters, into) for y in (given, expected))
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-11)


def test_without_scores_it_is_the_mean_of_the_cells_inside():
    layer = LocalRelation(6, 3).double()
    with torch.no_grad():
        for part in (layer.query, layer.prior.score):
            part.weight.zero_()
            part.bias.zero_()
    x = torch.randn(2, 6, 5, 8, dtype=torch.float64)
    mean = F.avg_pool2d(x, 3, 1, 1, count_include_pad=False)
    torch.testing.assert_close(layer(x), layer.out(mean), rtol=1e-12, atol=1e-12)


def test_neighbours_at_the_edge_are_no_keys():
    inside = neighbours_inside((3, 4), 3, 2, torch.device("cpu"))
    assert inside.shape == (9, 2, 2)
    assert inside[:, 0, 0].tolist() == [False] * 4 + [True] * 2 + [False] + [True] * 2


@pytest.mark.parametrize("stride", [1, 2])
def test_watched_weights_are_those_of_the_sum(stride):
    layer = LocalRelation(8, 3, stride).double()
    x = torch.randn(2, 8, 5, 6, dtype=torch.float64)
    with regard.watch(torch.nn.Sequential(layer)) as seen, torch.no_grad():
        out = layer(x)
    (trace,) = seen.traces("self")
    operator = trace.operator()  # B 1 out inn: one group
    torch.testing.assert_close(operator.sum(-1), torch.ones_like(operator[..., 0]))
    mixed = (x.flatten(2) @ operator[:, 0].mT).unflatten(2, out.shape[2:])
    torch.testing.assert_close(layer.out(mixed), out)


def test_an_even_kernel_is_refused():
    with pytest.raises(BadInput, match="kernel must be odd"):
        LocalRelation(8, 4)
