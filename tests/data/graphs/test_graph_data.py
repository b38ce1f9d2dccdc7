"""Readers of graph datasets, on small files with known contents."""

import numpy as np
import pytest
import torch

from regard.core.errors import BadInput
from regard.data.graphs.citations import IGNORED, Citations
from regard.data.graphs.csl import CSL
from regard.data.graphs.esol import ESOL
from regard.data.graphs.tu import TU


def write_tu(folder, **changes):
    files = {
        "A": "1, 2\n2, 1\n2, 3\n3, 2\n4, 5\n5, 4\n",
        "graph_indicator": "1\n1\n1\n2\n2\n",
        "graph_labels": "-1\n1\n",
        "node_labels": "7\n3\n7\n3\n3\n",
    } | changes
    for name, text in files.items():
        if text is not None:
            (folder / f"TOY_{name}.txt").write_text(text)
    return TU(dataset=str(folder))


def test_a_folder_in_the_tu_format_is_read(tmp_path):
    graphs, labels, folds = write_tu(tmp_path)._read()
    assert folds is None
    assert labels.tolist() == [0, 1]
    assert [graph.nodes for graph in graphs] == [3, 2]
    assert graphs[0].edges.T.tolist() == [[0, 1], [1, 0], [1, 2], [2, 1]]
    assert graphs[1].edges.T.tolist() == [[0, 1], [1, 0]]
    assert graphs[0].features.tolist() == [[0, 1], [1, 0], [0, 1]]


def test_without_tags_a_node_is_its_degree(tmp_path):
    graphs, _, _ = write_tu(tmp_path, node_labels=None)._read()
    assert graphs[0].features.argmax(1).tolist() == [1, 2, 1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"A": "1, 4\n"}, "leads to another graph"),
        ({"A": "1, 9\n"}, "do not fit"),
        ({"graph_labels": "1\n"}, "do not fit"),
        ({"graph_labels": "one\ntwo\n"}, "no number"),
    ],
)
def test_files_that_do_not_fit_are_refused(tmp_path, changes, message):
    with pytest.raises(BadInput, match=message):
        write_tu(tmp_path, **changes)._read()


def test_a_folder_without_such_files_is_refused(tmp_path):
    with pytest.raises(BadInput, match="expected one file NAME_A"):
        TU(dataset=str(tmp_path))._read()


def test_packed_sets_keep_their_folds(tmp_path):
    edges = np.array([[0, 1], [1, 0], [0, 1], [1, 0]])
    np.savez(
        tmp_path / "toy.npz",
        labels=np.arange(20) % 2,
        node_tags=np.arange(40) % 3,
        node_offsets=np.arange(0, 41, 2),
        edge_src=np.tile(edges[:2, 0], 20),
        edge_dst=np.tile(edges[:2, 1], 20),
        edge_offsets=np.arange(0, 41, 2),
        test_fold=np.arange(20) // 2,
    )
    data = TU(dataset="toy", path=str(tmp_path), fold=3)
    sizes = {split: len(data.load(split)) for split in ("train", "val", "test")}
    assert sizes == {"train": 16, "val": 2, "test": 2}
    test = data.load("test")
    assert test.targets.tolist() == [0, 1]
    assert test.graphs[0].features.argmax(1).tolist() == [12 % 3, 13 % 3]
    assert data.input_dim == 3
    with pytest.raises(BadInput, match="there are toy"):
        TU(dataset="other", path=str(tmp_path))._read()


def test_csl_has_five_folds_by_class(tmp_path):
    adjacency = np.zeros((50, 5, 5), bool)
    for shift in (1, 4):
        adjacency[:, np.arange(5), (np.arange(5) + shift) % 5] = True
    np.savez(tmp_path / "csl.npz", adj=adjacency, labels=np.arange(50) % 10)
    data = CSL(path=str(tmp_path), positions="laplacian", position_dim=2)
    parts = [data.load(split) for split in ("train", "val", "test")]
    assert [part.targets.bincount().tolist() for part in parts] == [[3] * 10, [1] * 10, [1] * 10]
    batch = parts[0].collate(torch.arange(4))
    assert (batch.edges.sum(-1) == 2).all()
    assert batch.positions.shape == (4, 5, 2)


def test_esol_has_atoms_and_bonds(tmp_path):
    np.savez(
        tmp_path / "esol.npz",
        y=np.array([-1.0, 0.5, 2.0], np.float32),
        smiles=np.array(["CO", "N", "CC"]),
        split=np.array([0, 0, 2]),
        node_offsets=np.array([0, 2, 3, 5]),
        atomic_num=np.array([6, 8, 7, 6, 6]),
        formal_charge=np.array([0, -1, 1, 0, 0]),
        num_h=np.array([3, 1, 3, 3, 9]),
        aromatic=np.array([False, False, False, True, False]),
        edge_offsets=np.array([0, 2, 2, 4]),
        edge_src=np.array([0, 1, 0, 1]),
        edge_dst=np.array([1, 0, 1, 0]),
        bond_type=np.array([2, 2, 0, 0]),
    )
    data = ESOL(path=str(tmp_path))
    train = data.load("train")
    assert train.targets.tolist() == [-1.0, 0.5]
    batch = train.collate(torch.arange(2))
    assert batch.edges[0].tolist() == [[0, 3], [3, 0]]
    assert batch.nodes.shape == (2, 2, data.input_dim)
    assert batch.nodes[0, 0].nonzero()[:, 0].tolist() == [0, 11, 16]  # carbon, no charge, three hydrogens
    assert batch.lengths.tolist() == [2, 1]


def test_citations_have_one_graph_with_the_labels_of_a_split(tmp_path):
    np.savez(
        tmp_path / "cora.npz",
        shape=np.array([4, 3]),
        feat_row=np.array([0, 0, 2]),
        feat_col=np.array([1, 2, 0]),
        labels=np.array([0, 1, 1, 0]),
        edges=np.array([[0, 1], [2, 3]]),
        train_idx=np.array([0]),
        val_idx=np.array([1]),
        test_idx=np.array([2, 3]),
    )
    data = Citations(dataset="cora", path=str(tmp_path))
    batch = data.load("test").collate(torch.arange(1))
    assert batch.targets.tolist() == [[IGNORED, IGNORED, 1, 0]]
    assert batch.nodes[0, 0].tolist() == [0, 0.5, 0.5]
    assert batch.edges[0].nonzero().tolist() == [[0, 1], [1, 0], [2, 3], [3, 2]]
    assert data.labels() == ["class 0", "class 1"]
