"""`regard cost` as a user meets it: tables, JSON, and one line for what cannot be."""

import json

import pytest

import regard
import regard.api
from regard import cli

TINY = ["gpt:tiny", "vocab=300", "layers=2", "--batch-size", "8"]


@pytest.fixture(autouse=True)
def _unchecked(unchecked):
    """Shapes in signatures are checked elsewhere."""


def test_a_table_says_what_was_counted_and_what_was_assumed(capsys):
    assert cli.main(["cost", *TINY, "--devices", "2", "--tokens", "20x"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("gpt:tiny: 440 k parameters (vocab=300, ")
    for words in (
        "one update: 8 rows, 512 tokens; 2 x H200 SXM, ddp, bfloat16",
        "decoder.blocks.*.feed",
        "optimizer (adamw)",
        "with recomputation",
        "attention maps, if stored",
        "gradients, summed (all-reduce)",
        "8.81 M tokens",
        "products reach 70% of the peak",
    ):
        assert words in out, words


def test_json_holds_everything(capsys):
    assert cli.main(["cost", *TINY, "--json", "--recompute", "--device", "a100", "--tokens", "1e6"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["model"] == "gpt:tiny"
    assert found["parameters"] == sum(found["parameters_by_part"].values()) == 440_448
    assert found["memory"]["peak"] < found["memory"]["required"] < found["memory"]["available"]
    assert found["fits"] is True
    assert found["saved_for_backward"] < found["saved_with_recompute_toggled"]
    assert found["run"]["items"] == 1e6
    assert found["seconds"]["all"] > 0
    assert found["assumed"]["matmul"] == 0.7


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["transformer:tiny", "--infer", "--length", "9"], "one forward pass: 32 rows"),
        (["transformer:tiny", "--decode", "--beam-size", "4", "--length", "9"], "cache of keys and values"),
        (["gpt:tiny", "--decode", "--length", "60"], "one token each"),
        (["gpt:tiny", "--decode", "--length", "60"], "no vocabulary was given: 8,000 tokens are assumed"),
        (["rnnsearch:tiny", "--decode", "--length", "5"], "cache of keys and values"),
        (
            ["gpt:tiny", "width=4096", "layers=2", "--device", "4090", "--batch-size", "1000"],
            "the largest batch that fits",
        ),
    ],
)
def test_other_questions(words, said, capsys):
    assert cli.main(["cost", *words]) == 0
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["gptt"], 1, "did you mean 'gpt'?"),
        (["gpt:lagre"], 1, "did you mean 'large'?"),
        (["gpt2"], 1, "regard cost gpt:gpt2"),
        (["gpt", "width=100", "heads=3"], 1, "is not divisible by 3 heads"),
        (["gpt", "haeds=3"], 1, "did you mean 'heads'?"),
        (["gpt:tiny", "--length", "100"], 1, "100 positions are needed"),
        (["gpt:tiny", "--decode", "--length", "100"], 1, "100 positions are needed, but 64 are learned"),
        (["gpt:tiny", "--devices", "5"], 1, "not divisible by 5 data-parallel devices; use --batch-size 30"),
        (["gpt:tiny", "--device", "h2000"], 1, "did you mean 'h200'?"),
        (["gpt:tiny", "--optimizer", "adaw"], 1, "did you mean 'adamw'?"),
        (["gpt:tiny", "--tensor-parallel", "3", "--devices", "3"], 1, "does not divide the 4 (key) heads"),
        (["gpt:tiny", "--parallel", "pipeline"], 2, "auto, ddp or fsdp"),
        (["gpt:tiny", "--train", "--decode"], 2, "not train and decode"),
        (["gpt:tiny", "--tokens", "many"], 2, "20x for so many a parameter"),
        (["vit:tiny", "--image", "big"], 2, "224x320"),
        (["gpt:tiny", "--image", "224"], 2, "gpt looks at no images"),
        (["vit-b16", "--length", "40"], 2, "vit looks at images and reads no tokens; instead of --length say --image"),
        (["vit-b17"], 1, "vit has no size 'b17'; did you mean 'b16'?"),
        (["gpt:tiny", "--precision", "int8"], 2, "bfloat16 or float32"),
        (["gpt:tiny", "--efficiency", "7"], 2, "between 0 and 1"),
        ([], 2, "MODEL"),
    ],
)
def test_what_cannot_be_is_one_line_and_a_status(words, status, said, capsys):
    assert cli.main(["cost", *words]) == status
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_a_size_as_it_is_published_has_nothing_in_brackets(capsys):
    assert cli.main(["cost", "vit-b16", "--image", "32", "--batch-size", "1"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "vit:b16: 86.6 M parameters"


def test_a_saved_model_has_a_cost(translator_folder, tmp_path, capsys):
    assert cli.main(["cost", str(translator_folder), "--infer", "--batch-size", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    built = regard.load(translator_folder).model
    assert found["parameters"] == sum(parameter.numel() for parameter in built.parameters())
    timm = pytest.importorskip("timm")
    vit = timm.create_model("vit_tiny_patch16_224", img_size=32, num_classes=4)
    timm.models.save_for_hf(vit, tmp_path / "vit", safe_serialization=True)
    assert cli.main(["cost", str(tmp_path / "vit"), "--infer", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["parameters"] == sum(p.numel() for p in vit.parameters())


@pytest.mark.skipif("scenes" not in regard.api.zoo(), reason="the detector is not here")
def test_a_shipped_detector_has_a_cost(capsys):
    assert cli.main(["cost", "scenes", "--infer"]) == 0
    assert "scenes: 475 k parameters" in capsys.readouterr().out
