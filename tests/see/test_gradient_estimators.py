"""Gradient estimators: both panels show the data; values a logarithmic axis cannot show raise."""

import pytest

from regard.core.errors import BadInput
from regard.see import gradient_estimators

VARIANCES = {"plain": 7.5, "others": 0.7}
ERRORS = {"plain": [(1, 2.0), (100, 0.2)], "others": [(4, 0.4), (400, 0.04)], "biased": [(64, 0.15), (4096, 0.13)]}


def test_both_panels_show_the_data(tmp_path):
    figure = gradient_estimators(VARIANCES, ERRORS, tmp_path / "a.png", "a study")
    bars, lines = figure.axes
    assert [round(bar.get_width(), 3) for bar in bars.patches] == [7.5, 0.7]
    assert [tick.get_text() for tick in bars.get_yticklabels()] == ["plain", "others", "biased"]
    assert [list(zip(*line.get_data(), strict=True)) for line in lines.get_lines()] == list(ERRORS.values())
    assert bars.patches[0].get_facecolor()[:3] == pytest.approx(_colour(lines.get_lines()[0]))
    assert (tmp_path / "a.png").stat().st_size > 5000


def _colour(line):
    from matplotlib.colors import to_rgb

    return to_rgb(line.get_color())


@pytest.mark.parametrize(
    ("variances", "errors"), [({}, {}), ({"a": 0.0}, {}), ({"a": 1.0}, {"a": [(1, float("nan"))]})]
)
def test_values_not_above_zero_raise(variances, errors):
    with pytest.raises(BadInput, match="above 0"):
        gradient_estimators(variances, errors)
