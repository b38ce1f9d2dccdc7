"""Draw the ways to aggregate over space: docs/assets/aggregation.png.

    python docs/make_aggregation_figure.py

Four layers on a grid of 12 x 12 cells, and two cells of each: how much of every cell enters them, computed from the
layers themselves. Convolution: |W| of a random 3 x 3 kernel. Pooling pyramid: means over squares of 1, 3, 6 and 12
cells (pyramid pooling), added. Fully connected: |W| of a random matrix from all cells to all cells. Attention:
softmax of q·k, where q and k are the colours of the cells, so that a cell looks at those that are like it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

HERE = Path(__file__).resolve().parent
SIDE, POINTS = 12, ((3, 3), (8, 7))
SHARPNESS = 8.0  # of the softmax


def picture() -> np.ndarray:
    """Return two red discs and a blue one on a ground of little texture, Y X 3 from 0 to 1."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:SIDE, :SIDE]
    image = 0.75 + 0.05 * rng.standard_normal((SIDE, SIDE, 3))
    for row, column, radius, colour in (
        (3, 3, 2.2, (0.8, 0.2, 0.2)),
        (8, 8, 2.0, (0.8, 0.25, 0.2)),
        (9, 2, 1.8, (0.2, 0.3, 0.8)),
    ):
        image[(y - row) ** 2 + (x - column) ** 2 <= radius**2] = colour
    return image.clip(0, 1)


def shares(image: np.ndarray) -> dict[str, np.ndarray]:
    """Return for each way how much of every cell enters each cell, N Y X, rows that sum to one."""
    torch.manual_seed(0)
    cells = torch.eye(SIDE**2).view(-1, 1, SIDE, SIDE)  # one input cell each
    convolution = nn.Conv2d(1, 1, 3, padding=1, bias=False)
    dense = nn.Linear(SIDE**2, SIDE**2, bias=False)
    colours = torch.from_numpy(image).float().flatten(0, 1)
    distance = torch.cdist(colours, colours) ** 2
    with torch.no_grad():
        pyramid = sum(
            F.interpolate(F.adaptive_avg_pool2d(cells, SIDE // side), SIDE, mode="nearest") for side in (1, 3, 6, 12)
        )
        found = {
            "convolution\nO(N k²), the same weights everywhere": convolution(cells).abs().flatten(1).T,
            "pooling pyramid\nO(N), fixed weights": pyramid.flatten(1).T,  # type: ignore[union-attr]
            "fully connected\nO(N²), a weight for each pair of places": dense.weight.abs(),
            "attention\nO(N²), weights from what is in the cells": (-SHARPNESS * distance).softmax(1),
        }
    return {name: (x / x.sum(1, keepdim=True)).view(-1, SIDE, SIDE).numpy() for name, x in found.items()}


def main() -> None:
    """Draw the figure."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.colors import PowerNorm

    image = picture()
    ways = shares(image)
    figure, axes = plt.subplots(2, 5, figsize=(13, 5.6), constrained_layout=True)
    for row, (y, x) in enumerate(POINTS):
        axes[row, 0].imshow(image)
        axes[row, 0].set_title("the image, and one cell" if not row else "another cell", fontsize=9)
        for axis, (name, found) in zip(axes[row, 1:], ways.items(), strict=True):
            axis.imshow(found[y * SIDE + x], cmap="magma", norm=PowerNorm(0.4, vmin=0))
            if not row:
                axis.set_title(name, fontsize=9)
        for axis in axes[row]:
            axis.add_patch(plt.Rectangle((x - 0.5, y - 0.5), 1, 1, fill=False, edgecolor="deepskyblue", linewidth=2))
            axis.set_xticks([])
            axis.set_yticks([])
    figure.savefig(HERE / "assets" / "aggregation.png", dpi=90)


if __name__ == "__main__":
    main()
