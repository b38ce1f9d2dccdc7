"""Pronunciation: translation's loss, errors against the nearest right answer, and a pronouncer that company never
changes."""

from dataclasses import replace

import pytest
import torch

import regard
from regard.core.errors import BadInput
from regard.data.text.cmudict import CMUDict
from regard.losses.label_smoothed_cross_entropy import label_smoothed_cross_entropy
from regard.models.rnnsearch import Config, RNNSearch
from regard.models.transformer import Config as TransformerConfig
from regard.models.transformer import Transformer
from regard.tasks.text import pronunciation
from regard.tasks.text.pronunciation import Pronouncer, normalize_spelling
from regard.tasks.text.translation import shift_targets
from regard.training import evaluate, train
from regard.training.recipe import Recipe, Train
from tests.long_params import rest_is_long

WORDS = ["tab", "bat", "at", "abba", "tabbat", "b", "taab", "battab", "abattabbatab", "it's"]
SMALL = {"width": 12, "hidden": 16, "readout": None, "dropout": 0.0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("words")
    rows = [f"{word}\t{' '.join(word.upper()).replace(chr(39), 'EH')}" for word in WORDS]
    rows[2] += "\tA1 D0"  # a second right answer
    for split in ("train", "val", "test"):
        (place / f"{split}.tsv").write_text("\n".join(rows) + "\n")
    return place


@pytest.fixture(scope="module")
def task(folder):
    return pronunciation.Config(beam_size=2).build(CMUDict(str(folder), batch_tokens=128), seed=2)


@pytest.fixture(scope="module")
def model(task):
    """Untrained, with an end token likely enough for outputs of many lengths."""
    torch.manual_seed(5)
    made = RNNSearch(task.fit(Config(vocab=1, **SMALL))).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.4 * torch.randn_like(parameter))
    return made


def test_the_loss_is_translations(task, model):
    batch = task.dataset("train").collate(torch.arange(4))
    total, parts = task.loss(model, batch)
    logits = model(batch.source, batch.target[:, :-1], batch.source_lengths, batch.target_lengths - 1)
    assert torch.equal(total, label_smoothed_cross_entropy(logits, shift_targets(batch), 0.1))
    assert parts["loss"] == total


def test_any_listed_pronunciation_is_right_and_the_nearest_counts(task, model, monkeypatch):
    right = [e.pronunciations[-1] for e in task.dataset("val").entries]
    monkeypatch.setattr(Pronouncer, "__call__", lambda self, words, **search: right)
    found = task.evaluate(model, "val")
    assert (found["word_accuracy"], found["wer"], found["per"]) == (100, 0, 0)
    right[0], right[2] = "T A", "A D D"  # one sound missing, one too many for the nearer of the two
    found = task.evaluate(model, "val")
    sounds = sum(len(e.pronunciations[0].split()) for e in task.dataset("val").entries)
    assert found["wer"] == pytest.approx(20)
    assert found["per"] == pytest.approx(100 * 2 / sounds)


def test_the_report_says_how_it_counts_and_sums_up_over_lengths(task, model):
    found = task.report(model, "test", beam_size=1)
    assert {"wer_signature", "per_signature"} <= found.keys()
    assert found["words"] == len(WORDS) == sum(row["count"] for row in found["by_length"])
    wrong = sum(row["count"] * row["wer"] for row in found["by_length"]) / len(WORDS)
    assert wrong == pytest.approx(found["wer"])
    assert [(row["from"], row["to"]) for row in found["by_length"]] == [(1, 4), (5, 6), (11, 12)]
    assert found["beam_size"] == 1
    with pytest.raises(BadInput, match="beam_size and length_penalty, not stride"):
        task.report(model, "test", stride=3)


@pytest.mark.parametrize("beams", [1, 3])
def test_a_words_company_does_not_change_its_sounds(task, model, beams):
    say = Pronouncer(model, task.text)
    words = [*WORDS, "", "a" * 40]
    together = say(words, beam_size=beams)
    assert together == [say([word], beam_size=beams)[0] for word in words]
    assert together[10] == ""
    assert len(set(together)) > 3


def test_several_pronunciations_come_best_first(task, model):
    (found,) = Pronouncer(model, task.text).candidates(["tab"], beam_size=4, num_candidates=3)
    assert [c.score for c in found] == sorted((c.score for c in found), reverse=True)
    assert len({c.text for c in found}) == 3


