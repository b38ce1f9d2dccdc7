"""``regard eval MODEL --data PATH``: models as other libraries save them, and data as they are."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

import regard
from regard import cli
from regard.models import gpt
from regard.tokens.tokenizer import Tokenizer
from regard.weights.hf import gpt2


@pytest.fixture
def book(tmp_path):
    file = tmp_path / "book.txt"
    file.write_text("Two dogs are playing in the snow. " * 60)
    return file


def run(*words):
    return cli.main(["eval", *map(str, words), "--device", "cpu"])


def test_a_text_model_of_transformers_is_measured_as_the_same_model_in_our_format(book, tmp_path, capsys):
    torch.manual_seed(0)
    text = Tokenizer.train(book.read_text().split("."), kind="bytes", size=270)
    sizes = {"width": 16, "heads": 2, "layers": 1, "length": 32}
    gpt2.save(tmp_path / "theirs", gpt.GPT(gpt.Config(vocab=text.size, feedforward="gelu_tanh", **sizes)), text)
    regard.save(regard.load(tmp_path / "theirs"), tmp_path / "ours")
    found = []
    for name in ("theirs", "ours"):
        assert run(tmp_path / name, "--data", book, "-o", tmp_path / f"{name}.json") == 0
        found.append(json.loads((tmp_path / f"{name}.json").read_text()))
    assert found[0]["results"] == found[1]["results"]
    assert found[0]["results"]["all"]["tokens"] > 100
    assert [each["model"] for each in found] == [str(tmp_path / "theirs"), str(tmp_path / "ours")]
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "book.txt",
        "ours",
        "ours.json",
        "theirs",
        "theirs.json",
    ]


def test_a_folder_need_not_have_all_classes_of_the_model(tmp_path, capsys):
    for name in ("bag", "coat"):
        (tmp_path / "some" / name).mkdir(parents=True)
        for n in range(3):
            pixels = np.random.default_rng(n).integers(0, 255, (28, 28), np.uint8)
            Image.fromarray(pixels).save(tmp_path / "some" / name / f"{n}.png")
    assert run("fashion", "--data", tmp_path / "some") == 0
    assert capsys.readouterr().out.startswith("all: 6 images")
    (tmp_path / "some" / "coat").rename(tmp_path / "some" / "raincoat")
    assert run("fashion", "--data", tmp_path / "some") == 1
    assert "has the labels bag, raincoat; this model has t-shirt" in capsys.readouterr().err


def test_a_file_where_a_folder_is_expected_is_said_to_be_one(book, capsys):
    assert run("digits", "--data", book) == 1
    assert f"{book} is a file; expected the folder of a dataset" in capsys.readouterr().err
