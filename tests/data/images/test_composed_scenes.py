"""Composed scenes: exact masks, boxes, classes and order; the same from the same seed."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from regard.core.errors import BadInput, UnknownName
from regard.data.images import composed_scenes
from regard.data.images.composed_scenes import STUFF, Scenes, place_cutout
from regard.data.images.scene_batch import mask_boxes


@pytest.fixture(autouse=True)
def cutouts(monkeypatch):
    """Ten classes of squares and frames instead of the real images, which take seconds to read."""

    def make(name, part):
        rng = np.random.default_rng(["train", "val", "test"].index(part))
        squares = rng.integers(40, 255, (10, 3, 12, 12), dtype=np.uint8)
        squares[5:, :, 4:8, 4:8] = 0
        return [*np.pad(squares, ((0, 0), (0, 0), (2, 2), (2, 2)))]

    monkeypatch.setattr(composed_scenes, "load_cutouts", make)


SMALL = Scenes(image_size=64, max_objects=6, eval_examples=12, train_examples=20, batch_size=4)


def scenes(**more):
    split = replace(SMALL, **more).load("val")
    return [split[i] for i in range(len(split))]


def test_panoptic_segments_cover_every_pixel_once():
    for scene in scenes(annotations="panoptic"):
        assert (scene.masks.sum(0) == 1).all()
        assert (scene.labels == scene.classes[scene.masks.argmax(0)]).all()
        assert (scene.boxes == mask_boxes(scene.masks)).all()


def test_instances_are_the_things_of_the_same_scene():
    for whole, things in zip(scenes(annotations="panoptic"), scenes(), strict=True):
        n = len(things)
        assert n >= 1
        assert (things.classes < 10).all()
        assert (whole.classes[n:] >= 10).all()
        for name in ("pixels", "labels", "depth"):
            np.testing.assert_array_equal(getattr(whole, name), getattr(things, name))
        np.testing.assert_array_equal(whole.masks[:n], things.masks)
    assert len(SMALL.labels()) == 12
    assert SMALL.labels()[:10] == SMALL.things()
    assert SMALL.labels()[10:] == [*STUFF]


def test_later_objects_stand_in_front():
    for scene in scenes():
        near = [float(scene.depth[mask].mean()) for mask in scene.masks]
        assert near == sorted(near, reverse=True)
        assert max(near) < scene.depth.max() or not (scene.labels >= 10).any()
        for mask in scene.masks:
            assert len(np.unique(scene.depth[mask])) == 1


def test_enough_of_every_object_can_be_seen():
    """The share is of all of the object's pixels, also of those outside the image."""
    for scene in scenes(min_visible=1.0, max_objects=9, min_side=0.3, max_side=0.3):
        sizes = scene.masks.sum((1, 2))
        assert (sizes > 50).all(), "nothing is hidden and nothing is cut off"
    hidden = scenes(min_visible=0.1, max_objects=9, min_side=0.5, max_side=0.5)
    assert min(scene.masks.sum((1, 2)).min() for scene in hidden) < 300


def test_scene_depends_on_seed_split_and_row_alone():
    first, again = SMALL.load("train"), SMALL.load("train")
    one, other = first.collate(torch.tensor([3, 5])), again.collate(torch.tensor([5]))
    assert torch.equal(one.pixels[1], other.pixels[0])
    assert not torch.equal(one.pixels[0], one.pixels[1])
    prints = {
        SMALL.load("train").fingerprint(),
        SMALL.load("val").fingerprint(),
        Scenes(seed=1).load("train").fingerprint(),
    }
    assert len(prints) == 3
    assert first.fingerprint() == again.fingerprint()


def test_part_of_an_object_outside_the_image_is_cut_off():
    rng = np.random.default_rng(0)
    cut = np.ones((9, 5, 4), np.float32)
    sizes = {int(place_cutout(cut, 12, rng)[3].sum()) for _ in range(200)}
    assert max(sizes) == 45
    assert min(sizes) >= 2 * 4, "the middle lies inside"


def test_bad_settings_are_refused():
    with pytest.raises(UnknownName, match="fashion_mnist"):
        Scenes(objects=("fashion_mist",))
    with pytest.raises(BadInput, match="once"):
        Scenes(objects=("mnist", "mnist"))
    with pytest.raises(BadInput, match="at most"):
        Scenes(min_side=0.5)


def test_every_emoji_is_a_shape_in_front_of_nothing():
    pictures = composed_scenes._emoji()
    assert len(pictures) == len(composed_scenes.EMOJI) == len({picture.tobytes() for picture in pictures})
    for picture in pictures:
        assert picture.shape == (64, 64, 4)
        assert 0.2 < (picture[..., 3] > 127).mean() < 0.95


def test_boxes_alone_are_those_of_the_masks():
    settings = Scenes(image_size=48, train_examples=2, max_objects=3)
    full, boxes = (replace(settings, annotations=kind).load("train")[1] for kind in ("instances", "boxes"))
    assert (boxes.masks, boxes.labels, boxes.depth) == (None, None, None)
    np.testing.assert_array_equal(full.boxes, boxes.boxes)
    np.testing.assert_array_equal(full.masks.sum((1, 2)), boxes.areas)


@pytest.mark.parametrize("annotations", ["instances", "panoptic", "boxes"])
def test_stored_scenes_equal_those_that_are_composed_when_they_are_asked_for(annotations, tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    lazy, stored = (replace(SMALL, annotations=annotations, store=store).load("train") for store in (False, True))
    assert stored.fingerprint() == lazy.fingerprint()
    for one, other in zip((lazy[i] for i in range(20)), (stored[i] for i in range(20)), strict=True):
        for name in ("pixels", "classes", "boxes", "crowd", "masks", "labels", "depth", "areas"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
