"""Pooled attention, and how true its geometry is: exact for means, a receptive field for filters."""

import pytest
import torch
import torch.nn.functional as F
from torch.autograd.functional import jacobian

from regard.attention.capture.watch import watch
from regard.core.errors import RegardError, UnknownName
from regard.models.mvit import MultiScaleBlock, PoolingAttention, join_prefix

STRIDES = {
    "q/1 k/2": ((1, 1), (2, 2)),
    "q/2 k/2": ((2, 2), (2, 2)),
    "q/2 k/1": ((2, 2), (1, 1)),
    "q/1 k/4": ((1, 1), (4, 4)),
    "clips q/1,2,2 k/1,2,2": ((1, 2, 2), (1, 2, 2)),
}


def mixer(strides, before=0, pooling="mean", width=10, heads=2, **settings):
    stride, keys = STRIDES[strides]
    longest = (3, 9, 9)[-len(stride) :]
    mix = PoolingAttention(
        width,
        width,
        heads,
        stride=stride,
        kv_stride=keys,
        pooling=pooling,
        max_grid=longest,
        num_prefix=before,
        **settings,
    )
    x = torch.randn(2, *((3, 5, 6) if len(stride) == 3 else (9, 6)), width)
    return mix.eval(), x, torch.randn(2, before, width) if before else None


def looked(mix, x, first):
    """The trace of one pass, what attention gave, and the values before they were pooled: B H cells D."""
    given = []
    handle = mix.attend.register_forward_hook(lambda module, args, out: given.append(out))
    with torch.no_grad(), watch(mix) as seen:
        mix(x, first)
    handle.remove()
    values = mix.qkv(join_prefix(x, first)).chunk(3, -1)[2].unflatten(-1, (2, -1)).transpose(1, 2)
    return seen.traces()[0], given[0], values.detach()


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("strides", STRIDES)
def test_with_means_the_operator_on_the_grid_is_what_the_layer_mixes(strides, before):
    mix, x, first = mixer(strides, before)
    trace, mixed, values = looked(mix, x, first)
    assert trace.exact
    torch.testing.assert_close(trace.operator() @ values, mixed, rtol=0, atol=1e-6)  # shares are float32


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("strides", STRIDES)
def test_with_filters_a_key_depends_on_the_cells_of_its_slot_and_no_others(strides, before):
    mix, x, _ = mixer(strides, before, "conv")
    slots = mix.geometry(x).keys
    values = torch.randn(1, *x.shape[1:], requires_grad=True)
    lead = torch.randn(1, before, 10, requires_grad=True) if before else None
    pooled = mix.v_pool(values, lead)[0]
    for n in range(0, len(pooled), 5):
        pulls = torch.autograd.grad(pooled[n].square().sum(), [values, *([lead] if before else [])], retain_graph=True)
        seen = join_prefix(pulls[0], pulls[1] if before else None).abs().sum((0, 2)).nonzero().flatten().tolist()
        assert seen == sorted(cell for cell in slots.cells[0, 0, n].tolist() if cell >= 0)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("seed", range(3))
def test_with_filters_the_operator_is_near_the_true_influence_and_says_that_it_is_not_exact(seed):
    """Influence: the size of d mixed / d value for given weights. Its cosine to the operator is about 0.95, row by row.

    Where a filter looks at some of its cells more than at others, shares that follow it come nearer than equal ones.
    """
    torch.manual_seed(seed)
    mix, x, first = mixer("q/2 k/2", 0, "conv", width=32)
    mix.v_pool.filter.weight.data.mul_(torch.tensor([[0.2, 0.5, 0.2], [0.5, 2.0, 1.0], [0.2, 1.0, 0.5]]))
    trace, _, values = looked(mix, x[:1], first)
    assert not trace.exact
    operator = trace.operator()[0]
    torch.testing.assert_close(operator.sum(-1), torch.ones(operator.shape[:2]))
    weights, shape = trace.weights[0], x.shape[1:3]

    def mixed(cells):  # H cells D
        grid = cells.transpose(0, 1).flatten(1).unflatten(0, shape)[None]
        return weights @ mix.v_pool(grid, None)[0].transpose(0, 1)

    pull = jacobian(mixed, values[0], vectorize=True)  # H out D H cells D
    influence = torch.stack([pull[h, :, :, h].square().sum((1, 3)).sqrt() for h in range(2)])
    near = F.cosine_similarity(influence, operator, dim=-1)
    assert near.min() > 0.9
    assert near.mean() > 0.94
    mix.v_pool.filter.weight.data.fill_(1.0)
    equal = mix.geometry(x[:1]).operator(trace.weights)[0]
    assert near.mean() > F.cosine_similarity(influence, equal, dim=-1).mean()


def test_the_way_around_stands_for_the_cells_of_its_window():
    mix, x, _ = mixer("q/2 k/2")
    skip = mix.geometry(x).skip
    assert skip.grid == (9, 6)
    assert skip.cells.shape == (1, 1, 15, 9)
    flat = x.flatten(1, 2)
    real = skip.cells[0, 0]
    expected = torch.where(real[..., None] >= 0, flat[:, real.clamp(min=0)], -torch.inf).amax(2)
    torch.testing.assert_close(mix.pool_skip(flat, (9, 6)), expected)
    same, y, _ = mixer("q/1 k/4")
    assert same.geometry(y).skip is None
    assert torch.equal(same.pool_skip(flat, (9, 6)), flat)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("residual", ["all", "patches", "none"])
def test_pooled_queries_are_added_where_they_are_asked_for(residual):
    mix, x, first = mixer("q/2 k/1", 1, "conv", residual=residual)
    mix.v_pool.norm.weight.data.zero_()  # nothing is found
    mix.v_pool.norm.bias.data.zero_()
    mix.out.weight.data.copy_(torch.eye(10))
    found = mix(x, first)
    q = mix.q_pool(mix.qkv(x).chunk(3, -1)[0], mix.qkv(first).chunk(3, -1)[0]).flatten(2)
    kept = {"all": [1.0, 1.0], "patches": [0.0, 1.0], "none": [0.0, 0.0]}[residual]
    torch.testing.assert_close(found[:, :1], kept[0] * q[:, :1] + mix.out.bias)
    torch.testing.assert_close(found[:, 1:], kept[1] * q[:, 1:] + mix.out.bias)


def test_a_block_may_become_wider_in_either_half():
    for inner, out in ((16, 16), (8, 16), (8, 8)):
        mix = PoolingAttention(8, inner, 2, stride=(2, 2), kv_stride=(1, 1))
        x, shape = MultiScaleBlock(mix, out, 0.0)(torch.randn(2, 5 * 7, 8), (5, 7))
        assert shape == (3, 4)
        assert x.shape == (2, 12, out)


def test_parts_are_named_right_or_refused():
    with pytest.raises(UnknownName, match="did you mean 'conv'"):
        PoolingAttention(8, 8, 2, stride=(1, 1), kv_stride=(1, 1), pooling="convv")
    with pytest.raises(RegardError, match="width 8 is not divisible by 3 heads"):
        PoolingAttention(8, 8, 3, stride=(1, 1), kv_stride=(1, 1))
