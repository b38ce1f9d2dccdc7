"""Windows: partition a grid of tokens into small grids that attend separately, each as one short sequence.

    partition  B Y X ... -> (B G) N ...   G windows of N = wy wx cells, row by row; `window_reverse` undoes it
    shift      before it the grid is rolled by (sy, sx) cells, up and to the left, so that windows cross the borders of
               the unshifted ones
    regions    cells of a window that were neighbours before the roll: only those may attend to each other

Cost: Y X N scores of a grid of Y x X cells, instead of (Y X)². Every function is plain indexing, so cell indices are
partitioned by the same code as tokens: that gives the geometry of a map.

Liu et al.: Swin Transformer: Hierarchical Vision Transformer using Shifted Windows. ICCV 2021. arXiv:2103.14030
"""

from __future__ import annotations

import torch

from regard.core.shapes import Int, Pair, Tensor


def padded_size(size: Pair, window: Pair) -> Pair:
    """Return the size of the smallest grid of whole windows that contains a grid of this size."""
    return -(-size[0] // window[0]) * window[0], -(-size[1] // window[1]) * window[1]


def window_partition(x: Tensor, window: Pair, shift: Pair = (0, 0)) -> Tensor:
    """Partition a grid B Y X ... of whole windows into sequences (B G) N ..., the windows of one input adjacent."""
    if any(shift):
        x = x.roll((-shift[0], -shift[1]), (1, 2))
    b, y, x_, *rest = x.shape
    x = x.view(b, y // window[0], window[0], x_ // window[1], window[1], *rest)
    return x.transpose(2, 3).reshape(-1, window[0] * window[1], *rest)


def window_reverse(windows: Tensor, grid: Pair, window: Pair, shift: Pair = (0, 0)) -> Tensor:
    """Put sequences (B G) N ... back on their grid B Y X ..."""
    rows, columns = grid[0] // window[0], grid[1] // window[1]
    x = windows.view(-1, rows, columns, *window, *windows.shape[2:]).transpose(2, 3)
    x = x.reshape(-1, *grid, *windows.shape[2:])
    return x.roll(shift, (1, 2)) if any(shift) else x


def shift_regions(grid: Pair, window: Pair, shift: Pair, real: Pair, device: torch.device) -> Int[Tensor, "G N"] | None:
    """Return a number for each cell of each window, equal where cells may attend to each other; -1 is padding.

    `real` is the size without padding. None: no shift and no padding, so all cells of a window attend to each other.
    """
    if not any(shift) and real == grid:
        return None
    y, x = (torch.arange(n, device=device) for n in grid)
    # The first `shift` rows are rolled to the other side, where they are no neighbours of the last ones.
    number = (y < shift[0]).long()[:, None] * 2 + (x < shift[1]).long()
    number = torch.where((y < real[0])[:, None] & (x < real[1]), number, -1)
    return window_partition(number[None, ..., None], window, shift)[..., 0]
