"""ImageGPT: no pixel sees the later ones, colours in and out, pictures completed, and whole runs."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import regard
from regard.core.errors import BadInput
from regard.data.images.image_dataset import ImageDataset
from regard.decoding.beam_search import greedy_search
from regard.models.image_gpt import SIZES, Config
from regard.tasks.image import image_classification, image_generation
from regard.tasks.image.image_generation import ImageGenerator
from regard.tokens.color_palette import ColorPalette, lattice
from regard.training import train
from regard.training.recipe import Recipe, Train

TINY = Config(**SIZES["tiny"])
SHORT = Train(steps=4, warmup_steps=1, learning_rate=3e-3, eval_interval=4, save_interval=4, device="cpu")


def tiny(**settings):
    torch.manual_seed(0)
    model = regard.build("image_gpt", size="tiny", **settings).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    for name, low in (("dark", 0), ("light", 200)):
        (folder / name).mkdir()
        for number in range(10):
            Image.fromarray(rng.integers(low, low + 56, (5, 5, 3), np.uint8)).save(folder / name / f"{number}.png")
    return folder


def test_no_pixel_sees_itself_or_a_later_one():
    model = tiny()
    images = torch.randint(12, (1, 1, 5, 5))
    changed = images.clone()
    changed[0, 0, 2, 3] = (changed[0, 0, 2, 3] + 1) % 12  # pixel 13
    with torch.no_grad():
        before, after = (model(x).flatten(1, 3)[0] for x in (images, changed))
    assert torch.equal(before[:14], after[:14])
    assert not torch.allclose(before[14:], after[14:])


def test_steps_equal_one_pass():
    model = tiny()
    images = torch.randint(12, (2, 1, 5, 5))
    with torch.no_grad():
        tokens, whole = model.tokens(images), model(images).flatten(1, 3)
        first, state = model.start(model.begin(2), capacity=25)
        found = []
        for token in [first, *tokens[:, :-1, None].unbind(1)]:
            logits, state = model.step(token, state)
            found.append(logits[:, 0])
        torch.testing.assert_close(torch.stack(found, 1), whole)
        with pytest.raises(BadInput, match="25 tokens"):
            model.step(first, state)


def test_images_of_numbers_become_their_nearest_colours():
    model = tiny(mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7))
    colors = torch.randint(12, (2, 1, 5, 5))
    pixels = model.palette.colors[colors[:, 0]].movedim(-1, 1)
    mean, std = (torch.tensor(x, dtype=torch.float64)[:, None, None] for x in ((0.1, 0.2, 0.3), (0.5, 0.6, 0.7)))
    assert torch.equal(model.tokens((pixels - mean) / std), colors.flatten(1))
    assert torch.equal(model.quantize(model.colored(colors)), colors)


def test_grey_levels_and_lattices_are_spread_evenly():
    torch.testing.assert_close(lattice(5, 1)[:, 0], torch.tensor([0, 0.25, 0.5, 0.75, 1]))
    assert lattice(8, 3).tolist() == [[a, b, c] for a in (0.0, 1.0) for b in (0.0, 1.0) for c in (0.0, 1.0)]
    assert len(lattice(512, 3).unique(dim=0)) == 512


def test_a_palette_finds_the_colours_that_there_are():
    palette = ColorPalette(4, 3)
    centers = torch.tensor([[0.1, 0.1, 0.9], [0.8, 0.2, 0.1], [0.5, 0.9, 0.5], [0.0, 0.0, 0.0]])
    palette.fit(centers.repeat_interleave(50, 0))
    assert sorted(palette.colors.tolist()) == pytest.approx(np.array(sorted(centers.tolist())), abs=1e-6)
    spread = torch.rand(500, 3, generator=torch.Generator().manual_seed(1))

    def error():
        own = palette.nearest(spread.T[None, :, :, None]).flatten()
        brute = torch.cdist(spread, palette.colors).argmin(1)
        assert torch.equal(own, brute)
        return (spread - palette.colors[own]).square().sum(1).mean()

    before = error()
    palette.fit(spread)
    assert error() < 0.7 * before


def test_the_upper_rows_of_a_picture_stay():
    model = tiny().float()
    draw = ImageGenerator(model)
    picture = torch.randint(256, (5, 5, 3), dtype=torch.uint8).numpy()
    first, second, likeliest = (*draw.complete(picture, 2, seeds=(0, 1)), draw.complete(picture, 2, temperature=0)[0])
    kept = model.colored(model.quantize(torch.from_numpy(picture).permute(2, 0, 1)[None]))[0].permute(1, 2, 0).numpy()
    for found in (first, second, likeliest):
        assert (found.pixels[:2] == kept[:2]).all()
    assert (first.pixels[2:] != second.pixels[2:]).any()
    tokens = model.tokens(model.quantize(torch.from_numpy(picture).permute(2, 0, 1)[None]))[:, :10]
    (rest,) = greedy_search(model, torch.cat([model.begin(1), tokens], 1), max_length=15)
    drawn = model.colored(model.images(torch.cat([tokens, torch.tensor([rest.tokens])], 1)))
    assert (likeliest.pixels == drawn[0].permute(1, 2, 0).numpy()).all()
    with pytest.raises(BadInput, match="rows must be from 0 to 4"):
        draw.complete(picture, 5)


def test_bad_input_is_one_line():
    model = tiny()
    for wrong in (torch.zeros(1, 3, 4, 5), torch.zeros(1, 3, 5, 5, dtype=torch.long), torch.zeros(1, 1, 5, 5)):
        with pytest.raises(BadInput, match="images must be numbers of shape"):
            model(wrong)
    with pytest.raises(BadInput, match="colour ids"):
        model(torch.full((1, 1, 5, 5), 12))
    with pytest.raises(BadInput, match="draws nothing"):
        tiny(num_classes=3).start(torch.zeros(1, 1, dtype=torch.long), capacity=2)


def test_a_run_draws_pictures_of_its_palette_and_classes_begin_from_it(pictures, tmp_path):
    data = ImageDataset(str(pictures), image_size=5, batch_size=4, val_fraction=0.2)
    train(Recipe(TINY, image_generation.Config(), data, SHORT, "pixels"), tmp_path / "drawn")
    draw = regard.load(tmp_path / "drawn")
    found = draw(3)
    assert found.pixels.shape == (5, 5, 3)
    palette = draw.model.palette.colors
    assert not torch.equal(palette, lattice(12, 3))  # fitted to the training images
    colors = {tuple(row) for row in (255 * palette).round().byte().tolist()}
    assert {tuple(pixel) for pixel in found.pixels.reshape(-1, 3).tolist()} <= colors
    from_it = replace(SHORT, init_from=str(tmp_path / "drawn"))
    train(Recipe(TINY, image_classification.Config(), data, from_it, "classes"), tmp_path / "classes")
    classify = regard.load(tmp_path / "classes")
    assert classify(pictures / "dark" / "0.png").label in ("dark", "light")
    assert torch.equal(classify.model.palette.colors, palette)
    assert classify.model.config.mean == data.mean


def test_sizes_are_the_published_ones():
    with torch.device("meta"):
        count = {size: sum(p.numel() for p in regard.build("image_gpt", size=size).parameters()) for size in SIZES}
    assert 76e6 < count["small"] < 77e6  # the paper's 76, 455 and 1,362 million
    assert 455e6 < count["medium"] < 456e6
    assert 1.36e9 < count["large"] < 1.37e9
