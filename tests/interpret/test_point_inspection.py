"""A point cloud in the explorer and in `regard see`: points as the model saw them, with a map for every channel."""

import numpy as np
import pytest
import torch

import regard
from regard.core.errors import BadInput
from regard.interpret.figures import FigureOptions, make_figure
from regard.interpret.inspection import inspect
from regard.modalities import PointPreprocess
from regard.models import build
from regard.tasks.points.point_classification import PointClassifier

CLOUD = torch.randn(30, 3, generator=torch.Generator().manual_seed(0)).tolist()


def classifier(name="point_transformer"):
    torch.manual_seed(0)
    model = build(name, size="tiny", num_classes=3)
    return PointClassifier(model, ["cone", "cube", "disc"], PointPreprocess(25))


def test_maps_are_on_the_points_that_the_model_saw():
    predictor = classifier()
    seen = inspect(predictor, {"points": CLOUD}, name="m")
    about = seen.about()
    assert about["inputs"] == {"points": CLOUD}
    shown = predictor.preprocess(CLOUD)
    placed = [position["point"] for position in about["axes"]["points"]["positions"]]
    np.testing.assert_allclose(placed, shown.numpy(), atol=1e-4)
    with torch.no_grad(), regard.watch(predictor.model) as traces:
        predictor.model(shown[None])
    for held, channels in zip(about["maps"], (8, 12), strict=True):
        assert (held["rows"], held["columns"], held["n"], held["m"]) == ("points", "points", 25, 25)
        assert held["heads"] == channels
        whole = traces[held["name"]].operator()[0]
        np.testing.assert_allclose(seen.row(held["name"], 2, 7), whole[2, 7].numpy(), atol=1e-6)
        np.testing.assert_allclose(seen.column(held["name"], -1, 7), whole[:, :, 7].mean(0).numpy(), atol=1e-6)
    assert seen.output["label"] in predictor.labels
    assert not about["relevance_targets"]


def test_the_figure_shows_what_each_point_gets(tmp_path):
    seen = inspect(classifier(), {"points": CLOUD}, name="m")
    figure = make_figure(seen, FigureOptions(layer=0, head=3), "chair.ply")
    assert figure.title.startswith("chair.ply: ")
    assert "30 points" in figure.text()
    figure.save(tmp_path / "chair.png")
    make_figure(seen).save(tmp_path / "chair.svg")
    assert (tmp_path / "chair.png").stat().st_size > 1000
    with pytest.raises(BadInput, match="no layer 2"):
        make_figure(seen, FigureOptions(layer=2)).save(tmp_path / "other.png")


def test_a_model_without_attention_is_shown_with_its_output(tmp_path):
    seen = inspect(classifier("pointnet"), {"points": CLOUD}, name="m")
    assert "no attention maps" in seen.about()["note"]
    make_figure(seen).save(tmp_path / "chair.png")
    assert (tmp_path / "chair.png").exists()
