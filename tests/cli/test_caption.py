"""``regard caption``: a sentence for every photo, where the model looked, and clear refusals."""

import json

import numpy as np
import pytest
from PIL import Image

import regard
from regard import cli
from tests.contracts.test_predictors import captioner, predictor


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    place = tmp_path_factory.mktemp("captions")
    for name in ("show_attend_and_tell", "show_and_tell", "caption_transformer"):
        regard.save(captioner(name), place / name)
    regard.save(predictor("semantic_segmentation"), place / "segmenter")
    (place / "two").mkdir()
    rng = np.random.default_rng(0)
    for name, size in (("one.png", (30, 50, 3)), ("two/a.png", (40, 40, 3)), ("two/b.jpg", (20, 60, 3))):
        Image.fromarray(rng.integers(0, 256, size, np.uint8)).save(place / name)
    return place


def call(*words):
    return cli.main(["caption", *(str(word) for word in words)])


def test_captions_are_printed_and_the_best_one_is_drawn(home, capsys):
    for name in ("show_attend_and_tell", "caption_transformer"):
        drawn = home / f"{name}.png"
        assert call(home / "one.png", "--model", home / name, "-k", 2, "--see", drawn) == 0
        said = capsys.readouterr()
        assert len(said.out.splitlines()) == 2
        assert "this model knows" in said.err
        assert Image.open(drawn).size[0] > 100
    assert call(home / "two", "--model", home / name, "--beam-size", 1, "--json") == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["number"] for line in lines] == [1, 2]
    assert lines[0]["text"] == str(regard.load(home / name)(home / "two" / "a.png", beam_size=1))


def test_the_maps_are_those_of_the_words(home):
    from regard.interpret.inspection import inspect

    for name, many in (("show_attend_and_tell", 1), ("caption_transformer", 2)):
        found = regard.load(home / name)
        seen = inspect(found, {"image": Image.open(home / "one.png")})
        words = str(seen.prediction).split()
        assert seen.words[:-1] == words
        assert len(seen.layer_names()) == many
        maps = seen.word_maps(seen.layer_names()[-1])
        assert maps.shape[1:] == (len(words) + 1, *found.grid_size)
        np.testing.assert_allclose(maps.mean((2, 3)), 1, rtol=1e-4)  # in multiples of uniform
        expected = found.attention(home / "one.png")[-1].weights.float().cpu().numpy()
        assert expected.shape[-1] == maps.shape[2] * maps.shape[3]


@pytest.mark.parametrize(
    ("words", "status", "reason"),
    [
        (("one.png", "--model", "segmenter"), 1, "regard caption needs a model from photos to text"),
        (("missing.png", "--model", "show_attend_and_tell"), 1, "missing.png"),
        (("two", "--model", "show_attend_and_tell", "--see", "x.png"), 2, "draws one photo"),
        (("one.png", "--model", "show_and_tell", "--see", "x.png"), 1, "no attention to the picture"),
        (("one.png", "--model", "show_attend_and_tell", "-k", "9"), 2, "at most --beam-size (5), got 9"),
    ],
)
def test_refusals_are_one_clear_line(home, capsys, words, status, reason):
    given = [home / word if not word.startswith("-") and not word.isdigit() else word for word in words]
    assert call(*given) == status
    assert reason in capsys.readouterr().err
