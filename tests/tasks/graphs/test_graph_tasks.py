"""Tasks over graphs: what is trained is predicted, signs are drawn in training only, numbers keep their unit."""

from dataclasses import dataclass

import pytest
import torch

import regard
from regard.core.errors import BadInput
from regard.data.graphs.graph_dataset import IGNORED, GraphDataset, fold_rows, stratified_folds
from regard.modalities import Graph
from regard.modalities.graph_preprocess import GraphPreprocess
from regard.models import build
from regard.tasks.graphs import graph_classification, graph_regression, node_classification
from regard.tasks.graphs.graph_classification import GraphClassifier


def ring(n):
    return Graph.make(n, [(a, (a + 1) % n) for a in range(n)])


def path(n):
    return Graph.make(n, [(a, a + 1) for a in range(n - 1)])


@dataclass(frozen=True)
class RingsAndPaths(GraphDataset):
    target: str = "class"

    def labels(self):
        return ["ring", "path"]

    def graphs(self, split):
        graphs = [make(n) for n in range(4, 12) for make in (ring, path)]
        if self.target == "number":
            return graphs, torch.tensor([float(10 * g.nodes) for g in graphs])
        if self.target == "nodes":
            ends = [torch.full((11,), IGNORED) for _ in graphs]
            for row, graph in zip(ends, graphs, strict=True):
                row[: graph.nodes] = (graph.adjacency().sum(1) == 1).long()
            return graphs, torch.stack(ends)
        return graphs, torch.arange(len(graphs)) % 2


def train(task, model, steps=60):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    batch = task.dataset("train").collate(torch.arange(16))
    model.train()
    for step in range(steps):
        total, _ = task.loss(model, batch, step, torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        (total / task.count(batch)).backward()
        optimizer.step()
    return model.eval()


def fitted(task, name, **settings):
    torch.manual_seed(0)
    model = build(name, size="tiny", **settings)
    return type(model)(task.fit(model.config))


@pytest.mark.parametrize("name", ["graph_transformer", "gcn", "gat"])
def test_a_classifier_learns_and_predicts_what_was_measured(name, tmp_path):
    task = graph_classification.Config().build(RingsAndPaths(positions="random_walk", position_dim=6))
    model = train(task, fitted(task, name), 150)
    found = task.evaluate(model, "val")
    assert found["accuracy"] == 1.0
    assert found["graphs"] == 16
    saved = task.describe()
    classify = GraphClassifier(model, saved["labels"], saved["preprocess"])
    graphs, targets = task.data.graphs("val")
    said = classify(list(graphs))
    assert [each.label for each in said] == [saved["labels"][n] for n in targets]
    nll = [-torch.tensor(each.probabilities[each.label]).log() for each in said]
    assert found["loss"] == pytest.approx(float(sum(nll)) / 16, rel=1e-3)
    regard.save(classify, tmp_path / "m")
    (file := tmp_path / "friends.edges").write_text("a b\nb c\nc d\nd e\n")
    again = regard.load(tmp_path / "m")
    assert again(file).label == "path"
    assert again(file) == classify({"nodes": 5, "edges": [[0, 1], [1, 2], [2, 3], [3, 4]]})


def test_signs_are_drawn_in_training_only():
    task = graph_classification.Config().build(RingsAndPaths(positions="laplacian", position_dim=3))
    model, batch = fitted(task, "graph_transformer"), task.dataset("train").collate(torch.arange(4))
    drawn = [task.outputs(model, batch, torch.Generator().manual_seed(seed))[0] for seed in (0, 1)]
    assert not torch.allclose(*drawn)
    model.eval()
    assert torch.equal(task.outputs(model, batch)[0], task.outputs(model, batch, torch.Generator().manual_seed(1))[0])
    still = graph_classification.Config(flip_signs=False).build(task.data)
    assert torch.equal(*(still.outputs(model.train(), batch, torch.Generator().manual_seed(s))[0] for s in (0, 1)))


def test_a_regression_is_measured_in_the_unit_of_the_data():
    task = graph_regression.Config().build(RingsAndPaths(target="number"))
    model = fitted(task, "gcn", head="graph")
    assert task.mean == pytest.approx(75.0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    found = task.evaluate(model, "val")  # it says the mean
    _, targets = task.data.graphs("val")
    assert found["rms_error"] == pytest.approx((targets - 75).square().mean().sqrt().item())
    assert found["mae"] == pytest.approx((targets - 75).abs().mean().item())
    assert train(task, fitted(task, "gcn"), 5) is not None


def test_nodes_without_a_label_do_not_count():
    task = node_classification.Config().build(RingsAndPaths(target="nodes"))
    batch = task.dataset("train").collate(torch.arange(16))
    assert task.count(batch) == task.dataset("train").count(batch) == 2 * sum(range(4, 12))
    found = task.evaluate(fitted(task, "graph_transformer"), "val")
    assert found["nodes"] == 2 * sum(range(4, 12))
    assert 0 < found["accuracy"] < 1
    placed = RingsAndPaths(target="nodes", positions="random_walk", position_dim=6)
    task = node_classification.Config().build(placed)
    model = train(task, fitted(task, "graph_transformer"), 80)
    assert task.evaluate(model, "val")["accuracy"] > 0.95  # 0.87 of the nodes are no ends


def test_folds_share_no_graph_and_have_the_same_share_of_every_class():
    labels = torch.arange(60) % 3
    folds = stratified_folds(labels, 5, 0)
    parts = [fold_rows(folds, 4, split, 5) for split in ("train", "val", "test")]
    assert sorted(torch.cat(parts).tolist()) == list(range(60))
    assert [labels[part].bincount().tolist() for part in parts] == [[12] * 3, [4] * 3, [4] * 3]
    assert fold_rows(folds, 0, "test", 5).tolist() == parts[1].tolist()  # the fold after 4 is 0


def test_a_request_holds_a_graph_bare_or_by_its_field():
    bare = {"nodes": 3, "edges": [[0, 1]]}
    for given in (bare, {"graph": bare}):
        assert GraphClassifier.item_from_json(given).to_json()["edges"] == [[0, 1], [1, 0]]
    with pytest.raises(BadInput, match="no field 'knots'"):
        GraphClassifier.item_from_json({"knots": 3})


def test_what_a_model_cannot_read_is_refused():
    shown = GraphPreprocess(2, "laplacian", 3, max_nodes=10)
    with pytest.raises(BadInput, match="needs 2 numbers for each node"):
        shown.batch([ring(4)])
    with pytest.raises(BadInput, match="11 nodes; at most 10"):
        shown.batch([ring(11)])
    with pytest.raises(BadInput, match="does not fit"):
        GraphPreprocess(1, "laplacian", 0)
    with pytest.raises(BadInput, match="has 1"):
        shown.batch([Graph.make(2, [], features=torch.ones(2, 1))])
    assert GraphPreprocess().batch([])[0].shape == (0, 1, 1)
