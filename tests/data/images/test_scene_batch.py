"""Batches of scenes: padding, what is absent, slicing."""

import numpy as np
import pytest
import torch

from regard.core.errors import BadInput
from regard.data.images.scene_batch import VOID, Scene, SceneBatch, mask_boxes


def scene(rows, columns, objects, seed=0):
    rng = np.random.default_rng(seed)
    masks = rng.random((objects, rows, columns)) < 0.5
    return Scene(
        rng.integers(1, 256, (3, rows, columns), dtype=np.uint8),
        rng.integers(1, 5, objects),
        mask_boxes(masks),
        np.arange(objects) % 2 == 1,
        masks,
        rng.integers(0, 5, (rows, columns), dtype=np.uint8),
        rng.random((rows, columns)).astype(np.float32),
    )


def test_every_array_comes_back_from_the_padded_batch():
    scenes = [scene(5, 7, 2), scene(8, 3, 0, 1), scene(1, 1, 3, 2)]
    batch = SceneBatch.collate(scenes, multiple=4)
    assert batch.pixels.shape == (3, 3, 8, 8)
    assert batch.counts.tolist() == [2, 0, 3]
    assert batch.present.sum(1).tolist() == [2, 0, 3]
    assert (batch.inside.sum((1, 2)) == batch.sizes.prod(1)).all()
    for i, one in enumerate(scenes):
        (y, x), n = one.size, len(one)
        np.testing.assert_array_equal(batch.pixels[i, :, :y, :x], one.pixels)
        np.testing.assert_array_equal(batch.classes[i, :n], one.classes)
        np.testing.assert_array_equal(batch.boxes[i, :n], one.boxes)
        np.testing.assert_array_equal(batch.crowd[i, :n], one.crowd)
        np.testing.assert_array_equal(batch.masks[i, :n, :y, :x], one.masks)
        np.testing.assert_array_equal(batch.labels[i, :y, :x], one.labels)
        np.testing.assert_array_equal(batch.depth[i, :y, :x], one.depth)
        outside = ~batch.inside[i]
        assert not batch.pixels[i][:, outside].any()
        assert not batch.masks[i][:, outside].any()
        assert (batch.labels[i][outside] == VOID).all()
        assert batch.depth[i][outside].isnan().all()
        assert not batch.boxes[i, n:].any()
        assert not batch.crowd[i, n:].any()
        assert not batch.classes[i, n:].any()


def test_absent_annotations_have_no_pixels():
    batch = SceneBatch.collate([Scene(np.zeros((1, 4, 5), np.uint8))] * 2)
    assert batch.masks.shape == (2, 0, 0, 0)
    assert batch.labels.shape == (2, 0, 0)
    assert batch.depth.shape == (2, 0, 0)
    assert batch.boxes.shape == (2, 0, 4)
    assert batch.boxes.dtype == torch.float32
    assert batch.rows(1).sizes.tolist() == [[4, 5]]
    assert len(batch.take(torch.tensor([1, 0, 1])).pixels) == 3


def test_batch_refuses_scenes_of_which_some_have_masks():
    with pytest.raises(BadInput, match="some scenes of a batch have masks"):
        SceneBatch.collate([scene(2, 2, 1), Scene(np.zeros((3, 2, 2), np.uint8))])
    with pytest.raises(BadInput, match="at least one scene"):
        SceneBatch.collate([])


def test_box_of_a_mask_is_tight():
    masks = np.zeros((3, 6, 9), bool)
    masks[0, 2:4, 5:9] = True
    masks[1, 0, 0] = True
    np.testing.assert_array_equal(mask_boxes(masks), [[5, 2, 9, 4], [0, 0, 1, 1], [0, 0, 0, 0]])


def test_more_places_for_objects_are_empty():
    batch = SceneBatch.collate([scene(5, 7, 2), scene(8, 3, 5, 1)])
    wider = batch.with_places(4)
    assert wider.classes.shape == (2, 8)
    for name in ("classes", "boxes", "crowd", "masks", "areas"):
        assert torch.equal(getattr(wider, name)[:, :5], getattr(batch, name))
        assert not getattr(wider, name)[:, 5:].any()
    assert wider.present.sum(1).tolist() == [2, 5]
    empty = SceneBatch.collate([scene(5, 7, 0)])
    assert empty.with_places(4) is empty
