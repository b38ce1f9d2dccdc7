"""A place on the globe in `regard run` and `regard see`: what a classifier says there, and everywhere as a map."""

import numpy as np
import pytest
import torch

import regard
from regard import see
from regard.core.errors import BadInput, UnknownName
from regard.interpret.figures import FigureOptions, make_figure
from regard.interpret.inspection import inspect
from regard.models import build
from regard.tasks.globe.place_classification import PlaceClassifier


@pytest.fixture
def classifier():
    torch.manual_seed(0)
    return PlaceClassifier(build("siren", size="tiny", num_outputs=2), ["ocean", "land"])


def test_the_map_is_the_answer_at_every_place(classifier, tmp_path, monkeypatch):
    seen = inspect(classifier, {"place": "31 N, 7 E"}, name="m")
    figure = make_figure(seen, FigureOptions(label="land"))
    assert figure.title == f"31.00 N, 7.00 E: {seen.prediction.label} ({100 * seen.prediction.probability:.0f} %)"
    assert "land" in figure.text()
    drawn = {}
    monkeypatch.setattr(see, "globe", lambda values, places, *rest, path: drawn.update(values=values, places=places))
    figure.save(tmp_path / "globe.png")
    assert drawn["places"] == [(7.0, 31.0)]
    row, column = (90 - 31) // 2, (180 + 7) // 2  # cells of two degrees, from the north pole and 180 degrees west
    assert drawn["values"].shape == (90, 180)
    assert drawn["values"][row, column] == pytest.approx(seen.prediction.probabilities["land"], abs=1e-6)
    with pytest.raises(UnknownName, match="did you mean 'land'"):
        make_figure(seen, FigureOptions(label="lant")).save(tmp_path / "other.png")


def test_a_picture_has_the_places_and_refuses_what_is_none(tmp_path):
    values = np.linspace(0, 1, 18 * 36).reshape(18, 36)
    see.globe(values, [(2.35, 48.86), (-180, -90)], "Paris", path=tmp_path / "globe.png")
    assert (tmp_path / "globe.png").stat().st_size > 1000
    with pytest.raises(BadInput, match="No place"):
        see.globe(values, [(2.35, 91)])
    with pytest.raises(BadInput, match="finite values"):
        see.globe(values * np.nan)


def test_a_saved_classifier_runs_and_is_drawn(classifier, tmp_path, capsys):
    from regard import cli

    regard.save(classifier, tmp_path / "model")
    assert cli.main(["run", str(tmp_path / "model"), "31 N, 7 E", "0, 160 W"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert {"ocean", "land"} <= set(lines[0].split("\t"))
    words = ["see", "31 N, 7 E", "--model", str(tmp_path / "model"), "--output", str(tmp_path / "see.svg")]
    assert cli.main(words) == 0
    assert (tmp_path / "see.svg").read_text().startswith("<?xml")
    assert cli.main(["run", str(tmp_path / "model"), "91 N, 0 E"]) != 0
    assert "beyond a pole" in capsys.readouterr().err
