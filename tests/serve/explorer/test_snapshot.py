"""What is taken out of a real look is what it shows, within the room there is."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

import regard
from regard.interpret.inspection import Inspection, inspect
from regard.modalities.image import Preprocess
from regard.see.html_export import MIN_SIDE, sample_rows
from regard.serve.explorer.snapshot import MAX_ANSWERS, all_relevances, take_snapshot
from regard.tasks.image.image_classification import ImageClassifier

SENTENCE = "Two dogs are playing in the snow."


@pytest.fixture(scope="module")
def seen() -> Inspection:
    return inspect(regard.load("en-de"), {"text": SENTENCE}, name="en-de")


@pytest.fixture(scope="module")
def pictured() -> Inspection:
    """Through windows, which are undone: a value belongs to a window, a map to the whole image."""
    model = ImageClassifier(regard.build("swin", size="tiny", num_classes=3), ["cat", "dog", "bird"], Preprocess(32))
    photo = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(photo, "png")
    return inspect(model, {"image": photo.getvalue()}, name="swin")


@pytest.mark.parametrize("kind", ["seen", "pictured"])
def test_all_views_are_what_the_look_shows_row_by_row(kind, request):
    seen: Inspection = request.getfixturevalue(kind)
    taken = take_snapshot(seen)
    about = seen.about()["maps"]
    assert {name for name in taken.maps if not name.startswith("rollout.")} == {map["name"] for map in about}
    for map in (about[0], about[-1]):
        assert set(taken.maps[map["name"]]) == set(map["views"])
        for view, weights in taken.maps[map["name"]].items():
            assert weights.shape == (map["heads"], map["n"], map["m"])
            for head in (0, map["heads"] - 1):
                rows = [seen.row(map["name"], head, query, view) for query in range(map["n"])]
                assert np.allclose(weights[head], rows, rtol=1e-5, atol=1e-7)


def test_rollouts_of_all_tokens_go_along(seen):
    found = take_snapshot(seen).rollout
    assert found is not None
    assert np.allclose(found[2], seen.rollout(2))


def test_relevance_of_all_answers_goes_along_where_it_was_taken(seen):
    found = all_relevances(seen)
    about = seen.about()["relevance_targets"]
    assert found.shape == (len(about), len(seen.axes["source"].tokens))
    assert np.allclose(found[1], seen.relevance(1))
    taken = take_snapshot(seen, relevance=found)
    assert taken.about["relevance_targets"] == about
    assert taken.relevance is found
    assert take_snapshot(seen).about["relevance_targets"] == []  # the page offers what the file holds
    long = inspect(regard.load("shakespeare"), {"text": "To be, or not " * 5, "max_new_tokens": 0}, name="shakespeare")
    assert len(long.about()["relevance_targets"]) > MAX_ANSWERS
    assert all_relevances(long) is None


def test_rollouts_up_to_each_layer_go_along_as_maps(seen):
    from regard.see import rollout

    taken = take_snapshot(seen)
    traces = [trace for trace in regard.load("en-de").attention(SENTENCE) if trace.name.startswith("encoder")]
    maps = [map for map in taken.about["maps"] if map["kind"] == "rollout"]
    assert [map["layer"] for map in maps if map["part"] == "encoder"] == list(range(len(traces)))
    for many in range(1, len(traces) + 1):
        found = taken.maps[f"rollout.{traces[many - 1].name}"]["raw"][0]
        assert np.allclose(found, rollout(traces[:many]).weights[0, 0].numpy(), atol=1e-5)
    assert {(map["rows"], map["columns"]) for map in maps if map["part"] == "cross to input"} == {("target", "source")}


def test_what_does_not_fit_keeps_evenly_spread_rows_and_no_more_views(seen):
    text = inspect(
        regard.load("shakespeare"), {"text": "To be, or not to be. " * 10, "max_new_tokens": 0}, name="shakespeare"
    )
    map = text.about()["maps"][1]
    taken = take_snapshot(text, max_weights=20_000)
    total = sum(view.size for views in taken.maps.values() for view in views.values())
    assert total <= 1.3 * 20_000 + MIN_SIDE**2 * 16
    (weights,) = taken.maps[map["name"]].values()
    rows = sample_rows(map["n"], weights.shape[1])
    assert weights.shape[1] < map["n"]
    whole = text.row(map["name"], 0, int(rows[3]))
    assert weights[0, 3].max() == pytest.approx(whole.max())


def test_a_look_shows_itself_in_a_notebook_and_its_words_are_inert():
    text = inspect(regard.load("fill-en"), {"text": "<script>alert(1)</script> [MASK]"}, name="<b>")._repr_html_()
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "&lt;b&gt;" in text
    assert text.count("<img ") == text.count("data:image/png;base64,") > 0
