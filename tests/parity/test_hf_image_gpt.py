"""transformers' ImageGPT and ours, from the same weights: values, gradients, maps, classes, colours, folders."""

import copy

import pytest
import torch

import regard
from regard.core.errors import BadInput, Unsupported
from regard.models.image_gpt import ImageGPT
from regard.weights.hf import image_gpt
from regard.weights.table import export_state_dict, import_state_dict

from .harness import gradients_equal, hf_peer, maps_equal, maps_of

transformers = pytest.importorskip("transformers")

SIDE, COLORS = 4, 20


def peer(kind="CausalImageModeling", **settings):
    """A tiny random ImageGPT in float64, every tensor of it away from its initial value."""
    small = {"vocab_size": COLORS + 1, "n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": SIDE**2}
    small |= {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "architectures": [f"ImageGPTFor{kind}"]}
    return hf_peer(getattr(transformers, f"ImageGPTFor{kind}"), transformers.ImageGPTConfig(**small | settings))


def tensors(theirs):
    colors = torch.rand(COLORS, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    return image_gpt.normalize_keys(theirs.state_dict()) | {"clusters": colors}


def pair(kind="CausalImageModeling", **settings):
    theirs = peer(kind, **settings)
    ours = ImageGPT(image_gpt.import_config(theirs.config.to_dict())).double().eval()
    import_state_dict(image_gpt.table(ours.config), tensors(theirs), ours)
    return theirs, ours


def shifted(images):
    return torch.cat([torch.full((len(images), 1), COLORS), images.flatten(1)[:, :-1]], 1)


SETTINGS = [{}, {"n_inner": 24}, {"activation_function": "gelu"}, {"layer_norm_epsilon": 1e-3}]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_logits_equal_those_of_image_gpt(settings):
    theirs, ours = pair(**settings)
    images = torch.randint(COLORS, (3, 1, SIDE, SIDE))
    with torch.no_grad():
        expected = theirs(shifted(images)).logits
        torch.testing.assert_close(ours(images).flatten(1, 3), expected, rtol=1e-10, atol=1e-10)


def test_loss_and_gradients_of_all_parameters_equal_those_of_image_gpt():
    theirs, ours = pair()
    images = torch.randint(COLORS, (3, 1, SIDE, SIDE))
    loss = torch.nn.functional.cross_entropy
    expected = loss(theirs(shifted(images)).logits.flatten(0, 1), images.flatten())
    found = loss(ours(images).flatten(0, 3), images.flatten())
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    expected.backward()
    found.backward()
    ours.palette.colors.grad = None
    assert gradients_equal(theirs, image_gpt.table(ours.config), ours) == 2 * 10 + 4


def test_attention_maps_equal_those_of_image_gpt():
    theirs, ours = pair()
    images = torch.randint(COLORS, (2, 1, SIDE, SIDE))
    with torch.no_grad():
        maps = theirs(shifted(images), output_attentions=True).attentions
    maps_equal(maps_of(maps, "decoder"), ours, images)


def test_classes_equal_those_of_image_gpt():
    theirs, ours = pair("ImageClassification", num_labels=5)
    images = torch.randint(COLORS, (3, 1, SIDE, SIDE))
    with torch.no_grad():
        torch.testing.assert_close(ours(images), theirs(images.flatten(1)).logits, rtol=1e-10, atol=1e-10)
        # numbers as the image processor makes them, from -1 to 1, are read as the nearest colours
        pixels = ours.palette.colors[images[:, 0]].movedim(-1, 1)
        torch.testing.assert_close(ours(2 * pixels - 1), ours(images))


def test_greedy_drawing_equals_that_of_transformers():
    from regard.decoding.beam_search import greedy_search

    theirs, ours = pair()
    begun = torch.cat([torch.full((2, 1), COLORS), torch.randint(COLORS, (2, 6))], 1)
    tokens = begun
    with torch.no_grad():
        while tokens.shape[1] <= SIDE**2:
            tokens = torch.cat([tokens, theirs(tokens).logits[:, -1].argmax(-1, keepdim=True)], 1)
    found = greedy_search(ours, begun, max_length=SIDE**2 - 6)
    assert [each.tokens for each in found] == tokens[:, 7:].tolist()


def test_nearest_colours_are_those_of_the_image_processor():
    pytest.importorskip("torchvision")
    from transformers.models.imagegpt.image_processing_imagegpt import color_quantize_torch

    _, ours = pair()
    pixels = torch.randint(256, (2, 3, 5, 7), dtype=torch.uint8)
    each = pixels.movedim(1, -1).flatten(0, 2).double() / 127.5 - 1
    expected = color_quantize_torch(each, 2 * ours.palette.colors - 1).view(2, 1, 5, 7)
    assert torch.equal(ours.quantize(pixels), expected)


def test_import_then_export_is_exact():
    theirs, ours = pair()
    back, wanted = export_state_dict(image_gpt.table(ours.config), ours), tensors(theirs)
    assert back.keys() == wanted.keys()
    assert all(torch.equal(back[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize("kind", ["CausalImageModeling", "ImageClassification"])
def test_folders_are_read_by_both_sides(kind, tmp_path):
    theirs, ours = pair(kind)
    image_gpt.save(tmp_path / "ours", copy.deepcopy(ours).float())
    again = getattr(transformers, f"ImageGPTFor{kind}").from_pretrained(tmp_path / "ours").eval()
    images = torch.randint(COLORS, (2, 1, SIDE, SIDE))
    read = images.flatten(1) if kind == "ImageClassification" else shifted(images)
    with torch.no_grad():
        torch.testing.assert_close(
            again(read).logits.flatten(1).double(), theirs(read).logits.flatten(1), rtol=1e-4, atol=1e-4
        )
    found = regard.load(tmp_path / "ours")
    assert type(found).__name__ == ("ImageClassifier" if kind == "ImageClassification" else "ImageGenerator")
    torch.testing.assert_close(found.model.palette.colors.double(), ours.palette.colors, rtol=0, atol=1e-6)
    if kind == "ImageClassification":
        assert found(torch.rand(3, 9, 9)).label.startswith("LABEL_")
    else:
        assert found(0).pixels.shape == (SIDE, SIDE, 3)


def test_what_does_not_fit_is_refused(tmp_path):
    _, ours = pair()
    with pytest.raises(Unsupported, match="not the pixels of a square"):
        image_gpt.import_config({"model_type": "imagegpt", "n_positions": 12})
    with pytest.raises(Unsupported, match="channels=3"):
        image_gpt.save(tmp_path / "grey", regard.build("image_gpt", size="tiny", channels=1))
    image_gpt.save(tmp_path / "wrong", copy.deepcopy(ours).float())
    (tmp_path / "wrong" / "preprocessor_config.json").write_text('{"clusters": [[0, 1, 2]]}')
    with pytest.raises(BadInput, match="must be 20 rows of 3 numbers"):
        regard.load(tmp_path / "wrong")
