"""Semantic segmentation: the loss against a loop, sliding windows against the whole, the way back to the photo."""

import numpy as np
import pytest
import torch
from PIL import Image as PIL
from torch import nn

from regard.core.errors import BadInput
from regard.data.images.scene_batch import SceneBatch
from regard.modalities import Masks, Preprocess
from regard.tasks.image import semantic_segmentation as task_file
from regard.tasks.image.semantic_segmentation import (
    VOID,
    Config,
    SemanticSegmenter,
    best_class,
    pixel_loss,
    window_starts,
)
from tests.tasks.image.scenes import LABELS, SIDE, PixelConfig, PixelModel, Shapes, scene

SHOWN = Preprocess(SIDE, mean=(0.1,) * 3, std=(0.25,) * 3, crop_mode="corner")


def task(**settings):
    return Config(**settings).build(Shapes())


class Brightness(nn.Module):
    """Class 0 where red is dark, class 1 where it is bright: each pixel by itself."""

    def __init__(self):
        super().__init__()
        self.sharp = nn.Parameter(torch.tensor(4.0))

    def forward(self, images):
        return torch.stack([-images[:, 0], images[:, 0]], 1) * self.sharp


def test_the_loss_is_the_mean_over_labelled_pixels_of_each_image():
    torch.manual_seed(0)
    logits = torch.randn(3, 4, 5, 6, dtype=torch.float64)
    targets = torch.randint(0, 4, (3, 5, 6))
    targets[0, :2], targets[1] = VOID, VOID
    wanted = 0.0
    for image, true in zip(logits.log_softmax(1), targets, strict=True):
        each = [-image[true[y, x], y, x] for y in range(5) for x in range(6) if true[y, x] != VOID]
        wanted += sum(each) / len(each) if each else 0.0
    torch.testing.assert_close(pixel_loss(logits, targets).double(), wanted, rtol=1e-6, atol=1e-6)


def test_training_ends_in_a_segmenter_that_finds_the_shapes():
    torch.manual_seed(0)
    work = task()
    model = PixelModel(work.fit(PixelConfig(num_outputs=1)))
    assert model.config.num_outputs == 3
    before = work.evaluate(model)
    optimizer, train = torch.optim.Adam(model.parameters(), 3e-2), work.dataset("train")
    for _ in range(60):
        batch = train.collate(torch.randint(32, (8,)))
        total, parts = work.loss(model, batch)
        optimizer.zero_grad()
        (total / work.count(batch)).backward()
        optimizer.step()
        assert parts["loss"] == total
    after = work.evaluate(model)
    assert after["images"] == 32
    assert after["miou"] > 0.9 > before["miou"]
    assert after["loss"] < 0.3 * before["loss"]
    one = scene(np.random.default_rng(5))
    found = SemanticSegmenter(model, LABELS, work.preprocess)(one.pixels.transpose(1, 2, 0))
    assert set(LABELS) == {mask.label for mask in found.masks}
    truth = Masks.from_labels(one.labels, dict(enumerate(LABELS)))
    assert truth.difference(found) < 0.2
    assert sum(mask.pixels.astype(int) for mask in found.masks).max() == 1  # no pixel is in two masks


def test_padding_neither_trains_nor_counts():
    rng = np.random.default_rng(0)
    small, large = scene(rng, 16), scene(rng, SIDE)
    work, model = task(), PixelModel(PixelConfig())
    both = SceneBatch.collate([small, large])
    alone = SceneBatch.collate([small])
    assert work.images(alone).shape[-2:] == (SIDE, SIDE)
    torch.testing.assert_close(work.images(both)[:1], work.images(alone))
    assert not work.images(both)[0, :, 16:].any()
    losses = [work.loss(model, batch)[0] for batch in (alone, SceneBatch.collate([large]))]
    torch.testing.assert_close(work.loss(model, both)[0], sum(losses))


@pytest.mark.parametrize(("side", "window"), [(10, 10), (7, 10), (11, 10), (25, 10), (1000, 96), (3, 1), (5, 2)])
def test_windows_cover_a_side_with_the_overlap(side, window):
    starts = window_starts(side, window)
    assert starts[0] == 0
    assert starts[-1] == max(0, side - window)
    steps = np.diff(starts)
    assert (steps > 0).all()
    assert (steps <= max(1, int(window * (1 - task_file.OVERLAP)) + 1)).all()


