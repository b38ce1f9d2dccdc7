from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from PIL import Image

from regard.core.errors import BadInput
from regard.metrics.base import BLEU, error_rate
from regard.see import training_curve


def rows(steps: int = 200) -> list[dict]:
    out: list[dict] = [
        {"step": s, "loss": 2 + math.exp(-s / 50), "lr": 1e-3, "tokens_per_second": 1000 + s} for s in range(steps)
    ]
    out += [{"step": s, "val_loss": 2.5 + abs(s - 100) / 100, "bleu": s / 5} for s in range(50, steps, 50)]
    return out


def lines(axes) -> dict[str, np.ndarray]:
    return {line.get_label(): line.get_ydata() for line in axes.lines if not line.get_label().startswith("_")}


def test_losses_share_a_panel_and_each_score_has_its_own(tmp_path):
    figure = training_curve(rows(), tmp_path / "curve.png", metrics=[BLEU])
    assert [sorted(lines(axes)) for axes in figure.axes] == [
        ["loss", "val loss"],
        ["BLEU"],
        ["lr"],
        ["tokens per second"],
    ]
    np.testing.assert_allclose(lines(figure.axes[1])["BLEU"], [10, 20, 30])
    with Image.open(tmp_path / "curve.png") as image:
        assert len(image.convert("RGB").getcolors(1 << 24)) > 50


def test_best_validation_value_is_annotated():
    figure = training_curve(rows(), metrics=[BLEU])
    assert [t.get_text() for t in figure.axes[0].texts] == ["2.5"]
    assert [t.get_text() for t in figure.axes[1].texts] == ["30"]


def test_loss_parts_have_no_best_value_and_counts_are_no_curve():
    logged = [{"step": s, "loss": 1.0 / s, "pen": 1.0 / s, "wer": 1.0 / s, "lines": 3750} for s in range(1, 9)]
    figure = training_curve(logged, metrics=[error_rate("wer", "WER", scale=100)])
    drawn = {name: axes for axes in figure.axes for name in lines(axes)}
    assert list(drawn) == ["loss", "pen", "WER %"]
    assert [[t.get_text() for t in drawn[name].texts] for name in ("pen", "WER %")] == [[], ["12.5"]]


def test_rows_may_miss_keys_be_out_of_order_or_not_finite():
    logged = [
        {"step": 3, "loss": 1.0},
        {"step": 1, "loss": 3.0},
        {"step": 2, "loss": float("nan")},
        {"step": 4, "loss": None, "note": "text", "done": True},
        {"loss": 9.0},
        {"step": 1, "loss": 2.0},
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = training_curve(logged)
        figure.canvas.draw()
    assert list(lines(figure.axes[0])) == ["loss (1 not finite, left out)"]
    np.testing.assert_array_equal(next(iter(lines(figure.axes[0]).values())), [2.0, 1.0])


def test_one_point_is_a_curve():
    assert training_curve([{"step": 0, "loss": 1.0}]).axes


@pytest.mark.parametrize("logged", [[], [{"step": 1}], [{"loss": 1.0}], [{"step": 1, "loss": float("inf")}]])
def test_rows_without_metrics_raise(logged):
    with pytest.raises(BadInput, match="Nothing to draw"):
        training_curve(logged)


def test_speed_is_labelled_with_the_unit():
    logged = [{"step": step, "loss": 1.0, "tokens_per_second": 5.0} for step in (1, 2)]
    names = [
        text.get_text() for axes in training_curve(logged, unit="images").axes for text in axes.get_legend().get_texts()
    ]
    assert names == ["loss", "images per second"]
