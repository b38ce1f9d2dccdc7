"""Object detection: targets from scenes, the loss against the parts it is made of, AP of perfect and of no detections,
boxes back in the pixels of the photo."""

import numpy as np
import torch

from regard.data.images.scene_batch import Scene, SceneBatch, mask_boxes
from regard.losses.denoising import denoising_losses, denoising_queries
from regard.losses.detection import detection_losses
from regard.modalities import Preprocess
from regard.models import build
from regard.tasks.image.object_detection import Config, ObjectDetector, detection_targets, detections
from tests.tasks.image.scenes import LABELS, SIDE, QueryConfig, QueryModel, QueryOutput, Shapes, scene

SHOWN = Preprocess(SIDE, mean=(0.1,) * 3, std=(0.25,) * 3, crop_mode="corner")


def task(**settings):
    return Config(**settings).build(Shapes())


class Oracle(torch.nn.Module):
    """Says the objects of a batch, in any order, or nothing."""

    def __init__(self, batch, says):
        super().__init__()
        self.weight, self.batch, self.says = torch.nn.Parameter(torch.zeros(())), batch, says

    def forward(self, images, sizes):
        targets = detection_targets(self.batch)
        logits = torch.full((len(images), 4, len(LABELS) + 1), -9.0)
        logits[..., -1] = 0.0
        boxes = torch.full((len(images), 4, 4), 0.5)
        if self.says:
            for b, count in enumerate(targets.counts):
                for m in range(count):
                    logits[b, 3 - m, targets.classes[b, m]] = 9.0
                    boxes[b, 3 - m] = targets.boxes[b, m]
        return QueryOutput(logits[None], boxes[None], None)


class One(Shapes):
    """One batch as every split."""

    batch = None

    def load(self, split):
        from regard.data.base import TensorSplit

        return TensorSplit(type(self).batch, 8)


def test_targets_leave_out_crowds_and_are_fractions_of_each_image():
    rng = np.random.default_rng(0)
    first, second = scene(rng, SIDE, crowd=True), scene(rng, 16)
    empty = Scene(
        first.pixels, np.zeros(0, int), np.zeros((0, 4)), np.zeros(0, bool), first.masks[:0], first.labels, first.depth
    )
    targets = detection_targets(SceneBatch.collate([first, second, empty]))
    assert targets.counts.tolist() == [1, 2, 0]
    assert targets.classes[0, 0] == 2
    left, top, right, bottom = second.boxes[1] / 16
    wanted = torch.tensor([(left + right) / 2, (top + bottom) / 2, right - left, bottom - top])
    torch.testing.assert_close(targets.boxes[1, 1], wanted)
    assert detection_targets(SceneBatch.collate([empty])).boxes.shape == (1, 0, 4)


def test_the_loss_weighs_its_parts_and_has_gradients():
    torch.manual_seed(0)
    work, model = task(l1_weight=3.0), QueryModel(QueryConfig())
    batch = work.dataset("train").collate(torch.arange(8))
    total, parts = work.loss(model, batch)
    total.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for n, p in model.named_parameters() if "masks" not in n)
    output, targets = model(work.images(batch), batch.sizes), detection_targets(batch)
    losses = detection_losses(output.logits, output.boxes, targets, work.matches(output, targets))
    wanted = 8 * (losses["classes"] + 3.0 * losses["l1"] + 2.0 * losses["giou"]).sum()
    torch.testing.assert_close(total, wanted)
    torch.testing.assert_close(parts["l1_loss"], 8 * losses["l1"][-1].detach())


