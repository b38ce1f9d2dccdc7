"""Folders of transformers' GPT-2, in and out."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from regard.core.errors import BadInput
from regard.models.gpt import GPT, Config
from regard.tokens.tokenizer import Tokenizer
from regard.weights.folder import load_model
from regard.weights.hf import gpt2

transformers = pytest.importorskip("transformers")
transformers.utils.logging.disable_progress_bar()

ASKED = torch.tensor([[5, 6, 7, 0], [8, 9, 1, 2]])
CONFIG = Config(vocab=40, width=16, heads=2, layers=2, length=12, eos=39)


def model(**settings):
    made = GPT(replace(CONFIG, **settings)).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return made


@pytest.mark.parametrize(
    "settings", [{}, {"tied": False}, {"bias": False}, {"feedforward": "relu", "ffn": 24}], ids=str
)
def test_transformers_loads_saved_folders(tmp_path, settings):
    ours = model(**settings)
    gpt2.save(tmp_path / "m", ours)
    theirs, info = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "m", output_loading_info=True)
    assert not info["unexpected_keys"]
    assert not info["mismatched_keys"]
    assert not info["missing_keys"]
    with torch.no_grad():
        torch.testing.assert_close(theirs.eval()(ASKED).logits, ours(ASKED), rtol=1e-4, atol=1e-5)
    assert theirs.config.eos_token_id == 39


def test_folders_of_transformers_load(tmp_path):
    ours = model()
    gpt2.save(tmp_path / "a", ours)
    transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "a").save_pretrained(tmp_path / "b")
    found, text = gpt2.load(tmp_path / "b")
    assert text is None
    assert not found.training
    assert found.config == ours.config
    assert torch.equal(found(ASKED), ours(ASKED))


def test_a_file_of_a_bare_model_with_masks_loads(tmp_path):
    """As the first files that were published are."""
    ours = model()
    gpt2.save(tmp_path / "m", ours)
    state = {name.removeprefix("transformer."): x for name, x in load_file(tmp_path / "m/model.safetensors").items()}
    for layer in range(2):
        state[f"h.{layer}.attn.bias"] = torch.ones(12, 12).tril()[None, None]
    save_file(state, tmp_path / "m/model.safetensors")
    found, _ = gpt2.load(tmp_path / "m")
    assert torch.equal(found(ASKED), ours(ASKED))


def test_the_tokenizer_is_saved(tmp_path):
    text = Tokenizer.train(["a dog and a cat"], kind="word", size=20)
    gpt2.save(tmp_path / "m", model(), text)
    _, found = gpt2.load(tmp_path / "m")
    assert found.encode(["a cat"]) == text.encode(["a cat"])


def test_other_folders_raise(tmp_path):
    gpt2.save(tmp_path / "m", model())
    with pytest.raises(BadInput, match=r"regard\.weights\.hf\.gpt2\.load"):
        load_model(tmp_path / "m")
    (tmp_path / "m/model.safetensors").write_bytes(b"nothing")
    with pytest.raises(BadInput, match="damaged"):
        gpt2.load(tmp_path / "m")
    with pytest.raises(BadInput, match=r"no config\.json"):
        gpt2.load(tmp_path / "nowhere")
    (tmp_path / "m/notes.txt").write_text("mine")
    with pytest.raises(BadInput, match="holds other things"):
        gpt2.save(tmp_path / "m", model())


def test_a_saved_folder_can_be_overwritten(tmp_path):
    gpt2.save(tmp_path / "m", model())
    gpt2.save(tmp_path / "m", model(layers=1))
    assert json.loads((tmp_path / "m/config.json").read_text())["n_layer"] == 1
