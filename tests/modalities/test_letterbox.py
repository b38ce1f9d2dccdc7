"""Letterbox: what goes into the canvas comes back to the same pixels."""

import numpy as np
import pytest
import torch
from PIL import Image

from regard.core.errors import BadInput
from regard.modalities.letterbox import Letterbox

SIZES = [(30, 47), (47, 30), (5, 200), (200, 5), (1, 1), (64, 64), (33, 64)]


def test_one_side_fits_exactly_and_none_exceeds():
    for image in SIZES:
        box = Letterbox(image, (64, 48))
        assert max(s - c for s, c in zip(box.size, box.canvas, strict=True)) == 0


def test_maps_are_sampled_without_padding():
    """A plane over the canvas is the same plane over the image; what stands in the padding has no influence."""
    for image in SIZES:
        for cells in ((64, 48), (32, 24)):
            box = Letterbox(image, (64, 48))
            rows, columns = ((torch.arange(n, dtype=torch.float64) + 0.5) / n for n in cells)
            plane = 3 * rows[:, None] - 2 * columns
            found = box.map_to_image(torch.stack([plane, 2 * plane]))
            assert found.shape == (2, *image)
            torch.testing.assert_close(found[1], 2 * found[0])
            used = [-(-box.size[i] * cells[i] // box.canvas[i]) for i in (0, 1)]  # cells that begin inside the image
            spoiled = plane.clone()
            spoiled[used[0] :], spoiled[:, used[1] :] = 1e9, 1e9
            torch.testing.assert_close(box.map_to_image(spoiled), found[0])
            y, x = image[0] // 2, image[1] // 2
            if min(box.size) > 4:
                down, across = (y + 0.5) * box.factors[0] / 64, (x + 0.5) * box.factors[1] / 48
                assert float(found[0, y, x]) == pytest.approx(3 * down - 2 * across, abs=1e-9)


def test_view_has_the_image_at_the_top_left():
    pixels = np.full((30, 60, 3), 200, np.uint8)
    box = Letterbox((30, 60), (40, 40))
    shown = np.asarray(box.view(Image.fromarray(pixels), fill=(1, 2, 3)))
    assert (shown[:20] == 200).all()
    assert (shown[20:] == (1, 2, 3)).all()


def test_bad_sizes_are_refused():
    with pytest.raises(BadInput, match="at least one row"):
        Letterbox((0, 5), (4, 4))
    with pytest.raises(BadInput, match="this letterbox is for 3 x 5"):
        Letterbox((3, 5), (4, 4)).view(Image.new("RGB", (3, 5)))
