from __future__ import annotations

import io
import subprocess
import sys
import threading
import warnings
from itertools import pairwise

import numpy as np
import pytest
import torch
from alignments import ALIGNED, ENGLISH, GERMAN, cross, translation
from PIL import Image

from regard import see
from regard.core.errors import BadInput
from regard.core.trace import Trace

ODD = (
    "日本語",
    "😀",
    "a\nb",
    "$x_2$",
    "\u202eabc",
    "\ud83d",
    "\x00",
    "",
    " ",
    "العربية",
    "👩‍👩‍👧",
    "_x",
    "<script>",
    "\ue000",
)


def pixels(figure) -> np.ndarray:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return np.asarray(Image.open(buffer).convert("RGB")).astype(int)


def cell_colour(figure, picture: np.ndarray, i: int, j: int, axes: int = 0) -> np.ndarray:
    """The colour near the lower left corner of a cell, where no number is written."""
    x, y = figure.axes[axes].transData.transform((j - 0.42, i + 0.42))
    return picture[picture.shape[0] - 1 - int(y), int(x)]


def test_the_brightest_cells_are_the_aligned_ones():
    figure = see.alignment(cross(), 0)
    picture = pixels(figure)
    for i, best in enumerate(ALIGNED):
        row = [cell_colour(figure, picture, i, j).sum() for j in range(len(ENGLISH))]
        assert int(np.argmax(row)) == best


def test_titles_are_inside_the_picture_of_a_small_map():
    weights = torch.full((1, 2, 1, 2), 0.5)
    trace = Trace("decoder.blocks.0.cross", weights, "cross").with_labels(["Hunde"], ["dogs", "."])
    for figure in (see.alignment(trace), see.heads(trace), see.layers([trace]), see.alignment_path(trace)):
        figure.canvas.draw()
        assert all(text.get_window_extent().x1 <= figure.bbox.x1 for text in figure.texts)


def test_every_word_is_labelled():
    axes = see.alignment(cross()).axes[0]
    assert [t.get_text() for t in axes.get_yticklabels()] == list(GERMAN)
    assert [t.get_text() for t in axes.get_xticklabels()] == list(ENGLISH)


def test_default_is_the_mean_and_heads_go_by_their_number_in_the_model():
    trace = Trace("x", torch.rand(1, 2, 3, 3), heads=(4, 7))
    np.testing.assert_allclose(see.alignment(trace).axes[0].images[0].get_array(), trace.weights[0].mean(0), rtol=1e-6)
    np.testing.assert_array_equal(see.alignment(trace, 7).axes[0].images[0].get_array(), trace.weights[0, 1])
    with pytest.raises(BadInput, match="no head 1 in x: it has heads 4, 7"):
        see.alignment(trace, 1)


def test_heads_draws_every_head_on_one_scale():
    figure = see.heads(cross())
    maps = [axes.images[0] for axes in figure.axes if axes.images]
    assert len(maps) == 4
    assert len({image.norm.vmax for image in maps}) == 1
    for image, weights in zip(maps, cross().weights[0], strict=True):
        np.testing.assert_array_equal(image.get_array(), weights)


def test_layers_draws_every_head_of_every_layer():
    figure = see.layers([t for t in translation(3) if t.kind == "cross"])
    assert sum(bool(axes.images) for axes in figure.axes) == 3 * 4


def test_layers_may_have_different_heads_and_sizes():
    figure = see.layers([torch.rand(2, 3, 4), torch.rand(5, 7, 6)])
    assert sum(bool(axes.images) for axes in figure.axes) == 7


def test_mask_is_filled_where_attention_is_allowed():
    allow = torch.ones(5, 5, dtype=torch.bool).tril()
    figure = see.mask(allow)
    picture = pixels(figure)
    seen, unseen = cell_colour(figure, picture, 3, 1), cell_colour(figure, picture, 1, 3)
    assert seen.sum() < unseen.sum()
    title = see.mask(allow, title="a long title that is wider than the map under it").texts[0]
    assert title.get_window_extent().x1 < title.figure.bbox.x1  # not cut off
    with pytest.raises(BadInput, match="bool matrix"):
        see.mask(torch.rand(3, 3))
    with pytest.raises(BadInput, match="names"):
        see.mask(allow, rows=["a"])


