"""The README's table of speeds agrees with the result files of the benchmarks."""

import json
import re

import pytest

from .blocks import ROOT


def median(file, ratio, **case):
    cases = json.loads((ROOT / "benchmarks" / "results" / f"{file}.json").read_text("utf-8"))["cases"]
    (found,) = [each for each in cases if all(each[key] == value for key, value in case.items())]
    return found[ratio]["median"]


def vision(*models):
    files = ("vision-cuda", "vision-training-cuda")
    return [median(file, "regard / timm", model=model) for file in files for model in models]


ROWS = {
    "GPT-2 124M writes": lambda: [median("generate-cuda", "regard+compiled / transformers", batch=16)],
    "Marian base translates, 64": lambda: [
        median("translate-cuda", "regard / transformers", batch=64, beam_size=beam_size) for beam_size in (1, 4)
    ],
    "BERT base encodes": lambda: [median("encode-cuda", "regard / transformers", case="64x128")],
    "the same, texts of all lengths": lambda: [median("encode-cuda", "regard-packed / transformers", case="ragged")],
    "ViT-B/16, ViT-S/16": lambda: vision("vit_b16", "vit_s16"),
    "Swin-T, Swin v2-T": lambda: vision("swin_t", "swinv2_t"),
    "MViT v2-T": lambda: vision("mvitv2_t"),
    "Marian base translates, 1, 16, 64": lambda: [
        median("translate-cpu", "regard / ctranslate2", batch=batch, beam_size=4) for batch in (1, 16, 64)
    ],
    "MiniLM encodes": lambda: [
        median("encode-cpu", "regard / onnx", case=case) for case in ("1 ragged", "16 ragged", "64 ragged")
    ],
}


def rows():
    section = (ROOT / "README.md").read_text("utf-8").split("## How fast")[1].split("\n## ")[0]
    cells = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    found = {row[0]: re.findall(r"[\d.]+(?= x)", row[1]) for row in cells}
    return {name: [float(number) for number in numbers] for name, numbers in found.items() if numbers}


def test_performance_rows_have_results():
    assert len(rows()) == len(ROWS)


@pytest.mark.parametrize("begins", ROWS)
def test_row_agrees_with_the_benchmark(begins):
    ((name, shown),) = [(name, shown) for name, shown in rows().items() if re.match(rf"{re.escape(begins)}\b", name)]
    assert shown == pytest.approx(ROWS[begins](), abs=0.0051 if max(shown) < 2 else 0.051), name