def test_windows_of_a_pixelwise_model_give_what_the_whole_photo_gives():
    rng = np.random.default_rng(1)
    segment = SemanticSegmenter(Brightness(), ["dark", "bright"], SHOWN)
    photo = PIL.fromarray(rng.integers(0, 256, (SIDE, 5 * SIDE + 7, 3), np.uint8))
    assert segment.resized(photo).shape[1:] == (SIDE, 5 * SIDE + 7)
    whole = segment.model(segment.resized(photo)[None])[0].softmax(0)
    torch.testing.assert_close(segment.probabilities(photo), whole)
    flipped = segment.probabilities(photo, task_file.Options(flip=True, scales=(1.0, 1.0)))
    torch.testing.assert_close(flipped, whole)


def test_masks_are_in_the_pixels_of_the_photo():
    segment = SemanticSegmenter(Brightness(), ["dark", "bright"], SHOWN)
    pixels = np.zeros((3 * SIDE, 5 * SIDE, 3), np.uint8)
    pixels[30:50, 60:90] = 255
    found = segment(pixels)
    (bright,) = [mask for mask in found.masks if mask.label == "bright"]
    rows, columns = np.nonzero(bright.pixels)
    edges = rows.min(), rows.max() + 1, columns.min(), columns.max() + 1
    assert np.allclose(edges, (30, 50, 60, 90), atol=2)
    assert len(segment(pixels, min_score=1.0)) < 2
    several = segment(pixels, scales=(0.4, 1.0), flip=True)
    assert found.difference(several) < 0.15  # the edges, by a pixel


def test_best_class_is_that_of_the_resized_logits():
    torch.manual_seed(2)
    logits = 3 * torch.randn(5, 6, 7)
    classes, scores = best_class(logits.softmax(0), (13, 17))
    resized = torch.nn.functional.interpolate(logits[None], (13, 17), mode="bilinear", align_corners=False)[0]
    assert (classes == resized.argmax(0).numpy()).all()
    np.testing.assert_allclose(scores, resized.softmax(0).amax(0).numpy(), rtol=1e-5)
    classes, scores = best_class(torch.tensor([0.0, 1.0])[:, None, None].expand(2, 3, 3), (5, 5))  # sure
    assert (classes == 1).all()
    assert (scores == 1).all()


def test_bad_input_is_refused():
    with pytest.raises(BadInput, match="at least one number"):
        SemanticSegmenter(Brightness(), ["a", "b"], SHOWN)(np.zeros((9, 9, 3), np.uint8), scales=())
    with pytest.raises(BadInput, match="3 classes, got 2 labels"):
        SemanticSegmenter(PixelModel(PixelConfig()), ["a", "b"], SHOWN)
    with pytest.raises(BadInput, match="windows"):
        SemanticSegmenter(Brightness(), ["a", "b"], SHOWN)(np.zeros((4, 4 * 10**5, 3), np.uint8))
    bare = scene(np.random.default_rng(0))
    batch = SceneBatch.collate([type(bare)(bare.pixels)])
    with pytest.raises(BadInput, match="no class maps"):
        task().loss(PixelModel(PixelConfig()), batch)
    with pytest.raises(BadInput, match=r"set data\.image_size"):
        Config().build(Shapes(image_size=None))


def test_augmentation_moves_pixels_and_classes_together_in_training_only():
    work, model = task(augment=("flip(p=1.0)",)), PixelModel(PixelConfig())
    batch = work.dataset("train").collate(torch.arange(4))
    moved = work.augmented(batch, torch.Generator().manual_seed(0))
    assert torch.equal(moved.pixels, batch.pixels.flip(-1))
    assert torch.equal(moved.labels, batch.labels.flip(-1))
    torch.testing.assert_close(work.loss(model, batch)[0], pixel_loss(model(work.images(moved)), work.targets(moved)))
    assert work.evaluate(model) == task().evaluate(model)
