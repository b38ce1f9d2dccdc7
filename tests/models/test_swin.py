"""Swin and Swin v2: published sizes, images of any size, batches, maps, and windows that move."""

from importlib import import_module

import pytest
import torch

from regard.attention.capture.watch import watch
from regard.core.errors import BadInput, RegardError
from regard.models import build, swinv2
from regard.tokens.patches import grid_size
from tests.long_params import rest_is_long

BOTH = ["swin", "swinv2"]
TINY = {
    "image_size": (26, 40),
    "patch_size": 2,
    "width": 12,
    "heads": (2, 3, 4),
    "layers": (2, 3, 2),
    "window_size": 4,
    "num_classes": 5,
}

# Tables 1 of the two papers, in millions; those of v2 as counted in the authors' repository.
PUBLISHED = {
    "swin": {"t": 28.3, "s": 49.6, "b": 87.8, "l": 196.5, "b384": 87.9, "l384": 196.7},
    "swinv2": {"t": 28.35, "s": 49.73, "b": 87.92, "l": 196.74, "b24": 87.92, "l24": 196.74},
}


def made(name, seed=0, **settings):
    """A small one, every tensor of it away from its initial value (a new v2 adds nothing to its input)."""
    torch.manual_seed(seed)
    model = build(name, **TINY | settings).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model


@pytest.mark.parametrize(("name", "size"), [(n, s) for n in BOTH for s in PUBLISHED[n]])
def test_parameters_are_as_many_as_published(name, size):
    with torch.device("meta"):
        count = sum(p.numel() for p in build(name, size=size).parameters())
    places = 2 if name == "swinv2" else 1
    assert round(count / 1e6, places) == PUBLISHED[name][size]


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("image", rest_is_long([(26, 40), (16, 16), (37, 51), (5, 70), (1, 1)], (37, 51), (1, 1)))
@pytest.mark.parametrize("padding", ["mask", "attend", "shifted"])
def test_images_of_any_size_work(name, image, padding):
    model, images = made(name, padding=padding), torch.randn(2, 3, *image).double()
    assert model(images).shape == (2, 5)
    assert torch.isfinite(model(images)).all()
    pyramid = model.features(images)
    assert [tuple(f.shape) for f in pyramid] == [
        (2, 12 * 2**stage, *grid_size(image, 2 * 2**stage)) for stage in range(3)
    ]
    assert model.grid(images).shape == (2, *grid_size(image, 8), 48)


@pytest.mark.parametrize("name", BOTH)
def test_the_published_models_have_strides_of_4_8_16_and_32(name):
    model = build(name, size="t", width=12, heads=(1, 2, 2, 4), layers=(1, 1, 1, 1)).eval()
    shapes = [tuple(f.shape[2:]) for f in model.features(torch.randn(1, 3, 64, 96))]
    assert shapes == [(16, 24), (8, 12), (4, 6), (2, 3)]


@pytest.mark.parametrize("name", BOTH)
def test_the_head_reads_the_pooled_vector_which_is_the_mean_of_the_grid(name):
    model, images = made(name), torch.randn(2, 3, 26, 40).double()
    torch.testing.assert_close(model.pooled(images), model.grid(images).flatten(1, 2).mean(1))
    torch.testing.assert_close(model(images), model.head(model.pooled(images)))
    last = model.features(images)[-1].permute(0, 2, 3, 1)
    torch.testing.assert_close(model.grid(images), model.norm(last))
    assert model.num_prefix_tokens == 0


@pytest.mark.parametrize("name", BOTH)
def test_without_classes_the_output_is_the_pooled_vector_and_any_channels_work(name):
    model, images = made(name, num_classes=0, channels=1), torch.randn(2, 1, 26, 40).double()
    assert model.head is None
    assert torch.equal(model(images), model.pooled(images))
    with pytest.raises(BadInput, match="1 channels"):
        model(torch.randn(2, 3, 26, 40))


