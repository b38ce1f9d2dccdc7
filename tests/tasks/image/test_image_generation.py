"""Image generation: bits per dimension of what is given, images of seeds and of small images, and whole runs."""

import math

import numpy as np
import pytest
import torch
from PIL import Image

import regard
from regard.cli import main
from regard.core.errors import BadInput
from regard.data.batching import StreamPosition
from regard.data.images.image_dataset import ImageDataset
from regard.data.images.image_shards import ImageBatch
from regard.models.image_transformer import SIZES, Config
from regard.tasks.image import image_generation
from regard.tasks.image.image_generation import (
    ImageGenerator,
    SuperResolution,
    from_levels,
    intensity_loss,
    reduce_images,
    to_levels,
)
from regard.training import evaluate, train
from regard.training.recipe import Recipe, Train

TINY = Config(**SIZES["tiny"])
SHORT = Train(steps=6, warmup_steps=2, learning_rate=3e-3, eval_interval=3, save_interval=3, device="cpu")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Folders of small pictures, light and dark, in colour."""
    folder, rng = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    for name, low in (("dark", 0), ("light", 200)):
        (folder / name).mkdir()
        for number in range(10):
            pixels = rng.integers(low, low + 56, (8, 8, 3), np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return folder


def data(pictures):
    return ImageDataset(str(pictures), image_size=8, batch_size=4, val_fraction=0.2)


def task(pictures, **settings):
    return image_generation.Config(**settings).build(data(pictures))


def test_a_model_that_knows_nothing_needs_all_bits(pictures):
    for levels, factor in ((256, None), (16, 4)):
        one = task(pictures, levels=levels, factor=factor)
        config = one.fit(TINY)
        assert (config.channels, config.image_size, config.levels) == (3, (8, 8), levels)
        assert config.condition_size == (None if factor is None else (2, 2))
        model = regard.build("image_transformer", **vars(config))
        torch.nn.init.zeros_(model.head.weight)  # all intensities are equally likely
        found = one.evaluate(model)
        assert found["bits_per_dim"] == pytest.approx(math.log2(levels), rel=1e-6)
        assert found["loss"] == pytest.approx(math.log(levels), rel=1e-6)
        assert found["images"] == len(one.dataset("val"))


def test_the_loss_is_the_negative_log_likelihood(pictures):
    one = task(pictures, levels=8, factor=2)
    model = regard.build("image_transformer", **vars(one.fit(TINY))).eval()
    pixels = torch.randint(256, (3, 3, 8, 8), dtype=torch.uint8)
    batch = ImageBatch(pixels, torch.zeros(3, dtype=torch.long))
    images, small = one.inputs(None, pixels, batch.labels)
    log_probs = model(images, small).log_softmax(-1).gather(-1, images[..., None])
    total, parts = one.loss(model, batch)
    torch.testing.assert_close(total, -log_probs.sum())
    assert parts["loss"] == total
    assert one.count(batch) == 3 * 8 * 8 * 3
    item = next(one.batches().start(StreamPosition()))
    assert item.count == 4 * 8 * 8 * 3  # so is the loss of training per dimension
    each = sum(intensity_loss(model(images[i : i + 1], small[i : i + 1]), images[i : i + 1]) for i in range(3))
    torch.testing.assert_close(total, each)


def test_levels_are_even_and_small_images_are_means():
    every = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16)
    assert torch.equal(from_levels(to_levels(every, 256), 256), every)
    for levels in (2, 16):
        assert torch.bincount(to_levels(every, levels).flatten()).tolist() == [256 // levels] * levels
    assert sorted(set(from_levels(to_levels(every, 2), 2).flatten().tolist())) == [0, 255]
    pixels = torch.tensor([[[[10, 20, 0, 255], [30, 43, 255, 255]]]], dtype=torch.uint8)
    assert reduce_images(pixels, 2).tolist() == [[[[26, 191]]]]  # of 25.75 and 191.25


def test_an_image_depends_on_its_seed_alone():
    torch.manual_seed(0)
    draw = ImageGenerator(regard.build("image_transformer", size="tiny", image_size=4, channels=3))
    several = draw([5, 6, 5])
    assert several[0].pixels.shape == (4, 4, 3)
    assert several[0].difference(several[2]) == 0
    assert several[0].difference(several[1]) > 0
    assert several[1].difference(draw(6)) == 0
    assert draw(5, temperature=0).difference(draw(6, temperature=0)) == 0  # the likeliest intensities
    assert draw(5, temperature=1e-6).difference(draw(5, temperature=0)) == 0
    for bad in (-1, 0.5, 1e300):
        with pytest.raises(BadInput, match="whole number"):
            draw(bad)


def test_enlarging_takes_images_of_its_size_only():
    torch.manual_seed(0)
    enlarge = SuperResolution(regard.build("image_transformer", size="tiny", condition_size=(2, 3)))
    small = Image.fromarray(np.arange(6, dtype=np.uint8).reshape(2, 3) * 40)
    found = enlarge([small, small], seed=3)
    assert found[0].pixels.shape == (6, 6)
    assert found[0].difference(found[1]) == 0
    assert found[0].difference(enlarge(small, seed=4)) > 0
    with pytest.raises(BadInput, match="expected 3 x 2 pixels, got 6 x 6"):
        enlarge(Image.new("L", (6, 6)))
    with pytest.raises(BadInput, match="use ImageGenerator"):
        SuperResolution(regard.build("image_transformer", size="tiny"))
    with pytest.raises(BadInput, match="use SuperResolution"):
        ImageGenerator(enlarge.model)


def test_a_factor_must_divide_the_image(pictures):
    with pytest.raises(BadInput, match="does not divide the 8 x 8 pixels"):
        task(pictures, factor=3)


def test_a_run_ends_as_images(pictures, tmp_path, capsys):
    run = tmp_path / "run"
    train(Recipe(TINY, image_generation.Config(levels=16), data(pictures), SHORT, "pixels"), run)
    assert evaluate(run, ["val"])["results"]["val"]["bits_per_dim"] < 4.5  # 4 is a model that knows nothing
    assert main(["run", str(run), "0", "7", "--out", str(tmp_path / "drawn"), "--device", "cpu"]) == 0
    assert "RGB image of 8 x 8 pixels" in capsys.readouterr().out
    draw = regard.load(run)
    assert isinstance(draw, ImageGenerator)
    assert np.array_equal(np.asarray(Image.open(tmp_path / "drawn" / "7.png")), draw(7).pixels)


def test_a_run_of_super_resolution_enlarges_a_file(pictures, tmp_path):
    run, small = tmp_path / "run", tmp_path / "small.png"
    train(Recipe(TINY, image_generation.Config(levels=16, factor=4), data(pictures), SHORT, "larger"), run)
    Image.new("RGB", (2, 2), (200, 90, 10)).save(small)
    assert main(["run", str(run), str(small), "--temperature", "0.8", "--out", str(tmp_path / "large.png")]) == 0
    assert Image.open(tmp_path / "large.png").size == (8, 8)
    assert isinstance(regard.load(run), SuperResolution)


def test_a_run_with_classes_draws_an_image_of_a_class(pictures, tmp_path):
    """Two classes, dark and light: the labels are read, stored with the model, and asked for by name."""
    config = Config(**SIZES["tiny"] | {"mixtures": 2})
    settings = Train(steps=60, warmup_steps=10, learning_rate=1e-2, device="cpu", save_interval=0, eval_interval=60)
    train(Recipe(config, image_generation.Config(levels=4, classes=True), data(pictures), settings), tmp_path / "run")
    draw = regard.load(tmp_path / "run" / "model")
    assert draw.labels == ["dark", "light"]
    dark, light = (draw(range(4), label=label) for label in ("dark", "light"))
    assert np.mean([image.pixels for image in dark]) + 80 < np.mean([image.pixels for image in light])
    with pytest.raises(BadInput, match="draws no 'grey'; it knows dark, light"):
        draw(0, label="grey")
    with pytest.raises(BadInput, match="trained without classes"):
        ImageGenerator(regard.build("image_transformer", size="tiny"))(0, label="dark")
    with pytest.raises(BadInput, match="from nothing"):
        task(pictures, classes=True, factor=2)
