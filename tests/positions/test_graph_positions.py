"""Laplacian and random-walk positions: eigenpairs, and stated rules for what the formulas leave open."""

import math

import pytest
import torch

from regard.positions.graph.laplacian import canonical, flip_signs, laplacian_positions, normalized_laplacian
from regard.positions.graph.random_walk import random_walk_positions


def both_ways(*pairs):
    edges = torch.tensor(pairs).T
    return torch.cat([edges, edges.flip(0)], 1)


RANDOM = both_ways(*[(a, b) for a in range(12) for b in range(a) if (a * 7 + b * 3) % 5 < 2])


def test_columns_are_eigenvectors_with_the_smallest_eigenvalues_above_zero():
    laplacian = normalized_laplacian(RANDOM, 12)
    positions, values = laplacian_positions(RANDOM, 12, 4)
    torch.testing.assert_close(laplacian @ positions.double(), positions.double() * values, atol=1e-5, rtol=0)
    torch.testing.assert_close(positions.T @ positions, torch.eye(4), atol=1e-5, rtol=0)
    every = torch.linalg.eigvalsh(laplacian)
    torch.testing.assert_close(values.double(), every[every > 1e-6][:4], atol=1e-6, rtol=0)


def test_the_positions_of_a_ring_are_sines_and_those_of_a_path_are_cosines():
    ring = both_ways(*[(n, (n + 1) % 8) for n in range(8)])
    _, values = laplacian_positions(ring, 8, 4)
    expected = [1 - math.cos(2 * math.pi * k / 8) for k in (1, 1, 2, 2)]
    torch.testing.assert_close(values, torch.tensor(expected), atol=1e-6, rtol=0)
    path = both_ways(*[(n, n + 1) for n in range(9)])
    positions, _ = laplacian_positions(path, 10, 1)
    scaled = positions[1:-1, 0]  # the ends have another degree
    cosine = torch.cos(math.pi * torch.arange(10) / 9)[1:-1]
    torch.testing.assert_close(scaled / scaled[0], cosine / cosine[0], atol=1e-5, rtol=0)


def test_a_disconnected_graph_loses_one_vector_for_each_component():
    edges = both_ways((0, 1), (1, 2), (3, 4))  # and 5 alone: three components
    positions, values = laplacian_positions(edges, 6, 5)
    assert (values[:3] > 1e-6).all()
    assert not positions[:, 3:].any()
    assert not values[3:].any()
    assert not positions[5].any()


def test_more_columns_than_nodes_are_zeros_and_a_single_node_has_none():
    positions, _ = laplacian_positions(both_ways((0, 1)), 2, 5)
    assert positions.shape == (2, 5)
    assert positions[:, 0].abs() == pytest.approx([0.5**0.5] * 2)
    assert not positions[:, 1:].any()
    assert not laplacian_positions(torch.zeros(2, 0, dtype=torch.long), 1, 3)[0].any()


def test_directions_repeated_edges_and_self_loops_change_nothing():
    one_way = RANDOM[:, : RANDOM.shape[1] // 2]
    loops = torch.cat([one_way, one_way, torch.tensor([[3], [3]])], 1)
    torch.testing.assert_close(laplacian_positions(loops, 12, 4), laplacian_positions(RANDOM, 12, 4))


def test_signs_are_fixed_or_drawn_for_each_column_of_each_graph():
    positions, _ = laplacian_positions(RANDOM, 12, 4)
    torch.testing.assert_close(canonical(-positions), canonical(positions))
    batch = positions.expand(200, -1, -1)
    flipped = flip_signs(batch, torch.Generator().manual_seed(0))
    ratio = (flipped * batch).sum(1)  # columns have length 1
    assert set(ratio.round().unique().tolist()) == {-1.0, 1.0}
    torch.testing.assert_close(flipped.abs(), batch.abs())
    assert (ratio > 0).float().mean(0).sub(0.5).abs().max() < 0.15


def test_the_order_of_the_nodes_permutes_the_positions_up_to_signs():
    order = torch.randperm(12, generator=torch.Generator().manual_seed(1))
    place = order.argsort()
    moved, _ = laplacian_positions(place[RANDOM], 12, 3)
    positions, _ = laplacian_positions(RANDOM, 12, 3)
    torch.testing.assert_close(moved.abs(), positions[order].abs(), atol=1e-5, rtol=0)
    walks = random_walk_positions(place[RANDOM], 12, 5)
    torch.testing.assert_close(walks, random_walk_positions(RANDOM, 12, 5)[order])


def test_random_walks_return_with_the_probability_of_a_sum_over_paths():
    edges = torch.tensor([[0, 1, 1, 2, 0], [1, 0, 2, 0, 2]])  # directed
    found = random_walk_positions(edges, 4, 3)
    # 0 goes to 1 or 2; 1 goes to 0 or 2; 2 goes to 0; 3 is alone
    assert found[:, 0].tolist() == [0, 0, 0, 0]
    torch.testing.assert_close(found[:, 1], torch.tensor([0.5 * 0.5 + 0.5, 0.5 * 0.5, 0.5, 0.0]))
    assert found[0, 2].item() == pytest.approx(0.5 * 0.5)
    assert not found[3].any()
    assert random_walk_positions(edges, 4, 0).shape == (4, 0)
