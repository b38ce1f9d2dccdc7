"""Graphs from files and JSON: the same edges whatever the format, or one sentence that says why not."""

import base64

import pytest
import torch

from regard.core.errors import BadInput
from regard.modalities import Graph, Limits

GRAPHML = """<?xml version="1.0"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><key id="w" for="edge" attr.name="weight"/>
<graph edgedefault="{kind}"><node id="a"/><node id="b"/><node id="c"/><node id="alone"/>
<edge source="a" target="b"><data key="w">3</data></edge><edge source="b" target="c"/></graph></graphml>"""


def test_an_edge_list_has_comments_repeats_and_any_separator():
    found = Graph.read(b"# friends\na b 0.5\nb,c\n\nb\ta\nc c\n% end\n")
    assert found.names == ("a", "b", "c")
    assert found.edges.T.tolist() == [[0, 1], [1, 0], [1, 2], [2, 1], [2, 2]]
    assert str(found) == "3 nodes, 3 undirected edges"


@pytest.mark.parametrize("kind", ["undirected", "directed"])
def test_graphml_has_isolated_nodes_and_directions(kind, tmp_path):
    (path := tmp_path / "g.graphml").write_text(GRAPHML.format(kind=kind))
    found = Graph.read(path)
    assert found.labels == ["a", "b", "c", "alone"]
    assert found.directed == (kind == "directed")
    assert found.edges.shape[1] == (2 if found.directed else 4)
    assert str(found) == f"4 nodes, 2 {kind} edges"
    assert Graph.from_json(base64.b64encode(path.read_bytes()).decode()).to_json() == found.to_json()


def test_json_gives_back_what_was_read():
    given = {"nodes": 3, "edges": [[0, 1], [2, 1]], "features": [[1.0], [2.0], [3.0]], "edge_types": [1, 0]}
    found = Graph.read(given)
    assert found.adjacency().tolist() == [[0, 2, 0], [2, 0, 1], [0, 1, 0]]
    assert torch.equal(Graph.read(found.to_json()).adjacency(), found.adjacency())
    lonely = Graph.read({"nodes": 2, "edges": []})
    assert lonely.edges.shape == (2, 0)
    assert str(lonely) == "2 nodes, 0 undirected edges"


BOMB = b"""<?xml version="1.0"?><!DOCTYPE lolz [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]><graphml><graph/></graphml>"""
BAD = {
    "empty": (b"", "no nodes"),
    "only comments": (b"# nothing\n", "no nodes"),
    "one word": (b"a b\nc\n", "line 2 has one word, 'c'"),
    "bytes": (b"\x89PNG\0\0", "neither GraphML nor"),
    "entities": (BOMB, "document type or entities"),
    "damaged": (b"<graphml><graph>", "XML is damaged"),
    "no graph": (b"<graphml/>", "expected one graph, found 0"),
    "edge without target": (b'<graphml><graph><edge source="a"/></graph></graphml>', "no source or no target"),
    "too many": (b"\n".join(b"a b%d" % n for n in range(20)), "more than 10 edges"),
    "missing": ("nowhere.edges", "there is no file"),
    "node out of range": ({"nodes": 2, "edges": [[0, 2]]}, "from 0 to 1, got"),
    "no nodes": ({"edges": []}, "nodes must be a number"),
    "zero nodes": ({"nodes": 0}, "nodes must be a number"),
    "other field": ({"nodes": 1, "weights": []}, "no field 'weights'"),
    "bad features": ({"nodes": 2, "edges": [], "features": [[1], [2, 3]]}, "features must be"),
    "missing features": ({"nodes": 2, "edges": [], "features": [[1.0]]}, "one row for each of 2 nodes"),
    "nan features": ({"nodes": 1, "edges": [], "features": [[float("nan")]]}, "finite features"),
    "bad types": ({"nodes": 2, "edges": [[0, 1]], "edge_types": [0, 1]}, "for each of 1 edges"),
    "a number": (3, "Expected a graph"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_graph_is_refused_in_one_sentence(name):
    given, message = BAD[name]
    with pytest.raises(BadInput, match=message) as error:
        Graph.read(given, Limits(edges=10))
    assert "\n" not in str(error.value)


def test_a_folder_means_its_files(tmp_path):
    (tmp_path / "b.graphml").write_text(GRAPHML)
    assert [source.name for source in Graph.sources([str(tmp_path)])] == [str(tmp_path / "b.graphml")]
    (empty := tmp_path / "empty").mkdir()
    assert "no graphs" in next(Graph.sources([str(empty)])).problem