def test_the_maps_have_a_row_for_every_sound_and_a_column_for_every_letter(task, model):
    say = Pronouncer(model, task.text)
    (trace,) = say.attention("Bat", "B AA".replace("AA", "A"))
    assert trace.kind == "align"
    assert list(trace.columns) == ["b", "a", "t", "</s>"]
    assert list(trace.rows) == ["B", "A", "</s>"]
    own = say.attention("bat")[0]
    assert list(own.rows)[:-1] == say(["bat"])[0].split()
    torch.testing.assert_close(trace.weights.sum(-1), torch.ones(*trace.weights.shape[:-1]))


def test_capitals_accents_hyphens_and_marks_around_do_not_count():
    words = "Café", "e-mail", "O’Neil", " NAÏVE ", "Straße", "Hello,", "(world!)", "“so”…", "a.b"
    assert [normalize_spelling(word) for word in words] == [
        "cafe", "email", "o'neil", "naive", "strasse", "hello", "world", "so", "a.b",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("b3", "'b3' has the character '3', which this model does not know; it takes ' a b i s t"),
        ("bat tab", "more than one word"),
        ("дом", "has the character 'д'"),
        (7, "text 1: Expected a text"),
    ],
)
def test_what_has_no_sound_is_refused_by_name(task, model, word, says):
    with pytest.raises(BadInput, match=says):
        Pronouncer(model, task.text)([word])


def test_a_sound_that_is_not_known_is_refused(task, model):
    with pytest.raises(BadInput, match="has an unknown phoneme"):
        Pronouncer(model, task.text).attention("bat", "B XX")


def test_a_word_of_a_thousand_letters_is_cut_and_said(task, model, caplog):
    say = Pronouncer(model, task.text)
    (found,) = say(["ab" * 600], beam_size=1)
    assert "1200 tokens, more than 64: split into 19 parts" in caplog.text
    assert found == " ".join(filter(None, (say(["ab" * n], beam_size=1)[0] for n in [32] * 18 + [24])))


@pytest.mark.long
@pytest.mark.parametrize("family", ["rnnsearch", "transformer"])
def test_sources_over_a_thousand_tokens_are_read_at_once_where_that_is_asked_for(task, model, family):
    if family == "transformer":
        config = TransformerConfig(vocab=1, width=8, heads=2, ffn=8, encoder_layers=1, decoder_layers=1, length=3000)
        model = Transformer(task.fit(config)).eval()
    say = Pronouncer(model, task.text, max_length=1500)
    (found,) = say(["ab" * 600], beam_size=1)
    assert len(found.split()) <= 2 * 1201 + 16
    batch = task.dataset("train").collate(torch.tensor([0]))
    long = torch.randint(4, task.text.size, (2, 1100))
    lengths = torch.tensor([1100, 1003])
    total, _ = task.loss(model, replace(
        batch,
        source=long, source_lengths=lengths, target=long[:, :1024], target_lengths=torch.tensor([1024, 900])
    ))  # fmt: skip
    total.backward()
    assert torch.isfinite(total)
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
    model.zero_grad()


@pytest.mark.parametrize("stress", rest_is_long([False, True], True))
def test_train_save_load_measure(folder, tmp_path, monkeypatch, stress):
    monkeypatch.setattr("regard.training.loop.TrainingRun._draw", lambda self, force=False: None)
    recipe = Recipe(
        Config(vocab=1, **SMALL),
        pronunciation.Config(beam_size=2),
        CMUDict(str(folder), batch_tokens=128, stress=stress),
        Train(
            steps=60,
            learning_rate=2e-2,
            schedule="constant",
            warmup_steps=1,
            device="cpu",
            eval_interval=30,
            save_interval=30,
            metric="loss",
        ),
    )
    result = train(recipe, tmp_path / "run")
    assert result["steps"] == 60
    say = regard.load(tmp_path / "run" / "model")
    assert isinstance(say, Pronouncer)
    assert say.stress is stress
    found = evaluate(tmp_path / "run")["results"]["test"]
    expected = say(WORDS, beam_size=2)
    wrong = sum(a not in e.pronunciations for a, e in zip(expected, recipe.data.read("test"), strict=True))
    assert found["wer"] == pytest.approx(100 * wrong / len(WORDS))
    again = evaluate(tmp_path / "run" / "model", data=str(folder))["results"]["test"]
    assert again["wer"] == found["wer"]
    regard.save(say, tmp_path / "saved")
    assert regard.load(tmp_path / "saved")(WORDS, beam_size=2) == expected
