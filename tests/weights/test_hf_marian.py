"""Folders of transformers' Marian models, in and out."""

import json
import os
import pickle
from dataclasses import replace

import pytest
import torch

from regard.core.errors import BadInput, RegardError, Unsupported
from regard.models.transformer import Config, Transformer
from regard.tokens.tokenizer import Tokenizer
from regard.weights.hf import marian
from regard.weights.table import export_state_dict, import_state_dict

transformers = pytest.importorskip("transformers")
transformers.utils.logging.disable_progress_bar()

ASKED = torch.tensor([[5, 6, 7, 0]]), torch.tensor([[39, 8, 9]])
CONFIG = Config(
    vocab=40,
    width=16,
    heads=2,
    ffn=24,
    encoder_layers=2,
    decoder_layers=1,
    feedforward="silu",
    positions="sinusoidal(layout='halves')",
    length=32,
    head_bias=True,
    pad=39,
    bos=39,
    eos=0,
)


def model(**settings):
    made = Transformer(replace(CONFIG, **settings)).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return made


def answer(theirs):
    with torch.no_grad():
        return theirs(input_ids=ASKED[0], decoder_input_ids=ASKED[1]).logits


@pytest.mark.parametrize(
    "settings",
    [{}, {"head_bias": False}, {"feedforward": "relu", "activation_dropout": 0.2}, {"tied": False}],
    ids=str,
)
def test_transformers_loads_saved_folders(tmp_path, settings):
    ours = model(**settings)
    marian.save(tmp_path / "m", ours)
    theirs, info = transformers.MarianMTModel.from_pretrained(tmp_path / "m", output_loading_info=True)
    assert not info["unexpected_keys"]
    assert not info["mismatched_keys"]
    assert all("embed_positions" in name for name in info["missing_keys"])
    torch.testing.assert_close(answer(theirs.eval()), ours(*ASKED), rtol=1e-4, atol=1e-5)
    assert theirs.config.decoder_start_token_id == 39
    written = theirs.generate(input_ids=ASKED[0], num_beams=2, max_new_tokens=6)
    assert 39 not in written[0, 1:].tolist()


def test_folders_of_transformers_load(tmp_path):
    ours = model()
    marian.save(tmp_path / "a", ours)
    transformers.MarianMTModel.from_pretrained(tmp_path / "a").save_pretrained(tmp_path / "b")
    found, text = marian.load(tmp_path / "b")
    assert text is None
    assert not found.training
    assert found.config == ours.config
    assert torch.equal(found(*ASKED), ours(*ASKED))


def test_the_tokenizer_is_saved(tmp_path):
    text = Tokenizer.train(["a dog and a cat"], kind="word", size=20)
    marian.save(tmp_path / "m", model(), text)
    _, found = marian.load(tmp_path / "m")
    assert found.encode(["a cat"]) == text.encode(["a cat"])


def test_only_folders_of_transformers_are_replaced(tmp_path):
    marian.save(tmp_path / "m", model())
    marian.save(tmp_path / "m", model())
    (tmp_path / "m" / "notes.txt").write_text("mine")
    with pytest.raises(BadInput, match="holds other things"):
        marian.save(tmp_path / "m", model())


def pickled(folder, value):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(marian.export_config(CONFIG)))
    torch.save(value, folder / "pytorch_model.bin")


def test_pickled_files_load_without_executing_code(tmp_path):
    ours = model()
    pickled(tmp_path / "m", export_state_dict(marian.table(ours.config), ours))
    found, _ = marian.load(tmp_path / "m")
    assert torch.equal(found(*ASKED), ours(*ASKED))


