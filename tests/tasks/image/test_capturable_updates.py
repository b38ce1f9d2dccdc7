"""Updates that may be CUDA graphs: a loss and its gradient ask nothing of the host; on a GPU graphs change nothing."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils._python_dispatch import TorchDispatchMode

from regard.data.images.binarized_images import BinarizedImages
from regard.data.images.image_dataset import ImageDataset
from regard.data.images.translated_images import TranslatedImages
from regard.models import draw, image_transformer, ram
from regard.tasks.image import glimpse_classification, image_generation, variational_image_generation
from regard.training import train
from regard.training.recipe import Recipe, Train, build, override_recipe

# Calls that wait for the device, or copy from the host, which a captured stream must not do.
FORBIDDEN = ("_local_scalar_dense", "nonzero", "masked_select", "lift_fresh", "lift_fresh_copy", "is_nonzero")


class HostReads(TorchDispatchMode):
    """Collects calls that a CUDA graph cannot hold."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket.__name__ in FORBIDDEN:
            self.found.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    for name, low in (("dark", 0), ("light", 200)):
        (folder / name).mkdir()
        for number in range(12):
            Image.fromarray(rng.integers(low, low + 56, (8, 8), np.uint8)).save(folder / name / f"{number:02d}.png")
    return folder


SETTINGS = Train(steps=40, learning_rate=1e-3, warmup_steps=2, eval_interval=20, save_interval=40, log_interval=1)
RAM = ram.Config(glimpses=2, glimpse_size=3, scales=2, hidden=10, retina_width=6)
CASES = {
    "ram": (RAM, glimpse_classification.Config(), ImageDataset),
    "ram on canvases": (RAM, glimpse_classification.Config(), TranslatedImages),
    "draw": (draw.Config(**draw.SIZES["tiny"]), variational_image_generation.Config(), BinarizedImages),
    "pixels": (
        image_transformer.Config(**image_transformer.SIZES["tiny"]), image_generation.Config(levels=16), ImageDataset
    ),
}  # fmt: skip


def make(case, pictures):
    model, task, data = CASES[case]
    more = {"canvas_size": 12, "clutter": 1, "clutter_size": 3} if data is TranslatedImages else {}
    found = data(str(pictures), image_size=8, batch_size=4, val_fraction=0.2, grayscale=True, **more)
    return Recipe(model, task, found, SETTINGS, case.replace(" ", "_"))


@pytest.mark.parametrize("case", CASES)
def test_a_loss_and_its_gradient_ask_nothing_of_the_host(case, pictures, monkeypatch):
    monkeypatch.setattr(image_transformer, "check_id_range", lambda *_: None)  # it reads nothing on a GPU
    recipe = make(case, pictures)
    task = recipe.task.build(recipe.data)
    model = build(task.fit(recipe.model)).train()
    split = task.dataset("train")
    batch, rng = split.training_batch(torch.arange(4), 0), torch.Generator()
    task.loss(model, batch.to("cpu"), 0, rng)  # images, their mean and deviation are copied to the device once
    assert task.capturable
    for step in torch.arange(2).unbind():
        with HostReads() as reads:
            total, parts = task.loss(model, batch.to("cpu"), step, rng)
            total.backward()
            task.after_update(model, step + 1)
        assert reads.found == []
        assert all(isinstance(x, torch.Tensor) for x in parts.values())


def test_such_calls_are_noticed():
    with HostReads() as reads:
        torch.ones(3).sum().item()
        torch.ones(3)[torch.tensor([True, False, True])]
    assert len(reads.found) >= 2


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("compiled", ["false", "true"])
@pytest.mark.parametrize("case", CASES)
def test_updates_as_graphs_equal_those_without(case, compiled, pictures, tmp_path, unchecked):
    """Eagerly to the bit; compiled kernels draw other random numbers, so there the losses are only compared in size."""
    recipe = override_recipe(make(case, pictures), ["train.device=cuda", "train.precision=float32"])
    losses = {}
    for graph in ("on", "off"):
        how = [f"train.graph={graph}", f"train.compile={compiled if graph == 'on' else 'false'}"]
        found = train(override_recipe(recipe, how), tmp_path / graph)
        assert (found.get("replayed_updates", 0) >= 20) == (graph == "on")
        rows = [json.loads(line) for line in (tmp_path / graph / "metrics.jsonl").read_text().splitlines()]
        losses[graph] = [row["loss"] for row in rows if "loss" in row]
    if compiled == "false":
        assert losses["on"] == pytest.approx(losses["off"], rel=1e-4)
    else:
        assert np.mean(losses["on"][-10:]) == pytest.approx(np.mean(losses["off"][-10:]), rel=0.2)
