"""A graph in the explorer and in `regard see`: maps between its nodes, under their names."""

import numpy as np
import pytest
import torch

import regard
from regard.core.errors import BadInput
from regard.interpret.figures import FigureOptions, make_figure
from regard.interpret.inspection import inspect
from regard.modalities.graph_preprocess import GraphPreprocess
from regard.models import build
from regard.tasks.graphs.graph_classification import GraphClassifier

GRAPHML = b"""<graphml><graph edgedefault="undirected"><node id="Ann"/><node id="Bob"/><node id="Cem"/><node id="Dia"/>
<edge source="Ann" target="Bob"/><edge source="Bob" target="Cem"/><edge source="Cem" target="Dia"/></graph></graphml>"""


def classifier(name="graph_transformer"):
    torch.manual_seed(0)
    place = GraphPreprocess(1, "laplacian", 3)
    sizes = {"input_dim": 1, "num_outputs": 2, "position_dim": 3, "head": "graph"}
    return GraphClassifier(build(name, size="tiny", **sizes), ["path", "ring"], place)


@pytest.fixture
def file(tmp_path):
    (tmp_path / "friends.graphml").write_bytes(GRAPHML)
    return str(tmp_path / "friends.graphml")


def graph_of(file):
    from regard.modalities import Graph

    return Graph.read(file)


def test_maps_are_between_the_named_nodes(file):
    predictor = classifier()
    graph = graph_of(file)
    seen = inspect(predictor, {"graph": graph.to_json()}, name="m")
    with torch.no_grad(), regard.watch(predictor.model) as traces:
        nodes, edges, positions, lengths = predictor.preprocess.batch([graph])
        predictor.model(nodes, edges, positions, lengths)
    for held in seen.about()["maps"]:
        assert (held["rows"], held["columns"], held["n"], held["m"]) == ("nodes", "nodes", 4, 4)
        np.testing.assert_allclose(seen.row(held["name"], 0, 2), traces[held["name"]].weights[0, 0, 2], atol=1e-6)
    assert seen.about()["axes"]["nodes"]["tokens"] == ["0", "1", "2", "3"]
    assert seen.output["label"] in predictor.labels
    places = [each["place"] for each in seen.about()["axes"]["nodes"]["positions"]]
    np.testing.assert_allclose(np.linalg.norm(np.diff(places, axis=0), axis=1), 1, atol=0.01)  # a path: one unit apart
    assert [each["to"] for each in seen.about()["axes"]["nodes"]["positions"]] == [[1], [0, 2], [1, 3], [2]]


def test_a_graph_too_large_to_place_is_shown_without_places(file, monkeypatch):
    monkeypatch.setattr("regard.interpret.inspections.graph.MAX_PLACED", 3)
    seen = inspect(classifier(), {"graph": graph_of(file).to_json()}, name="m")
    assert seen.about()["axes"]["nodes"]["positions"] == [{"none": True}] * 4


def test_the_figure_shows_what_each_node_gets(file, tmp_path):
    seen = inspect(classifier(), {"graph": graph_of(file).to_json()}, name="m")
    figure = make_figure(seen, FigureOptions(layer=0, head=1), "friends.graphml")
    assert figure.title.startswith("friends.graphml: ")
    assert "4 nodes, 3 undirected edges" in figure.text()
    figure.save(tmp_path / "friends.png")
    make_figure(seen).save(tmp_path / "friends.svg")
    assert (tmp_path / "friends.png").stat().st_size > 1000
    with pytest.raises(BadInput, match="no layer 9"):
        make_figure(seen, FigureOptions(layer=9)).save(tmp_path / "other.png")


def test_a_model_without_attention_is_shown_with_its_output(file, tmp_path):
    seen = inspect(classifier("gcn"), {"graph": graph_of(file).to_json()}, name="m")
    assert "no attention maps" in seen.about()["note"]
    make_figure(seen).save(tmp_path / "friends.png")
    assert (tmp_path / "friends.png").exists()


def test_regard_see_draws_a_graph_file(file, tmp_path, capsys):
    from regard import cli

    regard.save(classifier(), tmp_path / "model")
    assert cli.main(["see", file, "--model", str(tmp_path / "model"), "--output", str(tmp_path / "see.svg")]) == 0
    drawn = (tmp_path / "see.svg").read_text()
    assert "4 nodes" in capsys.readouterr().out
    assert drawn.startswith("<?xml")
