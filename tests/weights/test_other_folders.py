"""The card of a stranger's folder: whatever its small files hold, it is described or says nothing, and never fails."""

import json
import struct

import pytest

from regard.catalogue import show
from regard.weights.other_folders import count_parameters

BERT = {"model_type": "bert", "architectures": ["BertModel"]}


def folder(path, header, config=BERT):
    content = header if isinstance(header, bytes) else json.dumps(header).encode()
    (path / "model.safetensors").write_bytes(struct.pack("<Q", len(content)) + content)
    (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return path


def test_parameters_are_counted_from_the_header(tmp_path):
    header = {"__metadata__": {"format": "pt"}, "a": {"shape": [3, 5]}, "b": {"shape": []}}
    assert count_parameters(folder(tmp_path, header)) == 16


@pytest.mark.parametrize(
    "header",
    [
        b"[" * 200_000,
        b"\xff{}",
        [1],
        {"a": 5},
        {"a": None},
        {"a": {}},
        {"a": {"shape": "xy"}},
        {"a": {"shape": [[1]]}},
        {"a": {"shape": [-5, 3]}},
        {"a": {"shape": [1e308]}},
        {"a": {"shape": [2**39] * 1000}},
    ],
    ids=lambda header: str(header)[:20],
)
def test_a_damaged_header_says_nothing(tmp_path, header):
    assert count_parameters(folder(tmp_path, header)) == 0
    assert "not known" in str(show(str(tmp_path)))


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": [1]},
        {"model_type": "bert", "architectures": [[1]]},
        {"model_type": "bert", "id2label": 5},
        {"model_type": "bert", "id2label": {"0": {"a": ["x" * 10_000]}}},
        {"architecture": 5, "label_names": True},
        {"model_type": "bert", "architectures": ["\x1b[2J"]},
    ],
    ids=str,
)
def test_odd_fields_do_not_break_the_card(tmp_path, config):
    found = str(show(str(folder(tmp_path, {"a": {"shape": [2]}}, config))))
    assert "\x1b" not in found
    assert len(found) < 5000


def test_only_a_model_that_reads_text_misses_a_tokenizer(tmp_path):
    vit = {"model_type": "vit", "architectures": ["ViTForImageClassification"]}
    assert "missing" not in show(str(folder(tmp_path, {}, vit)))
    assert "tokenizer.json" in show(str(folder(tmp_path, {})))
