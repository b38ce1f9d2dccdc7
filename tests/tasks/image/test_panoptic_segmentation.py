"""Panoptic segmentation: the loss from its parts, PQ of the truth, whose a pixel is, masks in pixels of the photo."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import regard
from regard.core.errors import BadInput
from regard.data.base import TensorSplit
from regard.data.images.scene_batch import Scene, SceneBatch
from regard.modalities import Preprocess
from regard.tasks.image.panoptic_segmentation import Config, PanopticSegmenter, panoptic_segments
from tests.tasks.image.scenes import LABELS, SIDE, QueryConfig, QueryModel, QueryOutput, Shapes, scene

SHOWN = Preprocess(SIDE, mean=(0.1,) * 3, std=(0.25,) * 3, crop_mode="corner")


def same(one):
    return one


def class_logits(classes, num=4):
    return 20.0 * torch.nn.functional.one_hot(torch.tensor(classes), num)


def test_the_loss_adds_the_masks_of_the_last_layer():
    torch.manual_seed(0)
    work, model = Config(focal_weight=2.0, dice_weight=3.0).build(Shapes()), QueryModel(QueryConfig())
    batch = work.dataset("train").collate(torch.arange(5))
    output = model(work.images(batch), batch.sizes)
    total, parts = work.losses(output, batch)
    total.backward()
    assert model.masks.weight.grad.abs().sum() > 0
    targets_task = Config(focal_weight=0.0, dice_weight=0.0).build(Shapes())
    without, _ = targets_task.losses(output, batch)
    torch.testing.assert_close(total - without, 2 * parts["focal_loss"] + 3 * parts["dice_loss"], rtol=1e-4, atol=1e-4)
    with pytest.raises(BadInput, match=r"model\.masks=true"):
        work.losses(output._replace(masks=None), batch)


def test_masks_follow_their_objects_where_a_crowd_is_left_out():
    rng = np.random.default_rng(0)
    batch = SceneBatch.collate([scene(rng, SIDE, crowd=True), scene(rng)])
    masks = Config().build(Shapes()).true_masks(batch)
    assert torch.equal(masks[0, 0], batch.masks[0, 1])
    assert torch.equal(masks[1], batch.masks[1])


class Oracle(torch.nn.Module):
    """Says the objects of a batch with their masks, at half the resolution where there are no small parts."""

    def __init__(self, batch):
        super().__init__()
        self.weight, self.batch = torch.nn.Parameter(torch.zeros(())), batch

    def forward(self, images, sizes):
        classes = torch.cat([self.batch.classes, torch.zeros(len(images), 1, dtype=torch.int64)], 1)  # and the ground
        ground = ~self.batch.masks.any(1, keepdim=True)
        masks = torch.cat([self.batch.masks, ground], 1)
        return QueryOutput(class_logits(classes.tolist())[None], torch.full((1, len(images), 3, 4), 0.5), 9.0 * masks)


def test_pq_of_the_truth_is_one():
    rng = np.random.default_rng(1)
    batch = SceneBatch.collate([scene(rng), scene(rng, SIDE)])
    # the ground as an object of its own: stuff
    ground = ~batch.masks.any(1, keepdim=True)
    zeros = torch.zeros(2, 1, dtype=torch.int64)
    whole = SceneBatch(
        batch.pixels,
        batch.sizes,
        batch.counts + 1,
        torch.cat([batch.classes, zeros], 1),
        torch.cat([batch.boxes, torch.tensor([0.0, 0, SIDE, SIDE]).expand(2, 1, 4)], 1),
        torch.cat([batch.crowd, zeros.bool()], 1),
        torch.cat([batch.masks, ground], 1),
        batch.labels,
        batch.depth,
        torch.cat([batch.areas, ground.sum((2, 3))], 1),
    )

    class Fixed(Shapes):
        def load(self, split):
            return TensorSplit(whole, 2)

    found = Config().build(Fixed()).evaluate(Oracle(batch))
    assert found["pq"] == found["pq_stuff"] == found["pq_things"] == pytest.approx(1.0)


def test_the_highest_logit_gets_the_pixel_and_stuff_is_merged():
    masks = torch.full((5, 6, 6), -9.0)
    masks[0, :, :3], masks[1, :, 3:] = 1.0, 1.0  # two things of class 1
    masks[2, :2], masks[3, 4:] = 2.0, 2.0  # two parts of the stuff 0
    masks[4] = 50.0  # no object
    found = panoptic_segments(class_logits([1, 1, 0, 0, 3]), masks, same, stuff={0})
    assert found.classes == [1, 1, 0]
    wanted = torch.tensor([[1, 1, 1, 2, 2, 2]] * 6)
    wanted[:2] = wanted[4:] = 3
    assert torch.equal(found.segments, wanted)
    separate = panoptic_segments(class_logits([1, 1, 0, 0, 3]), masks, same, stuff=())
    assert separate.classes == [1, 1, 0, 0]


def test_small_segments_are_dropped_and_their_pixels_go_to_the_others():
    masks = torch.zeros(3, 4, 4)
    masks[1, 0, 0] = masks[2, 3, :3] = 5.0
    found = panoptic_segments(class_logits([1, 2, 2]), masks, same, stuff={0})
    assert found.classes == [1]
    assert torch.equal(found.segments, torch.ones(4, 4, dtype=torch.int64))


def test_nothing_found_is_an_empty_map():
    found = panoptic_segments(class_logits([3, 3]), torch.zeros(2, 4, 5), same, stuff=())
    assert found.classes == []
    assert not found.segments.any()
    unsure = panoptic_segments(torch.zeros(2, 4), torch.zeros(2, 4, 5), same, stuff=())
    assert unsure.classes == []


def test_masks_are_in_the_pixels_of_the_photo():
    class Fixed(QueryModel):
        def forward(self, images, sizes=None):
            masks = torch.full((1, 2, SIDE // 2, SIDE // 2), -4.0)
            masks[0, 0, :, : SIDE // 8] = 4.0  # the left quarter of the canvas
            masks[0, 1, :, SIDE // 8 :] = 4.0
            return QueryOutput(class_logits([[1, 2]])[None], torch.full((1, 1, 2, 4), 0.5), masks)

    segment = PanopticSegmenter(Fixed(QueryConfig()), LABELS, SHOWN, ["square"])
    for height, width, edge in ((48, 48, 12), (24, 96, 24), (96, 24, 24)):
        found = segment(np.zeros((height, width, 3), np.uint8))
        left = next(mask.pixels for mask in found.masks if mask.label == "square")
        assert left.shape == (height, width)
        assert np.flatnonzero(left.all(0)).max() + 1 == pytest.approx(edge, abs=3)
    with pytest.raises(BadInput, match="not among the labels"):
        PanopticSegmenter(QueryModel(QueryConfig()), LABELS, SHOWN, ["dog"])


def test_images_without_objects_and_objects_without_area_are_trained_on():
    rng, side = np.random.default_rng(0), SIDE
    pixels, nothing = rng.integers(0, 256, (3, side, side), np.uint8), np.zeros((0, side, side), bool)
    empty = Scene(pixels, np.zeros(0, int), np.zeros((0, 4), np.float32), np.zeros(0, bool), nothing)
    flat = Scene(  # a line, and a mask that lost its pixels
        pixels, np.array([1, 2]), np.array([[2, 5, 2, 9], [4, 4, 8, 8]], np.float32), np.zeros(2, bool),
        np.zeros((2, side, side), bool),
    )  # fmt: skip
    for scenes in ([empty, empty], [flat, empty], [replace(scene(rng), labels=None, depth=None), flat]):
        for multiple in (1, 4):
            batch = SceneBatch.collate(scenes).with_places(multiple)
            task = Config(noised_groups=2).build(Shapes())
            model = regard.build("detr", size="tiny", num_classes=len(LABELS), masks=True, denoising=True).train()
            total, parts = task.loss(model, batch, rng=torch.Generator().manual_seed(0))
            total.backward()
            assert total.isfinite()
            assert all(x.isfinite() for x in parts.values())
            assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_more_places_for_objects_change_no_loss():
    rng = np.random.default_rng(1)
    batch = SceneBatch.collate([scene(rng), scene(rng, crowd=True)])
    task = Config().build(Shapes())
    torch.manual_seed(0)
    model = regard.build("detr", size="tiny", num_classes=len(LABELS), masks=True, dropout=0.0)
    found = [float(task.loss(model, each)[0].detach()) for each in (batch, batch.with_places(8))]
    assert found[0] == pytest.approx(found[1], rel=1e-5)
