"""Windows cut and joined, the regions of a shifted one, and merging: against what is written out cell by cell."""

import itertools

import pytest
import torch

from regard.attention.window_attention import padded_size, shift_regions, window_partition, window_reverse
from regard.tokens.patch_merging import PatchMerging, PatchMergingV2, space_to_depth

GRIDS = [((6, 9), (3, 3)), ((4, 10), (2, 5)), ((5, 7), (5, 7)), ((3, 8), (1, 4))]
CPU = torch.device("cpu")


@pytest.mark.parametrize(("grid", "window"), GRIDS)
@pytest.mark.parametrize("shift", [(0, 0), (1, 0), (0, 1), (1, 2)])
def test_reverse_undoes_partition(grid, window, shift):
    x = torch.randn(2, *grid, 3, 5)
    windows = window_partition(x, window, shift)
    assert windows.shape == (2 * grid[0] * grid[1] // (window[0] * window[1]), window[0] * window[1], 3, 5)
    assert torch.equal(window_reverse(windows, grid, window, shift), x)


def test_windows_come_row_by_row_and_so_do_their_cells():
    x = torch.arange(24).view(1, 4, 6, 1)
    assert window_partition(x, (2, 3))[..., 0].tolist() == [
        [0, 1, 2, 6, 7, 8], [3, 4, 5, 9, 10, 11], [12, 13, 14, 18, 19, 20], [15, 16, 17, 21, 22, 23],
    ]  # fmt: skip
    assert window_partition(x, (2, 3), (1, 1))[0, :, 0].tolist() == [7, 8, 9, 13, 14, 15]  # up and to the left


@pytest.mark.parametrize(("grid", "window"), GRIDS)
@pytest.mark.parametrize("shift", [(0, 0), (1, 0), (0, 1), (2, 1)])
@pytest.mark.parametrize("missing", [(0, 0), (1, 0), (0, 2)])
def test_regions_equal_the_windows_of_a_shifted_grid_without_rolling(grid, window, shift, missing):
    shift = tuple(min(s, w - 1) for s, w in zip(shift, window, strict=True))
    real = tuple(max(g - m, 1) for g, m in zip(grid, missing, strict=True))
    found = shift_regions(grid, window, shift, real, CPU)
    if found is None:
        assert not any(shift)
        assert real == grid
        return
    cells = window_partition(torch.arange(grid[0] * grid[1]).view(1, *grid, 1), window, shift)[..., 0]
    together = {
        (cells[g, n].item(), cells[g, m].item())
        for g, n, m in itertools.product(range(len(cells)), *2 * [range(cells.shape[1])])
        if found[g, n] == found[g, m] != -1
    }

    def place(cell):
        y, x = divmod(cell, grid[1])
        if y >= real[0] or x >= real[1]:
            return None
        return (y - shift[0]) // window[0], (x - shift[1]) // window[1]

    every = range(grid[0] * grid[1])
    assert together == {(a, b) for a in every for b in every if place(a) is not None and place(a) == place(b)}


def test_padded_size_is_the_smallest_that_fits():
    assert padded_size((7, 8), (4, 4)) == (8, 8)
    assert padded_size((1, 13), (7, 6)) == (7, 18)


@pytest.mark.parametrize("part", [PatchMerging, PatchMergingV2])
@pytest.mark.parametrize("size", [(4, 6), (3, 5), (1, 1)])
def test_slots_are_the_cells_that_are_merged(part, size):
    x = torch.randn(2, *size, 3)
    merge = part(3)
    slots = merge.slots(x)
    out = merge(x)
    assert out.shape == (2, -(-size[0] // 2), -(-size[1] // 2), 6)
    assert slots.grid == size
    flat = torch.cat([x.flatten(1, 2), torch.zeros(2, 1, 3)], 1)  # the last stands for padding, -1
    assert torch.equal(flat[:, slots.cells[0, 0]].flatten(2), space_to_depth(x).flatten(1, 2))


@pytest.mark.parametrize("part", [PatchMerging, PatchMergingV2])
def test_merging_uses_each_cell_once(part):
    x = torch.randn(1, 5, 4, 3, requires_grad=True)
    merge = part(3)
    merge(x)[0, 2, 1].square().sum().backward()  # made of row 4, columns 2 and 3, and padding
    assert (x.grad.abs().sum(-1) > 0).nonzero().tolist() == [[0, 4, 2], [0, 4, 3]]
