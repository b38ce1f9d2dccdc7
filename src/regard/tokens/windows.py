"""Windows: a grid of tokens cut into small grids that are read apart, each as one short sequence.

    cut       B Y X ...      -> (B G) N ...      G windows of N = wy wx cells, row by row; join undoes it
    shift     before the cut the grid is turned round by (sy, sx) cells, up and to the left, so that its windows lie
              across the borders of those of an unshifted cut
    regions   which cells of a window were neighbours before the turn: only those of one region may see one another

Cost: Y X N scores of a grid of Y x X cells, instead of (Y X)². Every function is plain indexing, so
that cell numbers can be cut by the code that cuts the tokens: that is all a map needs to find its way back.

Liu et al.: Swin Transformer: Hierarchical Vision Transformer using Shifted Windows. ICCV 2021. arXiv:2103.14030
"""

from __future__ import annotations

import torch

from regard.core.shapes import Int, Pair, Tensor


def padded_size(size: Pair, window: Pair) -> Pair:
    """The smallest grid of whole windows that holds a grid of this size."""
    return -(-size[0] // window[0]) * window[0], -(-size[1] // window[1]) * window[1]


def window_partition(x: Tensor, window: Pair, shift: Pair = (0, 0)) -> Tensor:
    """A grid B Y X ... of whole windows as sequences (B G) N ..., windows of one input one after another."""
    if any(shift):
        x = x.roll((-shift[0], -shift[1]), (1, 2))
    b, y, x_, *rest = x.shape
    x = x.view(b, y // window[0], window[0], x_ // window[1], window[1], *rest)
    return x.transpose(2, 3).reshape(-1, window[0] * window[1], *rest)


def window_reverse(windows: Tensor, grid: Pair, window: Pair, shift: Pair = (0, 0)) -> Tensor:
    """The sequences (B G) N ... back on their grid B Y X ..."""
    rows, columns = grid[0] // window[0], grid[1] // window[1]
    x = windows.view(-1, rows, columns, *window, *windows.shape[2:]).transpose(2, 3)
    x = x.reshape(-1, *grid, *windows.shape[2:])
    return x.roll(shift, (1, 2)) if any(shift) else x


def shift_regions(grid: Pair, window: Pair, shift: Pair, real: Pair, device: torch.device) -> Int[Tensor, "G N"] | None:
    """A number for each cell of each window, equal where cells may see one another; -1 is padding, beyond `real`.

    None where every cell of a window may see every other: no shift and no padding.
    """
    if not any(shift) and real == grid:
        return None
    y, x = (torch.arange(n, device=device) for n in grid)
    # What the turn brings round from the other side is the first `shift` rows: not neighbours of the last ones.
    number = (y < shift[0]).long()[:, None] * 2 + (x < shift[1]).long()
    number = torch.where((y < real[0])[:, None] & (x < real[1]), number, -1)
    return window_partition(number[None, ..., None], window, shift)[..., 0]
