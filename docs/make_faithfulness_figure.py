"""Draw what the scores of maps measure: docs/assets/faithfulness.png.

    python docs/make_faithfulness_figure.py

The shipped detector on a composed scene: the cross-attention of three found objects with the outline of their masks,
that of the same queries with shuffled weights, and the probability of the first object while pixels are blurred.
"""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np

import regard
from regard.interpret.faithfulness import (
    attention_mass,
    curve_area,
    deletion_curve,
    insertion_curve,
    masked_scenes,
    place_mask,
    shuffle_weights,
)
from regard.interpret.image_maps import find_maps

HERE = Path(__file__).resolve().parent
OBJECTS = 3


def main() -> None:
    """Draw the figure."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    scenes, _ = masked_scenes("scenes", limit=50)
    detector = regard.load("scenes")
    other = copy.copy(detector)
    other.model = shuffle_weights(detector.model).eval()
    for scene in scenes:  # the first in which it finds enough
        image, masks = scene.pixels.transpose(1, 2, 0), [] if scene.masks is None else scene.masks
        found = find_maps(detector, image, "cross")[:OBJECTS]
        if len(found) == OBJECTS:
            break
    shuffled = find_maps(other, image, "cross", like=found)
    figure, axes = plt.subplots(2, OBJECTS + 1, figsize=(13, 6.4), constrained_layout=True)
    for row, (maps, mark) in enumerate(((found, ""), (shuffled, ", shuffled weights"))):
        for n, (axis, each) in enumerate(zip(axes[row], maps, strict=False)):
            axis.imshow(each.picture)
            axis.imshow(each.weights, cmap="magma", alpha=0.45)
            left, top, right, bottom = found[n].box or (0.0, 0.0, 1.0, 1.0)
            center = int((top + bottom) / 2 * image.shape[0]), int((left + right) / 2 * image.shape[1])
            mask = max(masks, key=lambda m: m[center] + 1e-6 * m.sum())
            mask = place_mask(mask, each.region, each.weights.shape)
            axis.contour(mask, levels=[0.5], colors="cyan", linewidths=1.2)
            share = attention_mass(each.weights, mask) / mask.mean()
            axis.set_title(f"{each.label}{mark}: {share:.1f} times chance", fontsize=9)
    for axis in axes[:, :-1].flat:
        axis.axis("off")
    first = found[0]
    for axis, curve, name in (
        (axes[0, -1], deletion_curve(first.score, first.picture, first.weights), "deletion"),
        (axes[1, -1], insertion_curve(first.score, first.picture, first.weights), "insertion"),
    ):
        axis.plot(np.linspace(0, 100, len(curve)), curve)
        axis.fill_between(np.linspace(0, 100, len(curve)), curve, alpha=0.2)
        axis.set(ylim=(0, 1), xlabel="pixels, most attended first, %", ylabel=f"probability of {first.label}")
        axis.set_title(f"{name}: area {curve_area(curve):.2f}", fontsize=9)
    figure.savefig(HERE / "assets" / "faithfulness.png", dpi=80)


if __name__ == "__main__":
    main()
