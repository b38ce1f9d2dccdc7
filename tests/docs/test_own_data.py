"""docs/how/own-data.md: its commands run, in its order, on data of its layouts; what it says about them is true."""

import re
import shlex

import numpy as np
import pytest
import soundfile
from PIL import Image

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


def test_commands_of_the_page_run_on_data_of_its_layouts(place, regard):
    models = set()
    for where, line in commands(PAGE):
        words = shlex.split(line)[1:]
        if words[0] == "train":  # a smaller encoder than MiniLM, which is taken where it is installed
            small = ["train.init_from=fill-en"] if words[1] == "labelled-texts" else []
            done = regard(*words, "--quick", "--out", place / "runs" / _name(words[2]), *small, cwd=place)
            names = [line[:16].strip() for line in done.complaints if re.match(r"[a-z ]{15} \S", line)]
            assert names == ["data", "start", "model", "regularisation", "updates", "time", "repeat", "use it"], where
            assert done.out == f"{place / 'runs' / _name(words[2]) / 'model'}\n", where
            models.add(f"runs/{_name(words[2])}")
        else:
            assert words[words.index("--model") + 1] in models, where
            output = ["--output", place / "runs" / f"{len(models)}.png"] if "--output" in words else []
            kept = words[: words.index("--output")] if output else words
            done = regard(*kept, *output, cwd=place)
            assert done.out or output, where
            assert not output or output[1].is_file(), where
        assert done.status == 0, (where, done.err)
    assert len(models) == 5


def _name(path):
    return path.split(".")[0]


def test_every_kind_has_its_layout_plan_and_commands():
    from regard.training.own_data import KINDS

    page = PAGE.read_text("utf-8")
    trained = [shlex.split(line)[2] for _, line in commands(PAGE) if line.startswith("regard train")]
    assert trained == [*KINDS]
    assert page.count("<!-- plan: ") == len(KINDS)
    assert page.count("--model runs/") >= 2 * len(KINDS) - 1
