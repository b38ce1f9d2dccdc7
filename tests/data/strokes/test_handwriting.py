"""Lines of handwriting: even points, baseline at both ends, splits without common writers, fixed by the seed."""

import numpy as np
import pytest
import torch

from regard.core.errors import BadInput, UnknownName
from regard.data.batching import StreamPosition
from regard.data.strokes.handwriting import HandwritingLines
from regard.data.strokes.pen_strokes import Character, HandwritingStyle, compose_line, resample_strokes
from tests.data.strokes.pen_files import pens


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_DATA", str(pens(tmp_path)))


def even(many):
    return HandwritingStyle(np.eye(2), np.ones(many), np.zeros(many), np.full(many + 1, 0.2))


def test_resampled_points_are_evenly_spaced_and_keep_stroke_ends():
    points = np.array([[0, 0], [3, 0], [3, 1], [9, 9], [9, 9.5], [4, 4]], dtype=float)
    lifted = np.array([False, False, True, False, True, True])
    found, up = resample_strokes(points, lifted, 0.5)
    first, second, dot = np.split(found, np.flatnonzero(up)[:-1] + 1)
    np.testing.assert_allclose(
        np.hypot(*np.diff(first, axis=0).T)[:5], 0.5
    )  # 4 long: 8 pieces, straight up to the bend
    assert len(first) == 9
    np.testing.assert_array_equal(first[[0, -1]], points[[0, 2]])
    np.testing.assert_array_equal(second, points[3:5])
    np.testing.assert_array_equal(dot, points[5:])  # one point: it was a dot and stays one


def test_line_begins_and_ends_on_the_baseline():
    bow = Character(np.array([[0.0, -1.0], [0.5, 0.0]]), np.array([False, True]), 3)
    tick = Character(np.array([[0.3, -0.5], [0.0, 0.0], [0.2, -0.1]]), np.array([True, False, True]), 7)
    offsets = compose_line([bow, tick], even(2))
    places = offsets[:, :2].cumsum(0)
    np.testing.assert_allclose(places[:2], bow.points + np.array([0.1, 0]))
    np.testing.assert_allclose(
        places[2:5], tick.points + np.array([0.8, 0])
    )  # right edge of the first, and a gap of 0.2
    np.testing.assert_allclose(places[-1], [1.2, 0])
    assert offsets[:, 2].tolist() == [0, 1, 1, 0, 1, 1]


def test_slant_and_size_are_one_matrix_per_line():
    bar = Character(np.array([[0.0, 0.0], [0.0, -1.0]]), np.array([False, True]))
    hand = HandwritingStyle(np.array([[1.0, -0.5], [0.0, 1.0]]) * 2, np.ones(2), np.zeros(2), np.zeros(3))
    places = compose_line([bar, bar], hand)[:, :2].cumsum(0)
    np.testing.assert_allclose(places, [[0, 0], [1, -2], [1, 0], [2, -2], [2, 0]])  # leans to the right: y points down


def test_splits_share_no_writer():
    writers = {part: {c.writer for c in HandwritingLines().characters(part)} for part in ("train", "val", "test")}
    assert writers == {"train": {0, 1}, "val": {40}, "test": {50}}
    assert {c.label for c in HandwritingLines().characters("test")} == set(range(10))


def test_characters_have_height_one_and_stand_on_the_baseline():
    train = HandwritingLines(spacing=0).characters("train")
    for writer in (0, 1):
        own = [c for c in train if c.writer == writer]
        assert np.median([np.ptp(c.points[:, 1]) for c in own]) == pytest.approx(1)
        assert all(c.points[:, 1].max() == 0 == c.points[:, 0].min() for c in own)


def test_a_line_is_by_one_writer_and_matches_its_text():
    train = HandwritingLines(max_length=3, variation=0).load("train")
    for row in range(40):
        chosen = [train.all[i] for i in train._epoch((0, 0))[row]]
        assert 1 <= len(chosen) <= 3
        assert len({c.writer for c in chosen}) == 1
        offsets, text = train.line(row)
        assert text == [*(c.label for c in chosen), 10]
        assert len(offsets) == 1 + sum(len(c.points) for c in chosen) == train.lengths(0, 0)[row]
        assert offsets[:, 1].sum() == pytest.approx(0, abs=1e-9)


def test_batches_depend_on_seed_and_epoch_alone():
    train = HandwritingLines(lines_per_epoch=16, batch_size=4).load("train")
    every = [d.batch for d, _ in zip(train.stream(3).start(StreamPosition()), range(8), strict=False)]
    again = [
        d.batch
        for d, _ in zip(
            HandwritingLines(lines_per_epoch=16, batch_size=4).load("train").stream(3).start(StreamPosition(1, 1)),
            range(3),
            strict=False,
        )
    ]
    for old, new in zip(every[5:], again, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(old, new, strict=True))
    other = next(train.stream(4).start(StreamPosition())).batch
    assert other.points.shape != every[0].points.shape or not torch.equal(other.points, every[0].points)
    firsts = {tuple(batch.points[0, 0].tolist()) for batch in every}
    assert len(firsts) == 8  # the second epoch writes other lines


def test_padding_is_zero_and_not_counted():
    train = HandwritingLines(lines_per_epoch=16, batch_size=16).load("train")
    item = next(train.stream(0).start(StreamPosition()))
    batch = item.batch
    assert item.count == int(batch.lengths.sum()) < batch.points[..., 0].numel()
    past = torch.arange(batch.points.shape[1]) >= batch.lengths[:, None]
    assert batch.points[past].abs().max() == 0
    assert (batch.text[torch.arange(16), batch.text_lengths - 1] == 10).all()
    assert batch.rows(2).points.shape[0] == 2


def test_unit_only_scales():
    one, half = (HandwritingLines(unit=unit).load("val").line(3)[0] for unit in (0.2, 0.1))
    np.testing.assert_allclose(one * [2, 2, 1], half)


def test_evaluation_lines_have_no_variation():
    val = HandwritingLines(variation=1).load("val")
    offsets, _ = val.line(0)
    first = val.all[val._epoch((0, 0))[0][0]]
    np.testing.assert_allclose(offsets[1 : len(first.points), :2] * 0.12, np.diff(first.points, axis=0), atol=1e-12)


def test_omniglot_has_no_text():
    data = HandwritingLines("omniglot", spacing=0, unit=0.2, max_length=3, lines_per_epoch=8, batch_size=4)
    batch = next(data.load("train").stream(0).start(StreamPosition())).batch
    assert batch.text.shape == (4, 0)
    assert not batch.text_lengths.any()
    assert batch.points[..., :2].abs().max() > 0


@pytest.mark.parametrize(
    ("settings", "error", "match"),
    [
        ({"corpus": "ujj"}, UnknownName, "uji"),
        ({"min_length": 3, "max_length": 2}, BadInput, "min_length"),
        ({"unit": 0.0}, BadInput, "unit"),
    ],
)
def test_impossible_settings_are_refused(settings, error, match):
    with pytest.raises(error, match=match):
        HandwritingLines(**settings)


def test_missing_or_damaged_file_is_refused(tmp_path, monkeypatch):
    (tmp_path / "pen_strokes" / "uji_digits.npz").write_bytes(b"no zip")
    with pytest.raises(BadInput, match="uji_digits"):
        HandwritingLines().load("val")
    monkeypatch.setenv("REGARD_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(BadInput, match="REGARD_DATA"):
        HandwritingLines().load("val")
