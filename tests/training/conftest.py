"""A small made-up language pair and a recipe on it, for tests of the loop."""

import random

import pytest

from regard.data.parallel import Parallel
from regard.models.transformer import Config
from regard.tasks import translation
from regard.training.recipe import Recipe, Train


@pytest.fixture(autouse=True)
def _no_curve(request, monkeypatch):
    """Drawing takes longer than these runs; one test draws."""
    if "curve" not in request.fixturenames:
        monkeypatch.setattr("regard.training.loop._Run._draw", lambda self, force=False: None)


@pytest.fixture
def curve():
    """Draw after all."""


WORDS = {"one": "eins", "two": "zwei", "red": "rot", "blue": "blau", "dog": "hund", "cat": "katze", "and": "und"}


@pytest.fixture(scope="session")
def toy(tmp_path_factory):
    """Sentences of 2 to 7 words, translated word for word and read backwards."""
    folder, dice = tmp_path_factory.mktemp("toy"), random.Random(0)
    for split, many in (("train", 90), ("val", 12), ("test", 12)):
        lines = [[dice.choice(list(WORDS)) for _ in range(dice.randint(2, 7))] for _ in range(many)]
        (folder / f"{split}.en").write_text("".join(" ".join(line) + "\n" for line in lines))
        (folder / f"{split}.de").write_text("".join(" ".join(WORDS[w] for w in line[::-1]) + "\n" for line in lines))
    return folder


@pytest.fixture(scope="session")
def recipe(toy):
    """Dropout, accumulation, a moving average, clipping, decay; epochs of a few updates and a half."""
    return Recipe(
        Config(vocab=300, width=16, heads=2, ffn=32, encoder_layers=1, decoder_layers=1, dropout=0.2),
        translation.Config(beams=2),
        Parallel(str(toy), vocabulary=300, tokens=96, multiple=1),
        Train(
            steps=20,
            accumulate=2,
            rate=3e-3,
            warmup=5,
            clip=1.0,
            decay=0.01,
            ema=0.9,
            average=3,
            evaluate=6,
            save=4,
            log=4,
            device="cpu",
        ),
        "toy",
    )
