"""Scenes of a name in the size that a saved model reads, and a constant beside every depth model."""

import pytest
import torch

from regard.core.errors import BadInput
from regard.tasks.image.depth_estimation import Config as DepthConfig
from regard.tasks.image.scene_base import evaluation_scenes
from tests.tasks.image.scenes import SIDE, PixelConfig, PixelModel, Shapes


def saved(task, **more):
    return {"task": {"name": task, "preprocess": {"size": [48, 64]}, **more}}


def test_a_dataset_has_the_size_of_the_model():
    assert evaluation_scenes("middlebury", saved("depth_estimation"), {}).image_size == (48, 64)
    square = {"task": {"name": "depth_estimation", "preprocess": {"size": [64, 64]}}}
    assert evaluation_scenes("scenes", square, {"limit": 3}).image_size == 64


def test_labels_must_be_those_of_the_model_and_the_data_scenes():
    with pytest.raises(BadInput, match="must be the same"):
        evaluation_scenes("camvid", saved("semantic_segmentation", labels=["sky", "road"]), {})
    with pytest.raises(BadInput, match="no scenes"):
        evaluation_scenes("flickr8k", saved("semantic_segmentation"), {})


def test_a_folder_is_read_in_the_format_of_the_task(tmp_path):
    for task, message in (("semantic_segmentation", "classes.txt"), ("object_detection", "COCO")):
        with pytest.raises(BadInput, match=message):
            evaluation_scenes(str(tmp_path), saved(task, labels=["a"]), {}).splits()


def test_the_best_constant_is_reported_and_beaten_by_the_truth():
    work = DepthConfig().build(Shapes())

    class Truth(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.unused = torch.nn.Parameter(torch.zeros(()))
            self.batches = iter(work.dataset("val").eval_batches(10**6))

        def forward(self, images):
            return 1 / next(self.batches).depth[:, None]

    found = work.evaluate(Truth(), "val")
    assert found["abs_rel"] < 1e-4
    assert found["constant_abs_rel"] > 0.1
    flat = PixelModel(work.fit(PixelConfig()))
    for parameter in flat.parameters():
        torch.nn.init.zeros_(parameter)
    found = work.evaluate(flat, "val")
    assert found["abs_rel"] == pytest.approx(found["constant_abs_rel"])
    assert work.preprocess.size == (SIDE, SIDE)
