"""Things with a name and a colour, pasted into composed scenes: what questions and captions made by rule speak of.

    draw_things([("bag", "red"), ("digit", "blue")], ...)      pixels, visible pixels of each thing, the horizon

Printed digits and clothes of Fashion-MNIST in six named colours, over a textured wall and floor
(data.images.composed_scenes). At least `MIN_VISIBLE` of every thing's pixels can be seen.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from regard.data.images import composed_scenes

THINGS = {  # name -> plural, source of its cut-outs, classes there
    "digit": ("digits", "digits", tuple(range(10))),
    "shirt": ("shirts", "fashion_mnist", (0, 2, 6)),
    "dress": ("dresses", "fashion_mnist", (3,)),
    "shoe": ("shoes", "fashion_mnist", (5, 7)),
    "boot": ("boots", "fashion_mnist", (9,)),
    "bag": ("bags", "fashion_mnist", (8,)),
}
HUES = {"red": 0.0, "yellow": 0.155, "green": 0.35, "blue": 0.61, "purple": 0.79}
COLOURS = (*HUES, "white")
MIN_VISIBLE = 0.85  # share of a thing's pixels
TRIALS = 40  # places tried for a thing


class DrawnThings(NamedTuple):
    """A scene: pixels, and the visible pixels of each thing."""

    pixels: np.ndarray  # uint8, 3 Y X
    masks: np.ndarray  # bool, M Y X
    horizon: int  # the first row of the floor

    def middles(self) -> np.ndarray:
        """Return the row and the column of the middle of each thing's visible pixels, M 2."""
        rows, columns = (np.arange(n) for n in self.masks.shape[1:])
        area = self.masks.sum((1, 2))
        return np.stack([(self.masks.sum(2) * rows).sum(1) / area, (self.masks.sum(1) * columns).sum(1) / area], 1)


def load_things(part: str) -> dict[str, np.ndarray]:
    """Return the cut-outs of every name, N Y X; those of val and test are never trained on."""
    sources = {source: composed_scenes.load_cutouts(source, part) for _, source, _ in THINGS.values()}
    return {
        name: np.concatenate([sources[source][c] for c in classes]) for name, (_, source, classes) in THINGS.items()
    }


def draw_things(
    things: list[tuple[str, str]],
    cutouts: dict[str, np.ndarray],
    side: int,
    sizes: tuple[float, float],
    rng: np.random.Generator,
) -> DrawnThings | None:
    """Paste things (name and colour) in a random order, each at a random place; None where one found no place.

    `side` is in pixels, `sizes` are the least and the greatest side of a thing's square as shares of it.
    """
    canvas, horizon = composed_scenes.make_background(rng, side)
    masks, total = np.zeros((len(things), side, side), bool), np.zeros(len(things))
    for n in rng.permutation(len(things)):
        name, colour = things[n]
        picture = cutouts[name][int(rng.integers(len(cutouts[name])))]
        if name != "digit" and rng.random() < 0.5:
            picture = picture[:, ::-1]
        size = round(side * float(rng.uniform(*sizes)))
        picture = composed_scenes.paint(picture, named_colour(colour, rng))
        cut = composed_scenes.turn_cutout(picture, size, float(rng.uniform(-15, 15)))
        pixels = (cut[..., 3] >= 0.5).sum()
        for _ in range(TRIALS):
            alpha = composed_scenes.place_cutout(cut, side, rng)
            mask = alpha[3] >= 0.5
            visible = masks & ~mask
            if mask.sum() >= MIN_VISIBLE * pixels and (visible.sum((1, 2)) >= MIN_VISIBLE * total).all():
                break
        else:
            return None
        canvas += alpha[3] * (alpha[:3] - canvas)
        masks, masks[n], total[n] = visible, mask, pixels
    return DrawnThings(canvas.clip(0, 255).round().astype(np.uint8), masks, horizon)


def named_colour(name: str, rng: np.random.Generator) -> np.ndarray:
    """Return a colour of this name, RGB from 0 to 255; no two are alike."""
    from colorsys import hsv_to_rgb

    if name == "white":
        return 255 * np.array(hsv_to_rgb(rng.random(), rng.uniform(0, 0.05), rng.uniform(0.92, 1)), np.float32)
    hue = (HUES[name] + rng.uniform(-0.02, 0.02)) % 1
    return 255 * np.array(hsv_to_rgb(hue, rng.uniform(0.75, 1), rng.uniform(0.8, 1)), np.float32)
