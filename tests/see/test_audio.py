import numpy as np
import pytest

from regard import see
from regard.core.errors import BadInput


def pieces(n=12, size=2):
    states = ["-"] + ["one", "-"] * size
    rng = np.random.default_rng(0)
    share = rng.dirichlet(np.ones(len(states)), n)
    path = np.minimum(np.arange(n) // 2, len(states) - 1)
    return rng.random((4 * n - 1, 8)), rng.dirichlet(np.ones(3), n), share, path, states, ["one", "two", "-"]


def test_lattice_shows_states_and_best_path(tmp_path):
    spectrum, probabilities, share, path, states, labels = pieces()
    figure = see.ctc_lattice(spectrum, probabilities, share, path, states, labels, 0.04, "one one", tmp_path / "a.png")
    top, middle, bottom = figure.axes
    assert [tick.get_text() for tick in bottom.get_yticklabels()] == states
    assert [tick.get_text() for tick in middle.get_yticklabels()] == labels
    (line,) = bottom.lines
    assert line.get_ydata().tolist() == path.tolist()
    np.testing.assert_allclose(line.get_xdata(), (np.arange(12) + 0.5) * 0.04)
    assert [note.get_text() for note in top.texts] == ["one", "one"]
    np.testing.assert_allclose([mark.get_xdata()[0] for mark in top.lines], [2 * 0.04, 6 * 0.04])
    assert top.images[0].get_extent()[1] == pytest.approx(47 * 0.01)  # the last frame is short of one
    assert {axes.get_xlim() for axes in figure.axes} == {(0.0, 12 * 0.04)}
    assert (tmp_path / "a.png").stat().st_size > 5000


def test_recording_without_words_is_drawn(tmp_path):
    spectrum, probabilities, _, _, _, labels = pieces()
    see.ctc_lattice(
        spectrum, probabilities, np.ones((12, 1)), np.zeros(12, int), ["-"], labels, 0.04, "", tmp_path / "a.svg"
    )
    assert (tmp_path / "a.svg").is_file()


def test_long_recording_has_a_title_that_fits_and_no_word_labels(tmp_path):
    figure = see.ctc_lattice(*pieces(300, 70), 0.04, "one " * 70, tmp_path / "a.png")
    assert not figure.axes[0].texts
    assert not figure.axes[0].lines
    (title,) = figure.texts
    figure.canvas.draw()
    assert title.get_text().endswith("…")
    assert title.get_window_extent().x1 < figure.bbox.x1


def test_attention_is_drawn_below_the_spectrogram(tmp_path):
    weights = np.random.default_rng(0).dirichlet(np.ones(20), 3)
    figure = see.audio_alignment(
        np.zeros((80, 8)), weights, ["two", "six", "</s>"], 0.04, "two six", tmp_path / "a.png"
    )
    np.testing.assert_array_equal(figure.axes[1].images[0].get_array(), weights)
    assert [tick.get_text() for tick in figure.axes[1].get_yticklabels()] == ["two", "six", "</s>"]


def test_mismatched_shapes_raise():
    spectrum, probabilities, share, path, states, labels = pieces()
    with pytest.raises(BadInput, match="Shapes do not match"):
        see.ctc_lattice(spectrum, probabilities, share, path[:-1], states, labels, 0.04)
    with pytest.raises(BadInput, match="one row per word"):
        see.audio_alignment(spectrum, np.zeros((2, 5)), ["a"], 0.04)
