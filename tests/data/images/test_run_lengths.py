"""COCO's notations of masks against pycocotools."""

import numpy as np
import pytest

from regard.core.errors import BadInput
from regard.data.images.run_lengths import decode_segmentation, fill_polygon, unpack_counts

coco = pytest.importorskip("pycocotools.mask")


def test_polygons_are_filled_as_by_pycocotools():
    rng = np.random.default_rng(0)
    for case in range(300):
        height, width = rng.integers(1, 40, 2)
        points = rng.normal(0.5, 0.5, (rng.integers(3, 9), 2)) * (width, height)
        polygon = (points.round() if case % 3 == 0 else points).ravel().tolist()
        expected = coco.decode(coco.frPyObjects([polygon], int(height), int(width)))[..., 0]
        np.testing.assert_array_equal(fill_polygon(polygon, height, width), expected.astype(bool), str(polygon))


def test_polygons_of_one_object_are_joined():
    two = [[1, 1, 6, 1, 6, 6, 1, 6], [4, 4, 9, 4, 9, 9]]
    expected = coco.decode(coco.merge(coco.frPyObjects(two, 11, 13)))
    np.testing.assert_array_equal(decode_segmentation(two, 11, 13), expected.astype(bool))
    assert not decode_segmentation([[1, 1, 8, 8]], 11, 13).any()


def test_letters_are_unpacked_as_by_pycocotools():
    rng = np.random.default_rng(1)
    for _ in range(50):
        mask = rng.random(rng.integers(1, 50, 2)) < rng.random()
        packed = coco.encode(np.asfortranarray(mask, np.uint8))
        shape = {"size": [*mask.shape], "counts": packed["counts"].decode()}
        np.testing.assert_array_equal(decode_segmentation(shape, *mask.shape), mask)


def test_bad_segmentations_are_refused():
    for shape, message in (
        ({"size": [3, 4], "counts": [5, 5]}, "add up to 10 pixels; the image has 12"),
        ({"size": [4, 3], "counts": [6, 6]}, r"size \[4, 3\]; the image has \[3, 4\]"),
        ({"size": [3, 4], "counts": [-1, 13]}, "at least 0"),
        ({"size": [3, 4], "counts": [1.5, 10.5]}, "whole numbers"),
        ({"size": [3, 4], "counts": "<é"}, "letter"),
        ({"size": [3, 4], "counts": "P"}, "end within a number"),
        ({"counts": [12]}, "size None"),
        ([[0, 0, 1, 1, 2]], "x, y"),
        ([[0, 0, 1, 1, 2, float("nan")]], "x, y"),
        ("mask", "polygons or run lengths"),
    ):
        with pytest.raises(BadInput, match=message):
            decode_segmentation(shape, 3, 4)
    assert unpack_counts("") == []