class Trap:
    def __reduce__(self):
        return os.mkdir, ("sprung",)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_a_pickle_with_code_raises(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pickled(tmp_path / "m", {"model.shared.weight": Trap()})
    with pytest.raises(BadInput, match=r"pytorch_model\.bin is damaged or no file of tensors"):
        marian.load(tmp_path / "m")
    (tmp_path / "m" / "pytorch_model.bin").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(BadInput, match=r"pytorch_model\.bin is damaged or no file of tensors"):
        marian.load(tmp_path / "m")
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("value", [[torch.zeros(2)], {"a": 3}, {3: torch.zeros(2)}])
def test_a_file_without_tensors_raises(tmp_path, value):
    pickled(tmp_path / "m", value)
    with pytest.raises(BadInput):
        marian.load(tmp_path / "m")


def test_truncated_and_missing_files_raise(tmp_path):
    with pytest.raises(BadInput, match=r"there is no config\.json"):
        marian.load(tmp_path / "nowhere")
    marian.save(tmp_path / "m", model())
    file = tmp_path / "m" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:2000])
    with pytest.raises(BadInput, match=r"model\.safetensors is damaged"):
        marian.load(tmp_path / "m")
    file.unlink()
    with pytest.raises(BadInput, match=r"there is no model\.safetensors"):
        marian.load(tmp_path / "m")


def test_a_config_with_other_layers_raises_with_both_lists(tmp_path):
    marian.save(tmp_path / "m", model())
    said = json.loads((tmp_path / "m" / "config.json").read_text())
    (tmp_path / "m" / "config.json").write_text(json.dumps(said | {"encoder_layers": 1, "decoder_layers": 2}))
    with pytest.raises(BadInput, match=r"model\.encoder\.layers\.1\.fc1\.weight.*decoder\.blocks\.1\.feed\.up\.weight"):
        marian.load(tmp_path / "m")


@pytest.mark.parametrize(
    ("said", "match"),
    [
        ({"model_type": "bart"}, "'bart'"),
        ({"scale_embedding": False}, "scale_embedding"),
        ({"share_encoder_decoder_embeddings": False}, "share_encoder_decoder_embeddings"),
        ({"normalize_before": True}, "normalize_before"),
        ({"decoder_ffn_dim": 99}, "ffn_dim"),
        ({"activation_function": "tanh"}, "tanh"),
        ({"eos_token_id": [0, 1]}, "'eos'"),
        ({"pad_token_id": None}, "'pad'"),
    ],
    ids=str,
)
def test_unsupported_checkpoints_raise(said, match):
    with pytest.raises(RegardError, match=match):
        marian.import_config(marian.export_config(CONFIG) | said)


def test_missing_fields_have_the_defaults_of_transformers():
    theirs = transformers.MarianConfig(scale_embedding=True).to_dict()
    assert marian.import_config({"model_type": "marian", "scale_embedding": True}) == marian.import_config(theirs)


@pytest.mark.parametrize(
    "settings",
    [{"norm": "pre"}, {"norm_kind": "rms"}, {"kv_heads": 1}, {"feedforward": "swiglu"}, {"positions": "rotary"}],
    ids=str,
)
def test_models_that_marian_cannot_represent_raise(tmp_path, settings):
    with pytest.raises(Unsupported, match="Marian needs"):
        marian.save(tmp_path / "m", model(**settings))


def test_interleaved_sinusoids_export_to_a_module_but_not_to_a_file(tmp_path):
    ours = model(positions="sinusoidal")
    with pytest.raises(Unsupported, match="layout"):
        marian.save(tmp_path / "m", ours)
    theirs = transformers.MarianMTModel(transformers.MarianConfig(**marian.export_config(ours.config))).eval()
    theirs.load_state_dict(export_state_dict(marian.table(ours.config), ours))
    torch.testing.assert_close(answer(theirs), ours(*ASKED), rtol=1e-4, atol=1e-5)


def test_positions_of_another_layout_raise():
    ours = model(positions="sinusoidal")
    state = export_state_dict(marian.table(ours.config), ours)
    with pytest.raises(BadInput, match="is not the table that SinusoidalPositions computes"):
        import_state_dict(marian.table(CONFIG), state, model())
