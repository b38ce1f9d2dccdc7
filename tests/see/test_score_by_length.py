"""A score over length: one line per system, over the same buckets."""

import math

import pytest

from regard import see
from regard.core.errors import BadInput

SYSTEMS = {"one vector": {"1-5": 40.0, "6-10": 30.0, "11-15": 12.5}, "additive": {"1-5": 41.0, "11-15": 40.5}}


def test_every_system_is_a_line_over_the_same_buckets_with_a_gap_where_one_is_missing(tmp_path):
    figure = see.score_by_length(SYSTEMS, tmp_path / "lengths.png", "DE-EN", counts={"1-5": 37, "6-10": 402})
    (axes,) = figure.axes
    first, second = (line.get_ydata() for line in axes.lines)
    assert list(first) == [40.0, 30.0, 12.5]
    assert [second[0], second[2]] == [41.0, 40.5]
    assert math.isnan(second[1])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1-5\n(37)", "6-10\n(402)", "11-15"]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == list(SYSTEMS)
    assert (tmp_path / "lengths.png").stat().st_size > 3000


def test_many_systems_have_distinct_styles():
    figure = see.score_by_length({f"system {n}": {"1": n, "2": n + 1} for n in range(17)})
    styles = {(line.get_color(), line.get_linestyle()) for line in figure.axes[0].lines}
    assert len(styles) == 17


def test_empty_input_raises():
    with pytest.raises(BadInput, match="Nothing to draw"):
        see.score_by_length({"a": {}})
