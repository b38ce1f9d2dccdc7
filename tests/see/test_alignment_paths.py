"""Paths of aligners: lines follow the centres, and every aligner has its own map."""

from __future__ import annotations

import io
import warnings

import numpy as np
import pytest
import torch
from alignments import ENGLISH, GERMAN, cross
from PIL import Image

from regard import see
from regard.attention.aligners.gmm import GMMAligner
from regard.attention.capture.watch import watch
from regard.core.errors import BadInput
from regard.core.trace import Trace
from regard.see.alignment_paths import centre_paths
from regard.see.maps import to_maps


def pixels(figure) -> np.ndarray:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return np.asarray(Image.open(buffer).convert("RGB")).astype(int)


def mixture_trace(steps: int = 12, m: int = 9, mixtures: int = 3) -> Trace:
    """A fresh Gaussian-mixture window, watched while it moves on."""
    aligner = GMMAligner(4, mixtures=mixtures, step=0.7)
    torch.nn.init.normal_(aligner.mixture.weight, std=0.4)
    keys, state = aligner.keys(torch.randn(1, m, 5)), None
    with watch(aligner) as seen:
        for query in torch.randn(steps, 1, 1, 4):
            _, state = aligner(query, keys, None, state)
    (trace,) = seen.traces()
    return trace


def lines(axes) -> np.ndarray:
    return np.stack([line.get_xdata() for line in axes.lines], -1)


def test_lines_follow_the_centres_and_are_monotonic():
    trace = mixture_trace()
    assert trace.centres.shape == (1, 1, 12, 3)
    figure = see.alignment_path(trace)
    drawn = lines(figure.axes[0])
    np.testing.assert_allclose(drawn, trace.centres[0, 0].detach(), rtol=1e-6)
    assert (np.diff(drawn, axis=0) > 0).all()
    for line in figure.axes[0].lines:
        np.testing.assert_array_equal(line.get_ydata(), np.arange(12))


def test_line_is_visible_at_its_centre():
    centres = torch.tensor([[[[0.0], [2.0], [5.0]]]])
    figure = see.alignment_path(Trace("a", torch.zeros(1, 1, 3, 7), "align", centres=centres))
    picture, axes = pixels(figure), figure.axes[0]

    def at(i, j):
        x, y = axes.transData.transform((j, i))
        return picture[picture.shape[0] - 1 - int(y), int(x)].sum()

    for i, j in enumerate((0, 2, 5)):
        assert at(i, j) > 300
        assert at(i, 6) < 100  # the dark of a weight of zero


def test_centres_past_the_end_do_not_change_the_limits():
    trace = Trace("a", torch.rand(1, 1, 3, 4), "align", centres=torch.tensor([[[[1.0], [9.0], [40.0]]]]))
    axes = see.alignment_path(trace).axes[0]
    assert axes.get_xlim() == (-0.5, 3.5)
    assert axes.get_ylim() == (2.5, -0.5)


def test_without_centres_the_path_is_the_mean_position_with_a_gap_at_zero_rows():
    weights = torch.tensor([[1.0, 0, 0, 0], [0, 0.5, 0, 0.5], [0, 0, 0, 0], [0, 0, 0.1, 0.3]])
    np.testing.assert_allclose(centre_paths(to_maps(weights))[:, 0], [0, 2, np.nan, 2.75], rtol=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pixels(see.alignment_path(weights)).size


def test_selected_rows_and_labels_keep_their_centres():
    trace = mixture_trace(steps=6)
    kept = trace.with_labels(list("abcd"), list("123456789"))
    assert kept.centres.shape == (1, 1, 4, 3)
    axes = see.alignment_path(kept).axes[0]
    assert [t.get_text() for t in axes.get_yticklabels()] == list("abcd")
    assert [t.get_text() for t in axes.get_xticklabels()] == list("123456789")
    assert kept.batch_item(0).centres.shape == (1, 1, 4, 3)
    assert np.shape(kept.to_json()["centres"]) == (1, 1, 4, 3)
    assert "centres" not in cross().to_json()
    aligner = GMMAligner(4)
    with watch(aligner, queries=[3, 0]) as seen:
        state = None
        for query in torch.randn(5, 2, 1, 4):
            _, state = aligner(query, aligner.keys(torch.randn(2, 6, 5)), None, state)
    (trace,) = seen.traces()
    assert trace.centres.shape == (2, 1, 2, 5)
    assert (trace.centres[:, :, 0] > trace.centres[:, :, 1]).all()  # row 3 was asked for first


def test_every_aligner_has_its_map_under_its_name_on_one_scale():
    soft, sharp = cross(0, heads=1), cross(1, heads=1)
    figure = see.compare_alignments({"additive": soft, "location": sharp, "gmm": mixture_trace()})
    maps = [axes for axes in figure.axes if axes.images]
    assert len(maps) == 3
    assert len({axes.images[0].norm.vmax for axes in maps}) == 1
    np.testing.assert_array_equal(maps[0].images[0].get_array(), soft.weights[0, 0])
    np.testing.assert_array_equal(maps[1].images[0].get_array(), sharp.weights[0, 0])
    assert [t.get_text() for t in maps[1].get_yticklabels()] == list(GERMAN)
    assert [t.get_text() for t in maps[1].get_xticklabels()] == list(ENGLISH)
    assert {"additive", "location", "gmm"} <= {t.get_text() for t in figure.texts}
    assert not maps[2].lines


def test_comparison_draws_paths_with_lines_true():
    figure = see.compare_alignments({"additive": cross(heads=1), "gmm": mixture_trace()}, lines=True)
    maps = [axes for axes in figure.axes if axes.images]
    assert [len(axes.lines) for axes in maps] == [1, 3]


@pytest.mark.parametrize("count", [1, 2, 5, 13])
def test_any_number_of_aligners_stays_inside_the_figure(count):
    figure = see.compare_alignments({f"aligner {k}": cross(k, heads=1) for k in range(count)}, title="a title")
    pixels(figure)
    whole = figure.bbox
    for text in (
        *figure.texts,
        *(t for axes in figure.axes for t in (*axes.get_xticklabels(), *axes.get_yticklabels())),
    ):
        box = text.get_window_extent()
        assert box.x0 >= whole.x0
        assert box.x1 <= whole.x1
        assert box.y0 >= whole.y0
        assert box.y1 <= whole.y1


def test_long_paths_and_unusual_names_are_drawn_without_a_warning(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = see.alignment_path(mixture_trace(steps=400, m=300), title="日本 $ \x00")
        assert max(pixels(figure).shape) < 4000
        see.save(figure, tmp_path / "path.svg")
        see.save(
            see.compare_alignments({"a\nb $x_2$": mixture_trace(), "": mixture_trace(1, 1)}), tmp_path / "compare.png"
        )


def test_invalid_input_raises_a_one_line_error():
    for bad in ({}, [cross()], cross()):
        with pytest.raises(BadInput, match="non-empty dict") as error:
            see.compare_alignments(bad)
        assert "\n" not in str(error.value)
    with pytest.raises(BadInput, match="holds 2 inputs"):
        see.alignment_path(torch.rand(2, 1, 3, 3))
