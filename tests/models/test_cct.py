"""CCT: its sizes, its tokens, what sequence pooling weighs, and that any mechanism can stand in it."""

import pytest
import torch

from regard.attention.capture.watch import watch
from regard.models import build
from regard.models.cct import SIZES


def small(**settings):
    torch.manual_seed(1)
    model = build("cct", size="tiny", **settings).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model


# Millions, from the paper's tables 1 and 2 (quoted, not looked up again).
PUBLISHED = {"2-3x2": 0.28, "4-3x2": 0.48, "7-3x1": 3.76, "7-3x2": 3.85, "14-7x2": 22.36}


@pytest.mark.parametrize("size", PUBLISHED)
def test_sizes_have_the_published_parameters(size):
    with torch.device("meta"):
        counted = sum(p.numel() for p in build("cct", size=size).parameters())
    assert counted / 1e6 == pytest.approx(PUBLISHED[size], abs=0.01 if size == "14-7x2" else 0.03)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("image", [(32, 32), (33, 47), (224, 201)])
def test_there_is_a_token_for_every_stride_of_pixels(size, image):
    model = build("cct", size=size)
    with torch.no_grad():
        tokens = model.stem(torch.zeros(1, 3, *image))
    assert tuple(tokens.shape[1:3]) == tuple(-(-side // model.stem.stride[0]) for side in image)
    slots = model.stem.slots(torch.zeros(1, 3, *image))
    assert slots.cells.shape[2] == tokens.shape[1] * tokens.shape[2]
    assert slots.cells.max() == image[0] * image[1] - 1


def test_sequence_pooling_is_a_weighted_mean_and_can_be_watched():
    model = small()
    x = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    with torch.no_grad(), watch(model) as seen:
        pooled = model.pooled(x)
        tokens = model.grid(x).flatten(1, 2)
    weights = seen["pool"].weights[:, 0, 0]
    assert seen["pool"].kind == "cross"
    torch.testing.assert_close(weights.sum(1), torch.ones(2, dtype=torch.float64))
    torch.testing.assert_close(weights, model.pool.score(tokens)[..., 0].softmax(1))
    torch.testing.assert_close(torch.einsum("bn,bnc->bc", weights, tokens), pooled)
    assert set(seen) == {"pool", "encoder.blocks.0.mix", "encoder.blocks.1.mix"}


def test_the_second_norm_is_on_the_residual_path():
    block = small().encoder.blocks[0]
    x = torch.randn(2, 9, 48, dtype=torch.float64)
    with torch.no_grad():
        inner = block.feed_norm(x + block.mix(block.mix_norm(x)))
        torch.testing.assert_close(block(x), inner + block.feed(inner))


def test_without_positions_the_model_is_permutation_equivariant():
    model = small()
    with torch.no_grad():
        model.positions.table.zero_()
        tokens = torch.randn(2, 4, 6, 48, dtype=torch.float64)
        mixed = tokens.flatten(1, 2)[:, torch.randperm(24)].unflatten(1, (4, 6))
        pooled = [model.pool(model.encoder(model.sequence(each))) for each in (tokens, mixed)]
    torch.testing.assert_close(*pooled)


@pytest.mark.parametrize("attention", ["softmax(backend='eager')", ["softmax", "softmax(scale=0.5)"]])
def test_attention_is_a_part(attention):
    model, plain = small(attention=attention), small()
    x = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    plain.load_state_dict(model.state_dict())
    with torch.no_grad():
        assert torch.allclose(model(x), plain(x)) is isinstance(attention, str)
