"""`regard train KIND PATH`: plans that end in time, runs that leave a usable model."""

import time
from contextlib import nullcontext

import numpy as np
import pytest
import soundfile
from PIL import Image

import regard
from regard import cli
from regard.core.errors import BadInput
from regard.training import own_data, train
from regard.training.comparison import compare_runs, table_lines
from regard.training.own_data import KINDS, labelled_texts, make_plan, pairs, plan

NAMES = ["data", "start", "model", "regularisation", "updates", "time"]
SEEN = ["the dog runs", "a cat sleeps", "the man eats bread", "two girls play", "a boy reads", "the woman drinks water"]
READ = [
    "le chien court",
    "un chat dort",
    "l'homme mange du pain",
    "deux filles jouent",
    "un garçon lit",
    "la femme boit",
]


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Data of every kind, as a person would have them: names with spaces and accents, files that cannot be read."""
    folder, rng = tmp_path_factory.mktemp("own"), np.random.default_rng(0)
    for name, colour, count in (
        ("Äpfel rot", (200, 40, 30), 12),
        ("birnen", (60, 180, 70), 10),
        ("citron", (230,) * 3, 2),
    ):
        (folder / "photos" / name).mkdir(parents=True)
        for n in range(count):
            pixels = np.clip(colour + rng.normal(0, 30, (40 + 10 * n, 60, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / "photos" / name / f"{n} a.jpg")
    (folder / "photos" / "birnen" / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 nothing")
    rows = [f"{n},{SEEN[n % 6]} {n},{'très bon' if n % 2 else 'mauvais'}" for n in range(40)]
    (folder / "reviews.csv").write_text("id,review,verdict\n" + "\n".join(rows) + "\n", encoding="utf-8")
    pairs = [f"{SEEN[n % 6]} {n}\t{READ[n % 6]} {n}" for n in range(40)]
    (folder / "sentences.tsv").write_text("\n".join(pairs) + "\n", encoding="utf-8")
    (folder / "diary").mkdir()
    for year in ("2021 été", "2022"):
        days = (f"On day {n} of {year} {SEEN[n % 6]} and {SEEN[n % 5]}.\n" for n in range(60))
        (folder / "diary" / f"{year}.txt").write_text("".join(days), encoding="utf-8")
    for name, pitch in (("ja bitte", 300), ("nein", 900)):
        (folder / "words" / name).mkdir(parents=True)
        for n, rate in enumerate((8000, 16000, 44100, 8000, 16000, 8000)):
            wave = 0.3 * np.sin(2 * np.pi * pitch * np.arange(rate // 2) / rate)
            soundfile.write(folder / "words" / name / f"{n}.wav", np.stack([wave, wave], 1) if n == 1 else wave, rate)
    (folder / "words" / "nein" / "song.mp3").write_bytes(b"ID3 nothing")
    return {
        "images": folder / "photos",
        "labelled-texts": folder / "reviews.csv",
        "pairs": folder / "sentences.tsv",
        "text": folder / "diary",
        "audio": folder / "words",
    }


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_plan_of_six_lines_and_leaves_a_model(kind, places, tmp_path, monkeypatch, capsys):
    source = "fill-en" if kind == "labelled-texts" else None  # smaller than MiniLM, which is taken where installed
    said = list[str]()
    for module in (own_data, plan):
        monkeypatch.setattr(module, "say_if_slow", lambda line, _: said.append(line) or nullcontext())
    found = make_plan(kind, places[kind], quick=True, source=source)
    assert (said[0], said[1][:19]) == ("looking at the data ...", "timing some updates")
    assert [line[:16].strip() for line in found.lines] == NAMES
    assert "6, each of" in found.lines[4]
    result = train(found.recipe, tmp_path / "run")
    assert result["steps"] == 6
    predict = regard.load(tmp_path / "run")
    if kind == "images":
        assert set(predict(places[kind] / "birnen" / "1 a.jpg").probabilities) == {"Äpfel rot", "birnen", "citron"}
    elif kind == "labelled-texts":
        assert set(predict("a cat sleeps").probabilities) == {"très bon", "mauvais"}
    elif kind == "pairs":
        assert (predict.source, predict.target) == ("en", "fr")
        assert isinstance(str(predict("a cat sleeps")), str)
    elif kind == "text":
        assert str(predict("On day", max_new_tokens=5))
    else:
        assert set(predict(places[kind] / "nein" / "1.wav").probabilities) == {"ja bitte", "nein"}
        assert cli.main(["classify", str(places[kind] / "ja bitte"), "--model", str(tmp_path / "run")]) == 0
        assert all("/ja bitte/" in line for line in capsys.readouterr().out.splitlines())  # of a folder, the names
        runs = compare_runs([tmp_path / "run", tmp_path / "run"])
        assert max(map(len, table_lines(runs, 80))) <= 80 < max(map(len, table_lines(runs)))
        assert cli.main(["train", "pears", "x"]) == cli.USAGE
        assert "did you mean 'pairs'?" in capsys.readouterr().err
        again = make_plan(kind, places[kind], quick=True, source=str(tmp_path / "run"))
        assert again.recipe.train.init_from == str(tmp_path / "run")
        assert again.recipe.model.width == found.recipe.model.width
        assert "the classifier is new if its labels differ" in again.lines[1]


@pytest.fixture
def timed(monkeypatch):
    """Updates take as long as is said: by the width of the model."""
    seconds = {}
    monkeypatch.setattr(plan, "time_update", lambda recipe, device, hopeless: (seconds[recipe.model.width], 1000))
    return seconds


def test_updates_and_evaluations_end_in_time(places, timed):
    timed |= {256: 1.0, 192: 0.5, 128: 0.25, 96: 0.1}
    found = make_plan("text", places["text"], minutes=2, source="none")
    s = found.recipe.train
    assert found.recipe.model.width == 256  # a small text is learnt in time even so
    assert 95 < 60 * s.budget_minutes < 115
    late = make_plan("text", places["text"], minutes=2, source="none", began=time.monotonic() - 60)
    assert 55 < 60 * s.budget_minutes - 60 * late.recipe.train.budget_minutes < 65


def test_less_time_takes_a_smaller_model_and_says_when_there_is_too_little(places, timed):
    timed |= {384: 100.0, 256: 100.0, 192: 50.0, 128: 0.2, 96: 0.1}
    found = make_plan("text", places["text"], minutes=2)
    assert found.recipe.model.width == 128
    timed |= {128: 40.0, 96: 10.0}
    found = make_plan("text", places["text"], minutes=1)
    assert found.recipe.model.width == 96
    assert 60 * found.recipe.train.budget_minutes == pytest.approx(plan.MIN_STEPS * 10, rel=0.01)
    assert "too few for 20 updates" in found.lines[-1]


def test_english_continues_from_the_model_of_plays_where_there_is_time(places, timed, tmp_path):
    timed |= {384: 1.0, 256: 1.0, 192: 0.5, 128: 0.25, 96: 0.1}
    found = make_plan("text", places["text"], minutes=2)
    assert found.recipe.train.init_from == "shakespeare"
    assert "shakespeare; characters that it lacks are new" in found.lines[1]
    german = tmp_path / "tagebuch.txt"
    german.write_text("Wir gingen heute in die Stadt und kauften Brot.\n" * 100, encoding="utf-8")
    assert make_plan("text", german, minutes=2).recipe.train.init_from is None


def test_evaluations_take_a_small_share_of_the_time(places, timed):
    timed |= {256: 10.0, 192: 10.0, 128: 10.0, 96: 10.0}
    s = make_plan("text", places["text"], minutes=60, source="none").recipe.train
    per_epoch = 0.1 * 10.0 * plan.FORWARD_SHARE  # seconds of an evaluation, of few rows
    assert (s.steps // s.eval_interval) * per_epoch < plan.EVAL_SHARE * 60 * s.budget_minutes


def test_an_unknown_language_is_not_taken_for_a_known_one():
    assert plan.detect_languages(["el perro corre en la ciudad", "una mujer bebe agua"] * 5) == {plan.UNKNOWN: 1.0}
    assert plan.detect_languages(["Я люблю этот фильм", "она читает книгу"] * 5) == {plan.UNKNOWN: 1.0}
    assert plan.detect_languages(["the dog runs", "a woman drinks water"] * 5) == {"English": 1.0}
    assert plan.detect_languages(["intravenous heparin", "biopsy and histology"] * 5) == {"English": 1.0}


def test_pairs_of_an_unknown_language_learn_the_decoder_anew(tmp_path):
    place = tmp_path / "sentences.tsv"
    place.write_text("".join(f"the dog runs {n}\tel perro corre en la ciudad {n}\n" for n in range(20)) + "alone\t\n")
    found = make_plan("pairs", place, quick=True)
    assert "20 pairs from en to target (name them by the file: en-xx.tsv)" in found.lines[0]
    assert "does not know this direction" in found.lines[1]


@pytest.mark.parametrize(
    ("kind", "content", "sentence"),
    [
        ("images", None, "two classes or more"),
        ("labelled-texts", "text,label\na,b\n", "labels"),
        ("pairs", "a\tb\n", "expected at least 10"),
        ("text", "short", "expected at least"),
    ],
)
def test_too_few_data_are_refused_in_a_sentence(kind, content, sentence, tmp_path):
    place = tmp_path / {"images": "photos", "labelled-texts": "t.csv", "pairs": "p.tsv", "text": "t.txt"}[kind]
    if content is None:
        (place / "cat").mkdir(parents=True)
    else:
        place.write_text(content, encoding="utf-8")
    with pytest.raises(BadInput, match=sentence):
        make_plan(kind, place)


def test_too_many_labels_are_counted_in_the_whole_file(tmp_path):
    (tmp_path / "t.csv").write_text("text,label\n" + "".join(f"a text,{n}\n" for n in range(1500)))
    with pytest.raises(BadInput, match="has 1,500 different labels; expected at most 1,000"):
        make_plan("labelled-texts", tmp_path / "t.csv")


def test_a_run_is_not_mixed_with_other_files(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("a text")
    assert cli.main(["train", "text", str(tmp_path / "notes.txt"), "--out", str(tmp_path)]) == 1
    assert cli.main(["train", "text", str(tmp_path / "notes.txt"), "--out", str(tmp_path / "notes.txt")]) == 1
    said = capsys.readouterr().err
    assert f"{tmp_path} holds other files (notes.txt); give a new folder" in said
    assert f"{tmp_path / 'notes.txt'} is a file; give a folder" in said


def make_photos(place, *names):
    for name in names:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8)).save(place / name)


def test_folders_that_are_no_classes_are_named(tmp_path):
    make_photos(tmp_path, *(f"photos/wrapped/{name}/{n}.png" for name in ("cat", "dog") for n in range(2)))
    with pytest.raises(BadInput, match=r"the classes are the folders in .*wrapped, give that"):
        make_plan("images", tmp_path / "photos")
    (tmp_path / "photos" / "wrapped" / "bird").mkdir()
    with pytest.raises(BadInput, match="bird has no image; add some, or remove the folder"):
        make_plan("images", tmp_path / "photos" / "wrapped")
    make_photos(
        tmp_path, *(f"{part}/{n}/{n}{m}.png" for part in ("b/train", "b/valid") for n in "xy" for m in range(2))
    )
    make_photos(tmp_path, "b/valid/z/1.png")
    with pytest.raises(BadInput, match=r"valid has a class 'z' that .*train does not have"):
        make_plan("images", tmp_path / "b")
    (tmp_path / "photos.zip").write_bytes(b"PK")
    with pytest.raises(BadInput, match="unpack it"):
        make_plan("images", tmp_path / "photos.zip")


def test_a_plan_says_what_it_took_and_what_is_little(tmp_path):
    assert plan.describe_counts(["10", "9", "9", "2", "10", "1"]) == "9: 2, 10: 2, 1: 1, 2: 1"
    place = tmp_path / "reviews.csv"
    place.write_text(
        "id;Kommentar;Note\n" + "".join(f"{n};{SEEN[n % 6]} {n} {'und ' * 60};{n % 2}\n" for n in range(40))
    )
    (tmp_path / "ids.csv").write_text("id,en,fr\n" + "".join(f"{n},{SEEN[n % 6]},{READ[n % 6]}\n" for n in range(20)))
    data = labelled_texts.draft(place, quick=True, source="fill-en").data
    assert "of the columns 'kommentar' and 'note'" in data
    assert "4 kept for validation (few: scores are rough); the first 32 tokens of a text are read" in data
    assert "20 pairs from en to fr" in pairs.draft(tmp_path / "ids.csv", quick=True).data
