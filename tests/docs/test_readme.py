"""The README: its examples give the outputs that it shows, and its speeds are those of the benchmarks."""

import json
import re
import shlex
import shutil

import numpy as np
import pytest
import typer.main

from regard.api import zoo
from regard.cli import _app, main

from .blocks import ROOT, blocks
from .test_pages import AVAILABLE, is_run

README = ROOT / "README.md"
NEEDS = {"search": "minilm"}  # verbs whose model is a package
NOT_RUN = ("train", "serve", "explore", "export")  # they take minutes, or wait; only parsed here


def shown_examples():
    """Return (command, shown output) of the console blocks."""
    found = []
    for block in blocks(README, "console"):
        for example in block.code.split("$ ")[1:]:
            command, _, output = example.partition("\n")
            found += [(command, output.strip("\n").split("\n"))] if output.strip() else []
    return found


def table_rows():
    """Return (commands, texts that the first of them prints) of the table of what to type; after a ";" are remarks."""
    section = README.read_text("utf-8").split("## What to type")[1].split("\n## ")[0]
    cells = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")][1:]
    code = re.compile("`(regard .+?)`"), re.compile("`(.+?)`")
    return [(code[0].findall(command), code[1].findall(text.split(";")[0])) for _, command, text in cells]


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A folder with the README's docs, and with files of one's own."""
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    shutil.copy(ROOT / "docs" / "assets" / "scene-questions.png", tmp_path / "photo.jpg")
    (tmp_path / "notes.txt").write_text("I bought bread.\nIt rains and storms.\nThe train is late.\n", "utf-8")
    np.savetxt(tmp_path / "cloud.ply", np.random.default_rng(0).standard_normal((300, 3)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def run(command, capsys):
    _, verb, *words = shlex.split(command)
    if verb in NEEDS and not AVAILABLE[NEEDS[verb]]():
        pytest.skip(f"{NEEDS[verb]} is not installed")
    assert main([verb, *words]) == 0, capsys.readouterr().err
    return capsys.readouterr().out.replace("\u202f", " ")  # the space before a French question mark


@pytest.mark.skipif(not zoo(), reason="no model ships with this copy")
@pytest.mark.parametrize(("command", "shown"), shown_examples(), ids=lambda value: value if "$" in value else None)
def test_shown_output_is_what_comes_out(command, shown, desk, capsys):
    lines = [line.rstrip() for line in run(command, capsys).split("\n")]
    assert lines[: len(shown)] == [line.rstrip() for line in shown]


@pytest.mark.skipif(not zoo(), reason="no model ships with this copy")
@pytest.mark.parametrize(("commands", "texts"), table_rows(), ids=lambda value: "")
def test_command_of_the_table_prints_what_the_table_says(commands, texts, desk, capsys):
    parser = typer.main.get_command(_app())
    for number, command in enumerate(commands):
        _, verb, *words = shlex.split(command)
        parser.get_command(typer.Context(parser), verb).make_context(verb, list(words))
        if verb in NOT_RUN or "FOLDER" in command:
            continue
        printed = run(command, capsys)
        assert printed
        assert number or all(text in printed for text in texts), printed


def test_python_blocks_print_what_their_comments_say(desk, capsys):
    names = {}
    for block in blocks(README, "python"):
        if is_run(block.mark):
            exec(compile(block.code, str(block), "exec"), names)
            expected = re.findall(r"^print\(.+\)  # (.+)$", block.code, re.MULTILINE)
            assert expected
            assert capsys.readouterr().out.splitlines() == expected


def median(file, ratio, **case):
    cases = json.loads((ROOT / "benchmarks" / "results" / f"{file}.json").read_text("utf-8"))["cases"]
    (found,) = [each for each in cases if all(each[key] == value for key, value in case.items())]
    return found[ratio]["median"]


def vision(*models):
    files = ("vision-cuda", "vision-training-cuda")
    return [median(file, "regard / timm", model=model) for file in files for model in models]


def translation(beam_size):
    return [median("translate-cpu", "regard / ctranslate2", batch=batch, beam_size=beam_size) for batch in (1, 16, 64)]


def encoding(*cases):
    """Beside the faster of the two graphs of ONNX Runtime."""
    ratios = ("regard / onnx", "regard / onnx-fused")
    return [min(median("encode-cpu", ratio, case=case) for ratio in ratios) for case in cases]


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
    "Marian base translates, 1, 16, 64 sentences, beam 4": lambda: translation(4),
    "Marian base translates, 1, 16, 64 sentences, beam 1": lambda: translation(1),
    "MiniLM encodes 1, 16, 64 texts of all lengths": lambda: encoding("1 ragged", "16 ragged", "64 ragged"),
    "MiniLM encodes 16, 64 texts of one length": lambda: encoding("16 equal", "64 equal"),
}


def rows():
    section = README.read_text("utf-8").split("## How fast")[1].split("\n## ")[0]
    cells = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    found = {row[0]: re.findall(r"[\d.]+(?= x)", row[1]) for row in cells}
    return {name: [float(number) for number in numbers] for name, numbers in found.items() if numbers}


def test_performance_rows_have_results():
    assert len(rows()) == len(ROWS)


@pytest.mark.parametrize("begins", ROWS)
def test_row_agrees_with_the_benchmark(begins):
    ((name, shown),) = [(name, shown) for name, shown in rows().items() if re.match(rf"{re.escape(begins)}\b", name)]
    assert shown == pytest.approx(ROWS[begins](), abs=0.0051 if max(shown) < 2 else 0.051), name