@pytest.mark.parametrize("name", BOTH)
def test_batch_equals_singles(name):
    model, images = made(name), torch.randn(3, 3, 29, 37).double()
    singles = torch.cat([model(image[None]) for image in images])
    torch.testing.assert_close(model(images), singles, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", BOTH)
def test_every_parameter_learns(name):
    model = made(name, drop_path=0.0).train()
    model(torch.randn(2, 3, 26, 40).double()).square().sum().backward()
    assert not [n for n, p in model.named_parameters() if p.grad is None or p.grad.abs().max() == 0]


@pytest.mark.parametrize("name", BOTH)
def test_drop_path_acts_in_training_only(name):
    model, images = made(name, drop_path=0.9), torch.randn(2, 3, 26, 40).double()
    assert torch.equal(model(images), model(images))
    model.train()
    assert not torch.equal(model(images), model(images))


@pytest.mark.parametrize("name", BOTH)
def test_initial_outputs_have_a_reasonable_scale(name):
    model = build(name, size="tiny").eval()
    out = model.grid(torch.randn(2, 3, 32, 32))
    assert 0.5 < out.std() < 2
    assert model(torch.randn(4, 3, 32, 32)).abs().max() < 5


@pytest.mark.parametrize("name", BOTH)
def test_no_window_is_larger_than_the_grid_it_was_trained_on(name):
    model = made(name)  # grids of 13 x 20, 7 x 10, 4 x 5
    assert [stage.blocks[0].mix.window for stage in model.stages] == [(4, 4)] * 3
    small = made(name, image_size=(10, 40))  # 5 x 20, 3 x 10, 2 x 5
    assert [stage.blocks[0].mix.window for stage in small.stages] == [(4, 4), (3, 4), (2, 4)]


@pytest.mark.parametrize("name", BOTH)
def test_every_second_layer_is_shifted(name):
    assert [b.mix.shifted for stage in made(name).stages for b in stage.blocks] == [
        False, True, False, True, False, False, True,
    ]  # fmt: skip


@pytest.mark.parametrize("name", BOTH)
def test_watch_captures_all_layers_on_their_grids(name):
    model, images = made(name), torch.randn(2, 3, 26, 40).double()
    plain = model(images)
    with watch(model) as seen:
        assert torch.equal(model(images), plain)
    assert list(seen) == [f"stages.{s}.blocks.{b}.mix" for s, n in enumerate((2, 3, 2)) for b in range(n)]
    for trace, grid in zip(seen.values(), [(13, 20)] * 2 + [(7, 10)] * 3 + [(4, 5)] * 2, strict=True):
        operator = trace.operator()
        assert trace.geometry.keys.grid == grid
        assert operator.shape[-2:] == (grid[0] * grid[1],) * 2
        torch.testing.assert_close(operator.sum(-1), torch.ones_like(operator[..., 0]))


def test_window_biases_are_interchangeable():
    images = torch.randn(1, 3, 26, 40).double()
    assert made("swin", positions="continuous(hidden=8)")(images).shape == (1, 5)
    assert made("swinv2", positions="table")(images).shape == (1, 5)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"heads": (2, 4)}, "one value for each stage"),
        ({"padding": "atend"}, "atend"),
        ({"heads": (5, 6, 8)}, "not divisible by 5 heads"),
        ({"positions": "tables"}, "did you mean 'table'"),
    ],
)
def test_invalid_settings_raise_one_line(settings, said):
    with pytest.raises(RegardError, match=said):
        build("swin", **TINY | settings)


def test_change_window_keeps_the_bias_of_relative_positions():
    model = made("swinv2", image_size=32)  # grids of 16, 8 and 4
    moved = swinv2.change_window(model, 56, 7)
    assert moved.config.pretrained_window_sizes == (4, 4, 4)
    assert [stage.blocks[0].mix.window for stage in moved.stages] == [(7, 7)] * 3
    cells = [7 * (n // 4) + n % 4 for n in range(16)]
    for before, after in zip(model.stages, moved.stages, strict=True):
        small, large = before.blocks[1].mix.positions(), after.blocks[1].mix.positions()
        torch.testing.assert_close(large[:, cells][:, :, cells], small, rtol=1e-12, atol=1e-12)
    assert moved.norm.weight.dtype == torch.float64
    assert not moved.training
    assert swinv2.change_window(moved, 64, 8).config.pretrained_window_sizes == (
        4,
        4,
        4,
    )  # the first training's, however often it moves
    back = swinv2.change_window(moved, 32, 4)
    images = torch.randn(2, 3, 32, 32).double()
    torch.testing.assert_close(back(images), model(images), rtol=1e-12, atol=1e-12)


def test_a_model_whose_windows_were_a_whole_grid_is_unchanged_by_a_larger_window_on_the_same_image():
    model = made("swinv2", image_size=(8, 8), layers=(1,), heads=(2,), window_size=4)  # one window of 4 x 4
    images = torch.randn(2, 3, 8, 8).double()
    moved = swinv2.change_window(model, 16, 6)
    torch.testing.assert_close(moved(images), model(images), rtol=1e-12, atol=1e-12)  # 4 x 4 in a window of 6: masked


def test_change_window_needs_square_windows():
    model = made("swinv2", image_size=(16, 32))  # grids of 8 x 16, 4 x 8 and 2 x 4
    assert model.stages[2].blocks[0].mix.window == (2, 4)
    with pytest.raises(RegardError, match="2 x 4"):
        swinv2.change_window(model, 64, 8)


def test_change_window_needs_a_swinv2():
    with pytest.raises(RegardError, match="change_window needs a SwinV2, got a Swin"):
        swinv2.change_window(made("swin"), 64, 8)


@pytest.mark.parametrize("name", BOTH)
def test_sizes_are_settings_of_the_config(name):
    module = import_module(f"regard.models.{name}")
    for settings in module.SIZES.values():
        module.Config(**settings)
