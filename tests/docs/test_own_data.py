"""docs/how/own-data.md: its commands run, in its order, on data of its layouts; what it says about them is true."""

import importlib.util
import json
import re
import shlex

import numpy as np
import pytest
import soundfile
from PIL import Image

from regard.training.own_data import KINDS
from tests.long_params import rest_is_long
from tests.stories.command import Warm

from .blocks import ROOT, commands

PAGE = ROOT / "docs" / "how" / "own-data.md"
WORDS = ["the dog runs", "a cat sleeps", "two girls play", "a boy reads", "the woman drinks"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The files that the page names."""
    folder, rng = tmp_path_factory.mktemp("home"), np.random.default_rng(0)
    for name, level in (("cat", 60), ("dog", 200)):
        (folder / "photos" / name).mkdir(parents=True)
        for n in range(8):
            pixels = np.clip(level + rng.normal(0, 30, (40, 50, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / "photos" / name / f"{n}.png")
    Image.fromarray(pixels).save(folder / "photo.jpg")
    rows = [f"{WORDS[n % 5]} {n},{'good' if n % 2 else 'bad'}" for n in range(40)]
    (folder / "reviews.csv").write_text("review,label\n" + "\n".join(rows) + "\n")
    (folder / "en-fr.tsv").write_text("".join(f"{WORDS[n % 5]} {n}\tphrase {n % 5} {n}\n" for n in range(40)))
    (folder / "diary.txt").write_text("".join(f"On day {n} we saw that {WORDS[n % 5]}.\n" for n in range(120)))
    for name, pitch in (("yes", 300), ("no", 900)):
        (folder / "words" / name).mkdir(parents=True)
        for n in range(8):
            wave = 0.3 * np.sin(2 * np.pi * pitch * np.arange(4000) / 8000)
            soundfile.write(folder / "words" / name / f"{n}.wav", wave, 8000)
    soundfile.write(folder / "yes.wav", wave, 8000)
    return folder


@pytest.fixture(scope="module")
def regard(tmp_path_factory):
    command = Warm(tmp_path_factory.mktemp("streams"))
    yield command
    command.close()


@pytest.mark.parametrize("kind", rest_is_long(KINDS, "text"))
def test_commands_of_the_page_run_on_data_of_its_layouts(kind, place, regard):
    (train,) = [shlex.split(line)[1:] for _, line in commands(PAGE) if line.startswith(f"regard train {kind} ")]
    run = f"runs/{train[2].split('.')[0]}"
    # a smaller encoder than MiniLM, which is taken where it is installed
    small = ["train.init_from=fill-en"] if kind == "labelled-texts" else []
    done = regard(*train, "--quick", "--out", run, *small, cwd=place)
    assert done.status == 0, done.err
    assert done.out == f"{run}/model\n"
    names = [line[:16].strip() for line in done.complaints if re.match(r"[a-z ]{15} \S", line)]
    assert names == ["data", "start", "model", "regularisation", "updates", "time", "repeat", "use it"]
    uses = [shlex.split(line)[1:] for _, line in commands(PAGE) if line.split("--model ")[-1].split()[0] == run]
    assert uses
    for words in uses:
        done = regard(*words, cwd=place)
        assert done.status == 0, done.err
        assert "--output" in words or done.out
        (place / "seen.png").unlink(missing_ok="--output" not in words)


def test_every_kind_has_its_layout_plan_and_commands():
    page = PAGE.read_text("utf-8")
    trained = [shlex.split(line)[2] for _, line in commands(PAGE) if line.startswith("regard train")]
    assert trained == [*KINDS]
    assert page.count("<!-- plan: ") == len(KINDS)
    assert page.count("--model runs/") >= 2 * len(KINDS) - 1


def test_table_of_the_page_has_every_measured_case():
    record = ROOT / "benchmarks" / "results" / "own-data.json"
    spec = importlib.util.spec_from_file_location("own_data_hook", ROOT / "docs" / "mkdocs_hook.py")
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    cases = json.loads(record.read_text("utf-8"))["cases"]
    table = hook.expand_marker("benchmark", "own-data").splitlines()
    assert len(table) == 2 + len(cases)
    for case, row in zip(cases, table[2:], strict=True):
        assert f"| {case['data']} | {case['start']} | " in row
        assert f"| {case['contenders']['regard']['score']:.3g} | " in row
    plan = hook.expand_marker("plan", cases[0]["case"])
    assert plan.count("\n") >= 7
    assert all(line[:9].strip() for line in plan.splitlines() if not line.startswith(" "))
