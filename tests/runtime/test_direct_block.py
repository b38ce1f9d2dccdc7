"""Encoder blocks of packed models run directly, and hand back every call that asks for more."""

import pytest
import torch

import regard
from regard.models import build
from regard.runtime import inference
from regard.runtime.direct_block import SHORT, DirectBlock


@pytest.fixture(autouse=True)
def _small_is_large(monkeypatch):
    monkeypatch.setattr(inference, "MIN_WEIGHTS", 0)


def bert(**settings):
    torch.manual_seed(3)
    sizes = {"vocab": 50, "width": 24, "heads": 3, "ffn": 40, "layers": 2, "length": 3 * SHORT}
    model = build("bert", **sizes | settings).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def direct_blocks(model):
    return [block.forward for block in model.encoder.blocks if isinstance(block.forward, DirectBlock)]


def pack(model):
    if not inference._can_pack():
        pytest.skip("oneDNN does not pack here")
    return inference.pack_weights(model)


def test_a_direct_block_gives_the_same_outputs():
    for length in (1, 7, SHORT + 5):
        model, tokens = bert(), torch.randint(3, 50, (3, length))
        lengths = torch.tensor([length, max(1, length - 3), 1])
        expected = [model.hidden(tokens), model.hidden(tokens, None, lengths)]
        packed = pack(model)
        assert len(direct_blocks(packed)) == 2
        with torch.inference_mode():
            found = [packed.hidden(tokens), packed.hidden(tokens, None, lengths)]
        is_token = torch.arange(length) < lengths[:, None]
        assert torch.allclose(found[0], expected[0], atol=2e-5)
        assert torch.allclose(found[1][is_token], expected[1][is_token], atol=2e-5)


def test_blocks_with_the_norm_first_do_too():
    model = build("vit", image_size=12, patch_size=4, width=24, heads=3, layers=2, ffn=40, num_classes=5).eval()
    images = torch.rand(2, 3, 12, 12)
    expected = model(images)
    packed = pack(model)
    assert len(direct_blocks(packed)) == 2
    with torch.inference_mode():
        assert torch.allclose(packed(images), expected, atol=2e-5)


def test_concatenated_texts_stay_apart():
    model, lengths = bert(), torch.tensor([3, 5, 4])
    tokens = torch.randint(3, 50, (12,))
    expected = model.hidden_packed(tokens, lengths)
    with torch.inference_mode():
        assert torch.allclose(pack(model).hidden_packed(tokens, lengths), expected, atol=2e-5)


def test_watched_and_hooked_parts_are_called():
    model = pack(bert())
    tokens = torch.randint(3, 50, (2, 9))
    with torch.inference_mode():
        plain = model.hidden(tokens)
        with regard.watch(model) as seen:
            watched = model.hidden(tokens)
        assert len(seen.traces("self")) == 2
        assert torch.allclose(watched, plain, atol=2e-5)
        calls = []
        for part in (
            model.encoder.blocks[1].mix_norm,
            model.encoder.blocks[0].feed,
            model.encoder.blocks[0].mix.attend,
        ):
            with part.register_forward_hook(lambda *_: calls.append(1)):
                model.hidden(tokens)
    assert len(calls) == 3


def test_blocks_with_more_in_them_are_left_alone():
    for settings in ({"positions": "rotary"}, {"positions": "alibi"}):
        model = bert(**settings)
        tokens = torch.randint(3, 50, (2, 9))
        expected = model.hidden(tokens)
        with torch.inference_mode():
            assert torch.allclose(pack(model).hidden(tokens), expected, atol=2e-5)
    for settings in ({"attention": "linear"}, {"feedforward": "swiglu"}):
        assert not direct_blocks(pack(bert(**settings)))