@pytest.mark.parametrize("size", [120, 300])
def test_labels_of_long_inputs_do_not_overlap(size):
    words = [f"word{k}" for k in range(size)]
    figure = see.alignment(Trace("long", torch.eye(size)[None, None]).with_labels(words, words))
    picture = pixels(figure)
    assert max(picture.shape) < 4000
    labels = [t for t in figure.axes[0].get_yticklabels() if t.get_text()]
    assert 20 < len(labels) < size
    boxes = sorted((t.get_window_extent() for t in labels), key=lambda box: box.y0)
    assert all(low.y1 <= high.y0 + 0.5 for low, high in pairwise(boxes))


def test_one_row_and_one_column_are_drawn():
    for n, m in ((1, 1), (1, 200), (200, 1)):
        assert pixels(see.alignment(torch.rand(n, m))).size
        assert pixels(see.heads(torch.rand(3, n, m))).size


def test_unusual_tokens_are_drawn_without_a_warning(tmp_path):
    trace = Trace("odd \u0007 $", torch.rand(1, 2, len(ODD), len(ODD)), rows=ODD, columns=ODD)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for k, figure in enumerate((see.alignment(trace, title="日本 $ \x00"), see.heads(trace), see.layers([trace]))):
            see.save(figure, tmp_path / f"{k}.png")
            see.save(figure, tmp_path / f"{k}.svg")
        see.mask(torch.ones(2, 2, dtype=torch.bool), rows=ODD[:2], columns=ODD[2:4])


def test_labels_stay_inside_the_figure():
    figure = see.alignment(cross(), title="a title")
    pixels(figure)
    whole = figure.bbox
    for text in (*figure.axes[0].get_xticklabels(), *figure.axes[0].get_yticklabels(), *figure.texts):
        box = text.get_window_extent()
        assert box.x0 >= whole.x0
        assert box.x1 <= whole.x1
        assert box.y0 >= whole.y0
        assert box.y1 <= whole.y1


def test_negative_and_all_zero_weights_are_drawn():
    assert pixels(see.heads(torch.randn(2, 4, 4))).size
    assert pixels(see.alignment(torch.zeros(4, 4))).size


@pytest.mark.parametrize(
    ("seen", "message"),
    [
        (torch.rand(2, 1, 3, 3), "trace.only"),
        (torch.rand(1, 0, 3), "empty"),
        (torch.full((3, 3), torch.nan), "NaN"),
        (torch.rand(3), "axes"),
        (Trace("x", torch.rand(1, 1, 2, 2), rows=("a",)), "1 labels"),
    ],
)
def test_invalid_input_raises_a_one_line_error(seen, message):
    with pytest.raises(BadInput, match=message) as error:
        see.alignment(seen)
    assert "\n" not in str(error.value)


def test_layers_needs_a_non_empty_list():
    with pytest.raises(BadInput, match="list of traces"):
        see.layers(cross())
    with pytest.raises(BadInput, match="watch"):
        see.layers([])


def test_selected_rows_keep_their_names():
    words = ("a", "b", "c", "d")
    trace = Trace("x", torch.rand(1, 1, 2, 4), queries=(1, 3), rows=words, columns=words)
    assert [t.get_text() for t in see.alignment(trace).axes[0].get_yticklabels()] == ["b", "d"]


def test_figures_can_be_drawn_in_threads(tmp_path):
    def one(k: int) -> None:
        see.save(see.alignment(cross(k)), tmp_path / f"{k}.png")

    threads = [threading.Thread(target=one, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    for k in range(4):
        see.save(see.alignment(cross(k)), tmp_path / "alone.png")
        assert (tmp_path / f"{k}.png").read_bytes() == (tmp_path / "alone.png").read_bytes()


def test_importing_see_does_not_import_matplotlib_and_drawing_never_imports_pyplot():
    code = (
        "import sys, torch; from regard import see; assert 'matplotlib' not in sys.modules\n"
        "import regard.see.page, regard.see.rollout; assert callable(see.page) and callable(see.rollout)\n"
        "see.page([torch.eye(3)]); see.text_map(torch.eye(3)); assert 'matplotlib' not in sys.modules\n"
        "see.alignment(torch.eye(3)); assert 'matplotlib.pyplot' not in sys.modules\n"
        "assert all(callable(getattr(see, name)) for name in see.__all__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=600)
    assert (done.returncode, done.stderr) == (0, "")
