"""CamVid: class maps, and segments by connected components."""

import numpy as np
import pytest
import torch

from regard.core.errors import BadInput
from regard.data.images.camvid import CAMVID_LABELS, CamVid, connected_segments
from regard.data.images.scene_batch import VOID
from tests.data.images import needs_data


def test_components_of_things_and_whole_stuff_become_segments():
    labels = np.array(
        [[0, 0, 8, 8, 0], [8, 0, 8, 0, 0], [0, 8, 0, 0, 8], [VOID, 0, 0, 0, 8]], np.uint8
    )  # diagonal neighbours are connected
    classes, masks = connected_segments(labels, [8], min_pixels=2)
    assert classes.tolist() == [0, 8, 8]
    assert masks.sum((1, 2)).tolist() == [12, 5, 2]
    classes, masks = connected_segments(labels, [8], min_pixels=3)
    assert classes.tolist() == [0, 8]
    assert connected_segments(np.full((2, 2), VOID, np.uint8), [8], 1)[1].shape == (0, 2, 2)


@needs_data("camvid")
def test_frames_have_their_size_and_eleven_classes():
    data = CamVid(batch_size=2, limit=3)
    split = data.load("train")
    batch = split.collate(torch.tensor([0, 2]))
    assert batch.pixels.shape == (2, 3, 360, 480)
    assert batch.masks.shape == (2, 0, 0, 0)
    assert set(batch.labels.unique().tolist()) <= {*range(11), VOID}
    assert [len(CamVid().load(part)) for part in ("train", "val", "test")] == [367, 101, 233]
    assert len(data.labels()) == 11
    assert split.fingerprint() != CamVid(batch_size=2, limit=2).load("train").fingerprint()


@needs_data("camvid")
def test_panoptic_segments_partition_the_labelled_pixels():
    data = CamVid(annotations="panoptic", image_size=(180, 240), limit=2)
    split = data.load("val")
    for _ in range(2):  # read, then from memory
        batch = split.collate(torch.arange(2))
        for i in range(2):
            n = int(batch.counts[i])
            masks, labels = batch.masks[i, :n], batch.labels[i]
            assert torch.equal(masks.sum(0), (labels != VOID).long()), "every labelled pixel in exactly one segment"
            for mask, c in zip(masks, batch.classes[i], strict=False):
                assert (labels[mask] == c).all()
            stuff = [c for c in batch.classes[i, :n].tolist() if CAMVID_LABELS[c] not in data.things()]
            assert len(stuff) == len(set(stuff))


@needs_data("camvid")
def test_image_size_keeps_the_ratio_and_pads():
    batch = CamVid(image_size=(100, 100), limit=1).load("test").collate(torch.tensor([0]))
    assert batch.pixels.shape == (1, 3, 100, 100)
    assert batch.sizes.tolist() == [[75, 100]]
    assert (batch.labels[0, 75:] == VOID).all()


def test_settings_are_checked():
    with pytest.raises(BadInput, match="min_pixels"):
        CamVid(min_pixels=0)
