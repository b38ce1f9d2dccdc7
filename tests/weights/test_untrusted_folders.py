"""Folders from strangers: whatever is in them, one clear sentence, at once, and little memory."""

import json
import logging
import shutil
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import regard
from regard.core.errors import BadInput, RegardError
from regard.models import build
from regard.tokens.tokenizer import MAX_EXPANSION, Tokenizer
from regard.weights.folder import building, read_tensors
from regard.weights.hf import bert, gpt2, marian, t5
from regard.weights.hf import swin as hf_swin
from regard.weights.hf import vit as hf_vit
from tests.long_params import rest_is_long

TEXT = ["the dog and the cat"]


def hf_folder(kind, path):
    """A tiny folder of transformers, written here."""
    if kind == "vit":
        hf_vit.save(path, build("vit", num_classes=3, image_size=16, patch_size=8, width=8, heads=2, layers=1))
    elif kind == "swin":
        sizes = {"width": 8, "heads": (1, 2), "layers": (1, 1), "window_size": 2, "patch_size": 4}
        hf_swin.save(path, build("swin", num_classes=3, image_size=16, **sizes))
    elif kind == "bert":
        text = Tokenizer.train(TEXT, kind="bert", size=40)
        bert.save(path, build("bert", vocab=text.size, width=8, heads=2, layers=1, length=20, head="tags(3)"), text)
    else:
        text = Tokenizer.train(TEXT, kind="bpe", size=40)
        sizes = {"vocab": text.size, "width": 8, "heads": 2}
        if kind == "gpt2":
            gpt2.save(path, build("gpt", **sizes, layers=1, length=16), text)
        elif kind == "t5":
            t5.save(path, build("t5", **sizes, head_dim=4, ffn=16, encoder_layers=1, decoder_layers=1), text)
        else:
            model = build("transformer", **sizes, ffn=16, encoder_layers=1, decoder_layers=1, head_bias=True,
                positions="sinusoidal(layout='halves')")  # fmt: skip
            marian.save(path, model, text)
    return path


KINDS = ["bert", "gpt2", "t5", "marian", "vit", "swin"]
LAYERS = {"bert": "num_hidden_layers", "gpt2": "n_layer", "t5": "num_layers", "marian": "decoder_layers",
    "vit": "num_hidden_layers", "swin": "depths"}  # fmt: skip
WIDTHS = {"bert": "type_vocab_size", "gpt2": "n_positions", "t5": "vocab_size", "marian": "vocab_size",
    "vit": "image_size", "swin": "embed_dim"}  # fmt: skip


def change(file, **fields):
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


@pytest.mark.parametrize("kind", KINDS)
def test_sizes_that_the_weights_do_not_have_are_refused_at_once(kind, tmp_path):
    place = hf_folder(kind, tmp_path / "m")
    regard.load(place)
    config = (place / "config.json").read_text()
    for fields in (
        {LAYERS[kind]: [10**9, 1] if kind == "swin" else 10**9},
        {WIDTHS[kind]: 8 * 10**6},
        {WIDTHS[kind]: 10**15},
    ):
        (place / "config.json").write_text(config)
        change(place / "config.json", **fields)
        begin = time.perf_counter()
        with pytest.raises(RegardError) as error:
            regard.load(place)
        assert time.perf_counter() - begin < 5
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(("field", "value"), [("layers", 10**9), ("vocab", 10**8), ("vocab", 10**17), ("ffn", 10**12)])
def test_own_folders_are_compared_with_their_weights_too(field, value, tmp_path):
    regard.save(build("gpt", vocab=40, width=8, heads=2, layers=1, length=16), tmp_path / "m")
    said = json.loads((tmp_path / "m/config.json").read_text())
    said["config"][field] = value
    (tmp_path / "m/config.json").write_text(json.dumps(said))
    begin = time.perf_counter()
    with pytest.raises(BadInput, match=f"{field}=|larger model|can be built"):
        regard.load(tmp_path / "m")
    assert time.perf_counter() - begin < 5


@pytest.mark.parametrize("make", [
    lambda: torch.randn(30_000_000, 8), lambda: torch.zeros(2**40), lambda: torch.full((9**9, 9), 1.0),
    lambda: torch.arange(10**10), lambda: nn.Embedding(30_000_000, 8), lambda: nn.Linear(10**6, 10**6),
    lambda: 0.1 * torch.rand(10**6, 10**6),
])  # fmt: skip
def test_a_tensor_far_larger_than_the_weights_is_refused_before_it_is_filled(make, tmp_path):
    stored = {"a": torch.ones(100)}
    with pytest.raises(BadInput, match="larger model than the 100 weights"), building({}, stored, tmp_path):
        make()
    with building({}, stored, tmp_path):
        assert torch.randn(1000, 1000).shape == torch.ones(1000, 1000).shape


def test_tensors_that_are_too_large_together_are_refused(tmp_path):
    made, stored = [], {"a": torch.ones(100)}
    with pytest.raises(BadInput, match="larger model than the 100 weights"), building({}, stored, tmp_path):
        made.extend(nn.Linear(1000, 1000, bias=False) for _ in range(20))
    assert len(made) == 10  # 2 x 100 + 10 million


VALUES = [[], [1], {}, {"a": [1]}, "words", None, True, -1, 0, 1.5, 10**30, [[[]]]]


@pytest.mark.parametrize("kind", rest_is_long(KINDS, "gpt2"))
def test_every_field_of_the_wrong_kind_gives_one_sentence(kind, tmp_path):
    """No field of a config.json, whatever its value, ends in another error than one line for the user."""
    place = hf_folder(kind, tmp_path / "m")
    config = json.loads((place / "config.json").read_text())
    for field in config:
        for value in VALUES:
            (place / "config.json").write_text(json.dumps(config | {field: value}))
            with suppress(RegardError):
                regard.load(place)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("content", [b"\xff\xfe\xfa", b"[" * 200_000 + b"]" * 200_000, b'{"a":' * 200_000, b"[1]"])
