"""Preprocess: the view of an image, the part of the image it shows, and the way back for boxes."""

import numpy as np
import pytest
import torch
from PIL import Image as PIL

from regard.core.errors import BadInput
from regard.modalities import Preprocess


def marked(width, height, left, top, right, bottom):
    """A black image with a white rectangle."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[top:bottom, left:right] = 255
    return PIL.fromarray(pixels)


@pytest.mark.parametrize("crop", [1.0, 0.875, 0.5])
@pytest.mark.parametrize("size", [(64, 64), (96, 64), (64, 96), (37, 200), (1000, 900)])
def test_box_of_the_view_lies_where_it_is_in_the_image(size, crop):
    width, height = size
    box = (round(0.45 * width), round(0.48 * height), round(0.6 * width), round(0.53 * height))
    image, preprocess = marked(*size, *box), Preprocess(32, crop=crop, resample="bilinear")
    left, top, right, bottom = preprocess.region(image)
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height
    rows, columns = np.nonzero(np.asarray(preprocess.view(image))[..., 0] > 127)
    found = np.array([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]) / 32
    pixel = max(right - left, bottom - top) / 32
    assert np.allclose(preprocess.to_image(image, found), box, atol=1.5 * pixel)


def test_whole_image_is_seen_where_it_has_the_shape_of_the_view():
    assert Preprocess((32, 48)).region(PIL.new("RGB", (96, 64))) == (0, 0, 96, 64)
    assert Preprocess(32).region(PIL.new("RGB", (96, 64))) == (16, 0, 80, 64)
    assert Preprocess(32, crop=0.5).region(PIL.new("RGB", (64, 64))) == (16, 16, 48, 48)


def test_training_and_prediction_see_the_same_numbers():
    preprocess = Preprocess(8, mean=(0.5, 0.4, 0.3), std=(0.2, 0.2, 0.1))
    pixels = torch.randint(0, 256, (2, 3, 8, 8), dtype=torch.uint8)
    images = [PIL.fromarray(each.permute(1, 2, 0).numpy()) for each in pixels]
    assert torch.equal(preprocess.normalize(pixels), preprocess.batch(images))
    assert preprocess.batch([]).shape == (0, 3, 8, 8)
    assert preprocess.batch(images, torch.zeros(1, dtype=torch.float64)).dtype == torch.float64


@pytest.mark.parametrize(
    "settings",
    [{"channels": 2}, {"mean": (0.5,)}, {"crop": 0.0}, {"crop": 1.5}, {"std": (0.1, 0.0, 0.1)}, {"size": (0, 5)}],
    ids=str,
)
def test_impossible_settings_are_refused(settings):
    with pytest.raises(BadInput):
        Preprocess(**{"size": 32} | settings)


@pytest.mark.parametrize("side", [384, 400, 500])
def test_a_photo_that_a_model_would_read_as_thousands_of_times_its_size_is_refused(side):
    preprocess = Preprocess(384, crop_mode="ratio", multiple=32)
    assert preprocess.at(PIL.new("L", (6000, side))).size[1] <= 6144
    with pytest.raises(BadInput, match=rf"{side} x 80000 pixels is too long and thin.*crop it first"):
        preprocess.at(PIL.new("L", (80_000, side)))
    assert preprocess.at(PIL.new("L", (80_000, 32))).size == (32, 384)  # the other side decides
