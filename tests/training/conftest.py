"""A small made-up language pair and a recipe on it, for tests of the loop."""

import random

import pytest

from regard.data.text.parallel_corpus import ParallelCorpus
from regard.models.transformer import Config
from regard.tasks.text import translation
from regard.training.recipe import Recipe, Train


@pytest.fixture(autouse=True)
def _no_curve(request, monkeypatch):
    """Plotting takes longer than these runs; one test plots."""
    if "curve" not in request.fixturenames:
        monkeypatch.setattr("regard.training.loop.TrainingRun._draw", lambda self, force=False: None)


@pytest.fixture
def curve():
    """Plot after all."""


WORDS = {"one": "eins", "two": "zwei", "red": "rot", "blue": "blau", "dog": "hund", "cat": "katze", "and": "und"}


@pytest.fixture(scope="session")
def toy(tmp_path_factory):
    """Sentences of 2 to 7 words, translated word for word in reverse order."""
    folder, dice = tmp_path_factory.mktemp("toy"), random.Random(0)
    for split, many in (("train", 90), ("val", 12), ("test", 12)):
        lines = [[dice.choice(list(WORDS)) for _ in range(dice.randint(2, 7))] for _ in range(many)]
        (folder / f"{split}.en").write_text("".join(" ".join(line) + "\n" for line in lines))
        (folder / f"{split}.de").write_text("".join(" ".join(WORDS[w] for w in line[::-1]) + "\n" for line in lines))
    return folder


@pytest.fixture(scope="session")
def recipe(toy):
    """Dropout, accumulation, a moving average, clipping, decay; epochs of a few updates and a half; no scores."""
    return Recipe(
        Config(vocab=300, width=16, heads=2, ffn=32, encoder_layers=1, decoder_layers=1, dropout=0.2),
        translation.Config(beam_size=2),
        ParallelCorpus(str(toy), vocab_size=300, batch_tokens=96, pad_to_multiple_of=1),
        Train(
            steps=20,
            gradient_accumulation_steps=2,
            learning_rate=3e-3,
            warmup_steps=5,
            clip_grad_norm=1.0,
            weight_decay=0.01,
            ema_decay=0.9,
            average_checkpoints=3,
            eval_interval=6,
            score_interval=0,
            save_interval=4,
            log_interval=4,
            device="cpu",
        ),
        "toy",
    )