def test_files_that_are_no_json_give_one_sentence(name, content, tmp_path):
    place = hf_folder("bert", tmp_path / "m")
    (place / name).write_bytes(content)
    with pytest.raises(BadInput, match="damaged"):
        regard.load(place)


def expanding(*steps):
    return {"normalizer": {"type": "Sequence", "normalizers": list(steps)}}


def replacing(content, **pattern):
    return {"type": "Replace", "pattern": pattern, "content": content}


PANICS = [  # of tokenizers: a BaseException, which `except Exception` lets through
    {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},
    {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a a"]}},
]


@pytest.mark.parametrize("change_to", PANICS, ids=["normalizer", "merges"])
def test_panics_of_tokenizers_give_one_sentence(change_to, tmp_path):
    place = hf_folder("gpt2", tmp_path / "m")
    change(place / "tokenizer.json", **change_to)
    with pytest.raises(BadInput, match=r"tokenizer\.json is not a tokenizer that can be read: "):
        regard.load(place)


@pytest.mark.parametrize("steps", [
    [replacing("ab" * 40, String="a")], [replacing("aaaaa", String="a")] * 4, [replacing("x" * 70, Regex="b*")],
    [{"type": "Prepend", "prepend": "a" * 30}, replacing("aaaaa", String="a")],
], ids=["one", "sequence", "regex", "prepend"])  # fmt: skip
def test_normalizers_that_blow_texts_up_are_refused(steps, tmp_path):
    place = hf_folder("gpt2", tmp_path / "m")
    change(place / "tokenizer.json", **expanding(*steps))
    with pytest.raises(BadInput, match=f"times as long; at most {MAX_EXPANSION}"):
        regard.load(place)
    change(
        place / "tokenizer.json",
        **expanding(replacing("▁", String=" "), {"type": "NFKC"}, replacing(" ", Regex=" {2,}")),
    )
    regard.load(place)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_not_finite_are_named(value, tmp_path, caplog):
    place = hf_folder("bert", tmp_path / "m")
    tensors = load_file(place / "model.safetensors")
    with caplog.at_level(logging.WARNING, "regard"):
        regard.load(place)
        assert not caplog.records
        tensors["bert.embeddings.LayerNorm.weight"][3] = value
        save_file(tensors, place / "model.safetensors")
        regard.load(place)
    assert "NaN or infinite weights (bert.embeddings.LayerNorm.weight)" in caplog.text


def test_large_finite_weights_are_not_named(tmp_path, caplog):
    save_file({"x": torch.full((100,), 3e38)}, tmp_path / "model.safetensors")  # whose sum is infinite
    with caplog.at_level(logging.WARNING, "regard"):
        read_tensors(tmp_path)
    assert not caplog.records


def shard(place):
    """Split the weights of a folder into two files and an index, as transformers does for large models."""
    tensors = load_file(place / "model.safetensors")
    names = [*tensors]
    parts = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, inside in parts.items():
        save_file({name: tensors[name] for name in inside}, place / file)
    (place / "model.safetensors").unlink()
    index = {"metadata": {}, "weight_map": {name: file for file, inside in parts.items() for name in inside}}
    (place / "model.safetensors.index.json").write_text(json.dumps(index))
    return place / "model.safetensors.index.json"


@pytest.mark.parametrize("kind", ["bert", "vit"])
def test_sharded_weights_are_read(kind, tmp_path):
    place = hf_folder(kind, tmp_path / "m")
    before = regard.load(place).model.state_dict()
    shard(place)
    after = regard.load(place).model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_shards_written_by_transformers_are_read(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=50, n_positions=20)
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path, max_shard_size="10KB")
    assert len([*tmp_path.glob("model-*.safetensors")]) > 1
    model, _ = gpt2.load(tmp_path)
    assert model.config.layers == 2


def test_indices_that_do_not_fit_raise(tmp_path):
    place = hf_folder("bert", tmp_path / "m")
    index = shard(place)
    right = json.loads(index.read_text())
    wrong = {
        "no weight_map": {},
        "in the same folder": {"weight_map": {"x": "../model.safetensors"}},
        "copy the whole folder": {"weight_map": {"x": "model-00003-of-00002.safetensors"}},
        "its files lack: x": {"weight_map": right["weight_map"] | {"x": "model-00001-of-00002.safetensors"}},
        "expected the name": {"weight_map": {"x": 3}},
    }
    for said, content in wrong.items():
        index.write_text(json.dumps(content))
        with pytest.raises(BadInput, match=said):
            regard.load(place)


@pytest.mark.parametrize(
    ("name", "field"),
    [("stories", "answers"), ("stories", "words"), ("languages", "labels"), ("scene-questions", "answers")],
)
def test_labels_are_as_many_as_the_classes(name, field, tmp_path):
    folder = tmp_path / "m"
    shutil.copytree(Path(regard.__file__).parent / "zoo" / name, folder)
    config = json.loads((folder / "config.json").read_text())
    for values in (config["task"][field][:-1], [*config["task"][field], "one more"]):
        (folder / "config.json").write_text(json.dumps(config | {"task": config["task"] | {field: values}}))
        with pytest.raises(BadInput, match="The model has"):
            regard.load(folder)


def test_a_memory_of_no_sentences_is_refused(tmp_path):
    folder = tmp_path / "m"
    shutil.copytree(Path(regard.__file__).parent / "zoo/stories", folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"task": config["task"] | {"max_sentences": -1}}))
    with pytest.raises(BadInput, match="max_sentences"):
        regard.load(folder)
