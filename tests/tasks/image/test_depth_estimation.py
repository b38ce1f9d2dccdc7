"""Depth estimation: invariance to scale and shift, errors of the truth, relative depth in the photo's pixels."""

import numpy as np
import pytest
import torch

from regard.core.errors import BadInput
from regard.data.images.scene_batch import Scene, SceneBatch
from regard.modalities import Preprocess
from regard.tasks.image.depth_estimation import Config, DepthEstimator, aligned_depth, scale_to_one
from tests.tasks.image.scenes import SIDE, PixelConfig, PixelModel, Shapes, scene


def test_loss_and_errors_do_not_depend_on_scale_and_shift():
    work = Config().build(Shapes())
    batch = work.dataset("val").collate(torch.arange(4))
    true = 1 / batch.depth
    for found in (true, 3 * true - 2):
        assert float(work.inverse_loss(found, batch)) < 1e-5
        depth, known = work.targets(batch)
        torch.testing.assert_close(aligned_depth(found, depth, known), batch.depth, rtol=1e-4, atol=1e-4)
    torch.manual_seed(0)
    guess = torch.rand_like(true)
    losses = [work.inverse_loss(x, batch) for x in (guess, 5 * guess + 7)]
    torch.testing.assert_close(*losses, rtol=1e-4, atol=1e-5)
    assert float(losses[0]) > 0.01


def test_unknown_pixels_and_padding_do_not_count():
    rng = np.random.default_rng(0)
    one = scene(rng, 16)
    depth = one.depth.copy()
    depth[:4] = np.nan
    batch = SceneBatch.collate([Scene(one.pixels, depth=depth)])
    work = Config().build(Shapes())
    _, known = work.targets(batch)
    assert int(known.sum()) == 12 * 16
    torch.manual_seed(0)
    found = torch.rand(1, SIDE, SIDE)
    other = found.where(known, torch.tensor(9.0))
    torch.testing.assert_close(work.inverse_loss(found, batch), work.inverse_loss(other, batch))
    with pytest.raises(BadInput, match="no depth"):
        work.targets(SceneBatch.collate([Scene(one.pixels)]))


def test_values_are_scaled_by_image():
    values, known = (
        torch.tensor([[[1.0, 3.0, 5.0]], [[2.0, 2.0, 9.0]]]),
        torch.tensor([[[True] * 3], [[True, True, False]]]),
    )
    assert scale_to_one(values, known).tolist() == [[[0.0, 0.5, 1.0]], [[0.0, 0.0, 0.0]]]


def test_a_few_updates_beat_a_constant():
    torch.manual_seed(0)
    work = Config().build(Shapes())
    model = PixelModel(work.fit(PixelConfig()))
    assert model.config.num_outputs == 1
    before = work.evaluate(model)
    optimizer, train = torch.optim.Adam(model.parameters(), 1e-2), work.dataset("train")
    for _ in range(40):
        batch = train.collate(torch.randint(32, (8,)))
        optimizer.zero_grad()
        (work.loss(model, batch)[0] / work.count(batch)).backward()
        optimizer.step()
    after = work.evaluate(model)
    assert after["abs_rel"] < 0.6 * before["abs_rel"]
    assert after["delta1"] > before["delta1"]


def test_depth_is_relative_and_in_the_pixels_of_the_photo():
    class Rows(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(()))

        def forward(self, images):  # the lower, the nearer
            rows = torch.arange(images.shape[2], dtype=torch.float32)
            return self.weight * rows[None, None, :, None].expand(len(images), 1, -1, images.shape[3])

    measure = DepthEstimator(Rows(), Preprocess(SIDE, crop_mode="corner"))
    for height, width in ((48, 48), (30, 100), (70, 9)):
        values = measure(np.zeros((height, width, 3), np.uint8)).values
        assert values.shape == (height, width)
        assert values.min() == 0
        assert values.max() == 1
        assert (np.diff(values[:, 0]) <= 1e-6).all()
    with pytest.raises(BadInput, match="depth needs 1"):
        DepthEstimator(PixelModel(PixelConfig()), Preprocess(SIDE))
