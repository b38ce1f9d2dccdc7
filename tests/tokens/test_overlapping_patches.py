import pytest
import torch

from regard.core.errors import BadInput
from regard.tokens.overlapping_patches import OverlappingPatchEmbedding


@pytest.mark.parametrize("clips", [False, True])
@pytest.mark.parametrize("patch", [1, 2, 4])
@pytest.mark.parametrize("sides", [(13, 8), (5, 9), (1, 1)])
def test_a_token_depends_on_the_pixels_of_its_slot_and_no_others(double, clips, patch, sides):
    stem = OverlappingPatchEmbedding(2, 3, patch, clips)
    shape = (*([3] if clips else []), *sides)
    images = torch.randn(1, 2, *shape, requires_grad=True)
    tokens = stem(images)
    assert tokens.shape == (1, *stem.grid_size(shape), 3)
    slots = stem.slots(images)
    assert slots.grid == shape
    for n, token in enumerate(tokens.flatten(1, -2)[0]):
        (pull,) = torch.autograd.grad(token.square().sum(), images, retain_graph=True)
        seen = pull.abs().sum((0, 1)).flatten().nonzero().flatten().tolist()
        assert seen == sorted(cell for cell in slots.cells[0, 0, n].tolist() if cell >= 0)


def test_all_tokens_together_count_every_pixel_alike(double):
    stem, images = OverlappingPatchEmbedding(1, 2, 4), torch.zeros(1, 1, 20, 24)
    counted = stem.slots(images).scatter(torch.ones(1, 1, 5 * 6)).view(20, 24)
    torch.testing.assert_close(counted[4:17, 4:21], torch.full((13, 17), 1 / 16))  # at the edge a neighbour is missing


def test_invalid_images_raise():
    stem = OverlappingPatchEmbedding(3, 4, 4)
    for given in (torch.zeros(1, 1, 8, 8), torch.zeros(3, 8, 8), torch.zeros(1, 3, 2, 8, 8)):
        with pytest.raises(BadInput, match="B C Y X with 3 channels"):
            stem(given)
    with pytest.raises(BadInput, match="normalised floats"):
        stem(torch.zeros(1, 3, 8, 8, dtype=torch.uint8))
    with pytest.raises(BadInput, match="clips B C T Y X"):
        OverlappingPatchEmbedding(3, 4, 4, clips=True)(torch.zeros(1, 3, 8, 8))
