"""Patches: a convolution is cut and embed, and every pixel is in one patch."""

import pytest
import torch

from regard.blocks import STEMS
from regard.core.errors import BadInput
from regard.core.spec import build_part, resolve
from regard.tokens.patches import (
    NormalizedPatchEmbedding,
    PatchEmbedding,
    check_images,
    grid_size,
    patchify,
    pixel_slots,
)

SIZES = [((12, 18), 6), ((7, 5), (3, 2)), ((3, 3), 8), ((20, 9), (4, 9))]


@pytest.mark.parametrize(("size", "patch"), SIZES, ids=str)
def test_the_convolution_equals_patchify_and_embed(size, patch):
    part = PatchEmbedding(5, 11, patch).double()
    x = torch.randn(2, 5, *size, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(part(x), part.forward_unfolded(x), rtol=1e-12, atol=1e-12)
    pull = torch.randn_like(part(x))
    one = torch.autograd.grad((part(x) * pull).sum(), [x, *part.parameters()])
    other = torch.autograd.grad((part.forward_unfolded(x) * pull).sum(), [x, *part.parameters()])
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_the_convolution_equals_torch_unfold_and_a_linear_map():
    """By torch's own unfold, which knows nothing of ours."""
    part = PatchEmbedding(3, 7, (4, 6)).double()
    x = torch.randn(2, 3, 12, 18, dtype=torch.float64)
    rows = torch.nn.functional.unfold(x, (4, 6), stride=(4, 6)).mT  # B N (C P P)
    expected = rows @ part.embed.weight.flatten(1).mT + part.embed.bias
    torch.testing.assert_close(part(x).flatten(1, 2), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("size", "patch"), SIZES, ids=str)
@pytest.mark.parametrize("kind", ["patches", "normed"])
def test_a_pixel_changes_only_its_own_token(kind, size, patch):
    """A change in one pixel changes the token whose slot holds it, and no other."""
    part = build_part(STEMS, kind, "stem", channels=1, width=13, patch=patch).double()
    x = torch.randn(1, 1, *size, dtype=torch.float64)
    slots = part.slots(x)
    before = part(x)
    assert before.shape == (1, *grid_size(size, patch), 13)
    for pixel in range(0, size[0] * size[1], 5):
        other = x.clone()
        other.view(-1)[pixel] += 1
        changed = (part(other) != before).any(-1).flatten().nonzero().flatten().tolist()
        assert changed == (slots.cells[0, 0] == pixel).any(-1).nonzero().flatten().tolist()


@pytest.mark.parametrize(("size", "patch"), SIZES, ids=str)
def test_every_pixel_is_in_exactly_one_patch(size, patch):
    found = pixel_slots(torch.zeros(2, 3, *size), PatchEmbedding(3, 4, patch).stride)
    assert found.grid == size
    real = found.cells[found.cells >= 0]
    assert sorted(real.tolist()) == list(range(size[0] * size[1]))
    there = (found.cells >= 0).double().mean(-1)  # of a patch that the edge cuts, not all
    assert torch.allclose(found.shares(torch.float64).sum(-1), there)


def test_gathering_pixels_by_slots_is_the_mean_of_the_patch():
    x = torch.rand(1, 1, 6, 8)
    slots = pixel_slots(x, (3, 4))
    means = x.flatten()[slots.cells].mean(-1)
    assert torch.allclose(means.flatten(), patchify(x, (3, 4)).mean(-1).flatten())


def test_normalised_patches_do_not_depend_on_brightness():
    part = NormalizedPatchEmbedding(3, 8, 4).double()
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    torch.testing.assert_close(part(3 * x + 2), part(x), rtol=1e-4, atol=1e-4)  # but for the norm's eps


def test_uint8_images_raise():
    with pytest.raises(BadInput, match="normalised floats, got uint8"):
        check_images(torch.zeros(1, 3, 32, 32, dtype=torch.uint8), 3)


@pytest.mark.parametrize("name", STEMS)
def test_stems_raise_for_invalid_images(name):
    part = build_part(STEMS, name, "stem", channels=3, width=32, patch=4 if name != "hybrid" else 1)
    assert callable(resolve(STEMS, name, "stem"))
    assert len(part.stride) == 2
    with pytest.raises(BadInput, match="3 channels, got shape"):
        part(torch.randn(1, 1, 32, 32))
    with torch.no_grad():
        tokens = part.eval()(torch.randn(1, 3, 40, 32))
    assert tokens.shape == (1, *grid_size((40, 32), part.stride), 32)