def test_groups_and_noised_objects_are_trained_beside_the_matched_queries():
    torch.manual_seed(0)
    settings = {"anchor_boxes": True, "query_groups": 2, "denoising": True, "num_classes": len(LABELS)}
    work, model = task(noised_groups=3), build("deformable_detr", size="tiny", **settings)
    batch = work.dataset("train").collate(torch.arange(4))
    targets = detection_targets(batch)
    found, parts = work.loss(model, batch, rng=torch.Generator().manual_seed(7))
    noised = denoising_queries(targets, len(LABELS), 3, generator=torch.Generator().manual_seed(7))
    output = model(work.images(batch), batch.sizes, denoising=noised)
    own = output._replace(logits=output.logits[:, :, :14], boxes=output.boxes[:, :, :14])
    matched = work.losses(own, batch, 2)
    others = denoising_losses(output.logits[:, :, 14:], output.boxes[:, :, 14:], targets, 3)
    weighted = sum(work.weights()[name] * each.sum() for name, each in others.items())
    torch.testing.assert_close(found, matched[0] + 4 * weighted)
    torch.testing.assert_close(parts["giou_loss"], matched[1]["giou_loss"])
    halves = [own._replace(logits=own.logits[:, :, i : i + 7], boxes=own.boxes[:, :, i : i + 7]) for i in (0, 7)]
    giou = [work.losses(half, batch)[1]["giou_loss"] for half in halves]
    torch.testing.assert_close(parts["giou_loss"], sum(giou) / 2)  # each group is matched by itself


def test_ap_is_one_for_the_truth_and_zero_for_nothing_and_crowds_do_not_count():
    rng = np.random.default_rng(0)
    One.batch = SceneBatch.collate([scene(rng, SIDE, crowd=True), scene(rng, 16), scene(rng)])
    work = Config().build(One())
    found = work.evaluate(Oracle(One.batch, says=True))
    assert found["ap"] == found["ap50"] == 1.0
    assert found["images"] == 3
    nothing = work.evaluate(Oracle(One.batch, says=False))
    assert nothing["ap"] < 0.05
    assert nothing["loss"] > found["loss"]


def test_an_object_is_as_large_as_its_mask():
    """A frame of 40 x 40 pixels and one pixel wide is small; a full square of the same box is medium (COCO's rule)."""
    masks = np.zeros((2, 96, 96), bool)
    masks[0, 2:42, 2:42], masks[0, 3:41, 3:41] = True, False
    masks[1, 50:90, 50:90] = True
    pixels = np.zeros((3, 96, 96), np.uint8)
    boxes, crowd = mask_boxes(masks), np.zeros(2, bool)
    for seen, sizes in ((masks, {"small", "medium"}), (None, {"medium"})):
        One.batch = SceneBatch.collate([Scene(pixels, np.array([1, 2]), boxes, crowd, seen)])
        found = Config().build(One(image_size=96)).evaluate(Oracle(One.batch, says=True))
        assert {size for size in ("small", "medium", "large") if f"ap_{size}" in found} == sizes
        assert all(found[f"ap_{size}"] == 1.0 for size in sizes)


def test_boxes_are_in_the_pixels_of_the_photo():
    model = QueryModel(QueryConfig(queries=2))
    with torch.no_grad():
        for part in (model.logits, model.boxes):
            part.weight.zero_()
        model.logits.bias.copy_(torch.tensor([0, 9.0, 0, 0, 0, 0, 0, 9.0]))  # a square, and nothing
        model.boxes.bias.copy_(torch.tensor([0.25, 0.5, 0.5, 0.2] * 2).logit())
    detect = ObjectDetector(model, LABELS, SHOWN)
    for height, width in ((SIDE, SIDE), (60, 100), (31, 7)):
        found = detect(np.zeros((height, width, 3), np.uint8))
        assert (found.width, found.height) == (width, height)
        (box,) = found.boxes
        assert box.label == "square"
        wanted = 0 * width, 0.4 * height, 0.5 * width, 0.6 * height
        np.testing.assert_allclose(box[:4], wanted, rtol=1e-5, atol=1e-5)
        assert len(detect(np.zeros((height, width, 3), np.uint8), min_score=0.0)) == 2


def test_a_query_without_object_gets_its_likeliest_class():
    logits = torch.tensor([[[[0.0, 2.0, 1.0, 5.0]]]])
    found = detections(QueryOutput(logits, torch.full((1, 1, 1, 4), 0.5), None))
    assert found.classes.item() == 1
    torch.testing.assert_close(found.scores, logits[0].softmax(-1)[..., 1])
