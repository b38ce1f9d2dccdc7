"""Decomposed relative positions: the formula pair by pair, and the three ways to add it to the scores."""

import pytest
import torch

from regard.attention.mechanisms.softmax import BACKENDS, _eager_flex, eager
from regard.core.positions import Bias, FactorizedBias
from regard.positions.bias.decomposed import DecomposedPositions, relative_distances

GRIDS = {
    "as fine": ((3, 5), (3, 5)),
    "keys coarser": ((6, 4), (3, 2)),
    "queries coarser": ((2, 3), (4, 6)),
    "sides that do not divide": ((7, 5), (4, 2)),
    "clips": ((2, 4, 3), (2, 2, 3)),
}


def made(grid, before, longest=7, head_dim=6):
    queries, keys = GRIDS[grid]
    positions = DecomposedPositions(head_dim, [longest] * len(queries))
    n, m = (before + torch.Size(shape).numel() for shape in (queries, keys))
    q, k, v = torch.randn(2, 3, n, head_dim), torch.randn(2, 3, m, head_dim), torch.randn(2, 3, m, 5)
    return positions, (q.requires_grad_(), k.requires_grad_(), v.requires_grad_()), queries, keys


def places(shape):
    return [tuple(at) for at in torch.cartesian_prod(*map(torch.arange, shape)).tolist()]


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("grid", GRIDS)
def test_bias_is_the_product_of_query_and_distance_vector(grid, before):
    positions, (q, *_), queries, keys = made(grid, before)
    # As long as the tables were made, nothing is stretched: then a row stands for a distance.
    longest = [max(a, b) for a, b in zip(queries, keys, strict=True)]
    positions = DecomposedPositions(6, longest)
    bias = positions.bias(q, queries, keys)
    dense = bias.dense()
    assert isinstance(bias, Bias)
    assert isinstance(bias, FactorizedBias)
    expected = torch.zeros_like(dense)
    for n, at in enumerate(places(queries)):
        for m, there in enumerate(places(keys)):
            for axis, (i, j) in enumerate(zip(at, there, strict=True)):
                fine = max(queries[axis], keys[axis])
                far = int(i * fine / queries[axis] + (keys[axis] - 1 - j) * fine / keys[axis] + 1e-9)
                expected[:, :, before + n, before + m] += q[:, :, before + n] @ positions.tables[axis][far]
    torch.testing.assert_close(dense, expected)
    assert torch.equal(bias.dense([before, 0]), dense[:, :, [before, 0]])


def test_distances_count_from_the_farthest_key_on_one_side_to_the_other():
    assert relative_distances(3, 3).tolist() == [[2, 1, 0], [3, 2, 1], [4, 3, 2]]
    assert relative_distances(4, 2).tolist() == [[2, 0], [3, 1], [4, 2], [5, 3]]
    assert relative_distances(2, 4).tolist() == [[3, 2, 1, 0], [5, 4, 3, 2]]
    for n in range(1, 12):
        for m in range(1, 12):
            found = relative_distances(n, m)
            assert found.min() >= 0
            assert found.max() <= 2 * max(n, m) - 2


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("backend", ["sdpa", "bmm", "sdpa_factorized"])
def test_folded_bias_is_equal_in_value_and_gradient(grid, before, backend):
    positions, given, queries, keys = made(grid, before)
    results = []
    for which in ("eager", backend):
        out = BACKENDS[which](*given, None, positions.bias(given[0], queries, keys), 0.3, 0.0)
        results.append((out, *torch.autograd.grad(out.square().sum(), (*given, *positions.parameters()))))
    for ours, peer in zip(*results, strict=True):
        torch.testing.assert_close(ours, peer, rtol=1e-9, atol=1e-9)


@pytest.mark.usefixtures("double", "unchecked")
@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("grid", ["keys coarser", "clips"])
def test_score_mod_equals_dense(grid, before):
    positions, given, queries, keys = made(grid, before)
    with torch.no_grad():
        given = [x.detach() for x in given]
        bias = positions.bias(given[0], queries, keys)
        found = _eager_flex(*given, score_mod=bias.score_mod(), scale=0.3)
        torch.testing.assert_close(found, eager(*given, None, bias, 0.3, 0.0), rtol=1e-6, atol=1e-6)


@pytest.mark.usefixtures("double")
def test_folded_bias_materialises_nothing_of_the_size_of_the_scores():
    """The widest tensor of the folded form has N (D + rows + columns) numbers, up to the next eight, not N M."""
    positions, (q, k, _), queries, keys = made("as fine", 0)
    asked, offered = positions.bias(q, queries, keys).fold_into_qk(q, k, 0.3)
    assert asked.shape == (2, 3, 15, 16)
    assert offered.shape == (2, 3, 15, 16)
    assert torch.equal(offered[0, 0, :, 6:].sum(-1), torch.full((15,), 2.0))
