"""Variational image generation: the bound of an evaluation, bits that stay, images of seeds, and a whole run."""

import io
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

import regard
from regard.cli import main
from regard.core.errors import BadInput
from regard.data.images.binarized_images import BinarizedImages, binarize
from regard.data.images.image_shards import ImageBatch
from regard.modalities.generated_image import GeneratedImage
from regard.models.draw import SIZES, Config
from regard.tasks.image import variational_image_generation
from regard.tasks.image.variational_image_generation import LatentImageGenerator, bound_parts
from regard.training import evaluate, train
from regard.training.recipe import Recipe, Train

TINY = Config(**SIZES["tiny"])
SHORT = Train(steps=6, warmup_steps=2, learning_rate=3e-3, eval_interval=3, save_interval=3, device="cpu")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    for name, low in (("dark", 0), ("light", 200)):
        (folder / name).mkdir()
        for number in range(10):
            Image.fromarray(rng.integers(low, low + 56, (8, 8), np.uint8)).save(folder / name / f"{number}.png")
    return folder


def data(pictures, **settings):
    return BinarizedImages(str(pictures), image_size=8, batch_size=4, val_fraction=0.2, grayscale=True, **settings)


def test_bits_have_the_probability_of_their_intensity_and_stay():
    pixels = torch.tensor([0, 51, 204, 255], dtype=torch.uint8).expand(4000, 1, 1, 4)
    bits = binarize(pixels, 3)
    assert set(bits.unique().tolist()) == {0, 255}
    share = bits.float().mean(0).flatten() / 255
    torch.testing.assert_close(share, torch.tensor([0.0, 0.2, 0.8, 1.0]), rtol=0, atol=0.03)
    assert share[0] == 0
    assert share[3] == 1
    assert torch.equal(bits, binarize(pixels, 3))
    assert not torch.equal(bits, binarize(pixels, 4))


def test_splits_are_binarised_once_by_the_seed(pictures):
    first, again, other = (data(pictures, seed=seed).load("train").pixels for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_the_bound_is_the_sum_of_its_parts_in_nats(pictures):
    task = variational_image_generation.Config().build(data(pictures))
    config = task.fit(TINY)
    assert (config.image_size, config.channels) == ((8, 8), 1)
    model = regard.build("draw", **vars(config)).eval()
    pixels = task.dataset("train").pixels[:3]
    noise = torch.randn(3, config.steps, config.latent)
    logits, kl = model((pixels == 255).float(), noise)
    parts = bound_parts(model, ImageBatch(pixels, torch.zeros(3)), noise)
    likelihood = torch.where(pixels == 255, F.logsigmoid(logits), F.logsigmoid(-logits)).sum()
    torch.testing.assert_close(parts["reconstruction"], -likelihood)
    torch.testing.assert_close(parts["kl"], kl.sum())
    with torch.no_grad():  # nothing is written and nothing told: every pixel costs log 2
        for part in (model.write.patch, model.posterior):
            for parameter in part.parameters():
                parameter.zero_()
    found = task.evaluate(model)
    assert found["bound"] == pytest.approx(64 * math.log(2), rel=1e-5)
    assert found["kl"] == 0
    assert found == task.evaluate(model)  # of fixed noise


def test_a_seed_draws_its_image_step_by_step():
    draw = LatentImageGenerator(regard.build("draw", size="tiny", channels=3))
    first, second = draw([4, 5])
    assert first.frames.shape == (3, 8, 8, 3)
    assert first.difference(draw(4)) == 0
    assert first.difference(second) > 0
    assert draw(4, temperature=0).difference(draw(5, temperature=0)) == 0
    with pytest.raises(BadInput, match="whole number"):
        draw(1.5)


def test_frames_become_a_gif_and_survive_json():
    frames = np.arange(3 * 4 * 5, dtype=np.uint8).reshape(3, 4, 5)
    image = GeneratedImage(frames[-1], frames)
    with Image.open(io.BytesIO(image.to_gif(side=10))) as moving:
        assert (moving.n_frames, moving.size) == (3, (10, 8))
        for number, frame in enumerate(frames):
            moving.seek(number)
            assert np.array_equal(np.asarray(moving.convert("L"))[::2, ::2], frame)
    again = GeneratedImage.from_json(image.to_json())
    assert np.array_equal(again.frames, frames)
    with pytest.raises(BadInput, match="not drawn in steps"):
        GeneratedImage(frames[0]).to_gif()
    with pytest.raises(BadInput, match="last of the frames"):
        GeneratedImage(frames[0], frames)


def test_a_run_trains_evaluates_and_draws_files(pictures, tmp_path, capsys):
    run = tmp_path / "run"
    train(Recipe(TINY, variational_image_generation.Config(), data(pictures), SHORT, "draw"), run)
    assert 0 < evaluate(run, ["val"])["results"]["val"]["bound"] < 64
    for name in ("seven.gif", "seven.png"):
        assert main(["run", str(run), "7", "--out", str(tmp_path / name), "--device", "cpu"]) == 0
    assert "grey image of 8 x 8 pixels in 3 steps" in capsys.readouterr().out
    draw = regard.load(run)
    assert isinstance(draw, LatentImageGenerator)
    with Image.open(tmp_path / "seven.gif") as moving, Image.open(tmp_path / "seven.png") as still:
        assert moving.n_frames == 3
        assert np.array_equal(np.asarray(still), draw(7).pixels)
