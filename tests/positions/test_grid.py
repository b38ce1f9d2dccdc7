"""Positions on a grid: as they are at their own size, and between their neighbours at any other."""

import pytest
import torch

from regard.core.spec import build_part
from regard.positions import GRID_POSITIONS
from regard.positions.added.grid import GridPositions


def smooth(part, grid):
    """A table that grows evenly down and to the right."""
    y, x = (torch.linspace(0.5, n - 0.5, n, dtype=torch.float64) / n for n in grid)
    plane = torch.stack([y[:, None].expand(grid), x[None].expand(grid)], -1).flatten(0, 1)
    with torch.no_grad():
        part.table.copy_(torch.cat([torch.full((part.prefix, 2), 9.0, dtype=torch.float64), plane]))
    return part


@pytest.mark.parametrize("name", GRID_POSITIONS)
def test_positions_are_added_to_the_grid_and_differ_from_cell_to_cell(name):
    part = build_part(GRID_POSITIONS, name, "positions", width=8, grid=(3, 5), prefix=2)
    assert part.kind == "added"
    added = part(torch.zeros(1, 17, 8, dtype=torch.float64), (3, 5))
    assert added.dtype == torch.float64
    assert len(torch.unique(added[0, 2:], dim=0)) == 15
    assert part(torch.zeros(1, 30, 8), (4, 7)).shape == (1, 30, 8)


def test_sinusoids_are_of_the_centres_of_cells_at_any_size():
    part = build_part(GRID_POSITIONS, "sinusoidal(base=10)", "positions", width=8, grid=(3, 5), prefix=2)
    found = part.vectors((3, 5), 2)
    assert not found[:2].any()
    centre, angles = found[2 + 2 * 5 + 3], 2 * torch.pi * torch.tensor([2.5 / 3, 3.5 / 5])  # row 2, column 3
    slow = angles / 10**0.5
    wanted = torch.stack([angles.sin(), angles.cos(), slow.sin(), slow.cos()], 1).flatten()
    torch.testing.assert_close(centre, wanted)
    torch.testing.assert_close(part.vectors((9, 15))[7 * 15 + 10], centre)  # the same place, on a finer grid


def test_at_its_own_size_the_table_is_added_unchanged():
    part = GridPositions(6, (3, 5), prefix=2)
    x = torch.randn(2, 17, 6)
    assert torch.equal(part(x, (3, 5)) - x, (x + part.table) - x)


@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("size", [(8, 8), (12, 5), (16, 30)], ids=str)
def test_a_linear_table_is_interpolated_linearly(size, antialias):
    part = smooth(GridPositions(2, (8, 10), antialias=antialias).double(), (8, 10))
    found = part.vectors(size).unflatten(0, size)
    y, x = (torch.linspace(0.5, n - 0.5, n, dtype=torch.float64) / n for n in size)
    inner = (slice(size[0] // 4, -(size[0] // 4)), slice(size[1] // 4, -(size[1] // 4)))  # edges have no neighbour
    torch.testing.assert_close(found[..., 0][inner], y[:, None].expand(size)[inner], rtol=0, atol=0.01)
    torch.testing.assert_close(found[..., 1][inner], x[None].expand(size)[inner], rtol=0, atol=0.01)


def test_rows_and_columns_are_not_mixed_up():
    part = smooth(GridPositions(2, (4, 12), prefix=1).double(), (4, 12))
    tall = part.vectors((12, 4), 1)[1:].unflatten(0, (12, 4))
    assert (tall[1:, :, 0] > tall[:-1, :, 0]).all()
    assert (tall[:, 1:, 1] > tall[:, :-1, 1]).all()


def test_prefix_rows_are_never_resized_and_tokens_without_a_row_get_zeros():
    part = smooth(GridPositions(2, (4, 4), prefix=2).double(), (4, 4))
    assert torch.equal(part.vectors((3, 7), 2)[:2], part.table[:2])
    bare = GridPositions(2, (4, 4))
    assert torch.equal(bare.vectors((4, 4), 3), torch.cat([torch.zeros(3, 2), bare.table]))
    x = torch.randn(1, 24, 2)
    assert torch.equal(bare(x, (3, 7))[:, :3], x[:, :3])


def test_gradients_reach_the_table_through_another_size():
    part = GridPositions(3, (4, 6), prefix=1)
    part.vectors((9, 5), 1).sum().backward()
    assert (part.table.grad != 0).all()


def test_autocast_does_not_change_positions():
    part = GridPositions(4, (5, 5))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = part.vectors((8, 3))
    assert torch.equal(found, part.vectors((8, 3)))


def test_half_precision_is_interpolated_in_float32():
    part = GridPositions(4, (5, 5))
    expected = part.vectors((8, 3)).bfloat16()
    half = GridPositions(4, (5, 5))
    half.load_state_dict(part.state_dict())
    with torch.no_grad():
        half.table.copy_(half.table.bfloat16())
    torch.testing.assert_close(half.to(torch.bfloat16).vectors((8, 3)), expected, rtol=0.02, atol=0.002)
