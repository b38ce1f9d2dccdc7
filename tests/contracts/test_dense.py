"""Laws of all dense models, over the table: numbers for every pixel, at any size of image."""

from dataclasses import replace

import pytest
import torch

import regard
from regard.core.errors import BadInput
from regard.core.spec import resolve
from regard.models import MODELS, build
from regard.models.contract import DenseModel

ONE_OUTPUT = {"segmenter": {"decoder": "linear"}}  # settings for inverse depth
NAMES = [name for name in MODELS if issubclass(resolve(MODELS, name, "model"), DenseModel)]


def made(name, **settings):
    """A tiny one in float64, away from its initial weights."""
    torch.manual_seed(3)
    model = build(name, size="tiny", **settings).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def images(*shape):
    return torch.randn(shape, dtype=torch.float64)


@pytest.mark.parametrize("name", NAMES)
class TestEveryDenseModel:
    def test_answers_every_pixel_of_images_of_any_size(self, name):
        model = made(name, num_outputs=5)
        for size in ((32, 32), (48, 80), (37, 51), (7, 40)):
            with torch.no_grad():
                x = images(2, 3, *size)
                out = model(x)
                assert out.shape == (2, 5, *size)
                assert torch.equal(model(x), out)
            assert (out[0] - out[1]).abs().max() > 1e-4

    def test_a_batch_is_as_many_single_images(self, name):
        model, x = made(name), images(3, 3, 40, 33)
        with torch.no_grad():
            singles = torch.cat([model(one[None]) for one in x])
            torch.testing.assert_close(model(x), singles, rtol=1e-9, atol=1e-9)

    def test_of_no_images_gives_no_answers(self, name):
        model = made(name, num_outputs=4)
        for training in (False, True):
            assert model.train(training)(images(0, 3, 32, 32)).shape == (0, 4, 32, 32)

    def test_has_one_inverse_depth(self, name):
        assert made(name, num_outputs=1, **ONE_OUTPUT.get(name, {}))(images(2, 3, 32, 48)).shape == (2, 1, 32, 48)

    def test_features_are_maps_from_fine_to_coarse(self, name):
        model = made(name)
        assert "features" in model.forward_methods
        with torch.no_grad():
            found = model.features(images(2, 3, 64, 96))
        rows = [each.shape[2] for each in found]
        assert rows == sorted(rows, reverse=True)
        assert all(each.shape[2] * 96 == each.shape[3] * 64 for each in found)

    def test_every_weight_learns(self, name):
        model = made(name, num_outputs=4).train()
        (model(images(3, 3, 32, 32)) ** 3).sum().backward()
        learned = {n: p.grad for n, p in model.named_parameters() if p.requires_grad}
        assert [n for n, gradient in learned.items() if gradient is None or not gradient.any()] == []

    def test_a_new_head_has_other_outputs(self, name, tmp_path):
        model = made(name).float()
        before, x = {n: p for n, p in model.named_parameters() if not n.startswith("head.")}, torch.randn(1, 3, 32, 40)
        model.reset_head(7)
        assert all(p is before[n] for n, p in model.named_parameters() if not n.startswith("head."))
        regard.save(model, tmp_path / "m")
        with torch.no_grad():
            assert model(x).shape == (1, 7, 32, 40)
            assert torch.equal(regard.load(tmp_path / "m")(x), model(x))
        with pytest.raises(BadInput, match="at least 1"):
            model.reset_head(0)

    def test_reads_other_numbers_of_channels_and_refuses_a_wrong_one(self, name):
        model = made(name, channels=1)
        assert model(images(1, 1, 32, 32)).shape[0] == 1
        with pytest.raises(BadInput, match="channels"):
            model(images(1, 3, 32, 32))
        assert replace(model.config, num_outputs=9).num_outputs == 9
