"""Shapes lie on their surfaces and depend on the seed alone; ModelNet10's splits share no object."""

import math

import numpy as np
import pytest
import torch

from regard.core.errors import RegardError
from regard.data.data_dir import data_dirs
from regard.data.points import modelnet10
from regard.data.points.modelnet10 import ModelNet10
from regard.data.points.shapes import SURFACES, Shapes, _cut, rotations
from regard.modalities import PointCloud

RNG = np.random.default_rng(0)


def distance_from_surface(name, points):
    """How far points are from the surface of a shape, for shapes without a height of their own."""
    x, y, z = np.abs(points).transpose(2, 0, 1)
    if name == "sphere":
        return np.abs(np.sqrt(x**2 + y**2 + z**2) - 1)
    if name == "cube":
        return np.abs(np.maximum(np.maximum(x, y), z) - 1)
    if name == "disc":
        return np.maximum(np.hypot(x, y) - 1, z - 0.02).clip(0)
    apex = points[..., 2].max(1, keepdims=True)  # a little below the true one
    if name == "cylinder":
        return np.minimum(np.abs(np.hypot(x, y) - 1), np.abs(z - apex)) + (np.hypot(x, y) - 1).clip(0)
    flat = np.hypot(x, y) if name == "cone" else np.maximum(x, y)
    height = np.median(z[z > 0.05] / (1 - flat[z > 0.05]))
    return np.minimum(z, np.abs(z - height * (1 - flat)))


@pytest.mark.parametrize("name", ["sphere", "cube", "disc", "cylinder", "cone", "pyramid"])
def test_points_lie_on_the_surface(name):
    points = SURFACES[name](1, 500, RNG)
    assert distance_from_surface(name, points).max() < 0.02
    assert np.abs(points.mean((0, 1))[:2]).max() < 0.25  # on all sides


def test_points_are_even_on_a_torus_a_helix_and_a_cylinder():
    torus = SURFACES["torus"](1, 20_000, RNG)
    ring = np.hypot(torus[..., 0], torus[..., 1])
    thick = np.abs(torus[..., 2]).max()
    assert np.hypot(ring - 1, torus[..., 2]) == pytest.approx(np.full(ring.shape, thick), abs=1e-3)
    outside = (ring > 1).mean()  # area π (π ± 2 t) r of the two halves
    assert outside == pytest.approx(0.5 + thick / math.pi, abs=0.015)
    helix = SURFACES["helix"](1, 500, RNG)
    assert np.abs(np.hypot(helix[..., 0], helix[..., 1]) - 1).max() <= 0.15
    cylinder = SURFACES["cylinder"](1, 20_000, RNG)
    height = np.ptp(cylinder[..., 2])
    caps = (np.hypot(cylinder[..., 0], cylinder[..., 1]) < 0.999).mean()
    assert caps == pytest.approx(1 / (1 + height), abs=0.02)


def test_rotations_turn_and_a_cut_removes_one_side():
    turned = rotations(50, RNG)
    np.testing.assert_allclose(turned @ turned.transpose(0, 2, 1), np.broadcast_to(np.eye(3), (50, 3, 3)), atol=1e-12)
    assert np.linalg.det(turned) == pytest.approx(1)
    assert np.abs(turned.mean(0)).max() < 0.3  # all directions
    points = RNG.standard_normal((2, 100, 3))
    cut = _cut(points, np.array([0.0, 0.4]), RNG)
    assert np.array_equal(cut[0], points[0])
    assert cut[1, :, 0].max() <= np.sort(points[1, :, 0])[59]


def test_shapes_depend_on_the_seed_and_the_split():
    data = Shapes(examples=40, points=20)
    train = data.load("train").examples
    assert train.points.shape == (40, 20, 3)
    assert torch.equal(train.points, data.load("train").examples.points)
    assert train.labels.bincount().tolist() == [5] * 8
    assert len(data.load("val").examples.labels) == len(data.load("test").examples.labels) == 5
    other = Shapes(examples=40, points=20, seed=1).load("train").examples
    assert not torch.equal(train.points, other.points)
    for cloud in train.points:
        assert len(PointCloud.read(cloud)) > 10
    with pytest.raises(RegardError, match="noise"):
        Shapes(noise=2.0)


def write(folder, grids, labels):
    packed = {part: np.packbits(grid.reshape(len(grid), -1), axis=1) for part, grid in grids.items()}
    arrays = {f"{part}_vox": packed[part] for part in packed} | {f"{part}_labels": labels[part] for part in packed}
    np.savez(folder / "modelnet10_vox24.npz", class_names=np.array(["bed", "sofa"]), **arrays)


def test_empty_and_repeated_grids_are_left_out(tmp_path):
    grids = RNG.random((30, 24, 24, 24)) < 0.1
    grids[3], grids[7] = False, grids[5]
    test = np.stack([grids[9], *(RNG.random((3, 24, 24, 24)) < 0.1), np.zeros((24, 24, 24), bool)])
    write(tmp_path, {"train": grids, "test": test}, {"train": np.arange(30) % 2, "test": np.arange(5) % 2})
    data = ModelNet10(str(tmp_path), points=16)
    sizes = [len(data.load(split)) for split in ("train", "val", "test")]
    assert sizes == [24, 3, 4]  # 30 without the empty one, the one that is also in test, and a repeated one
    assert data.labels() == ["bed", "sofa"]
    assert len(data.quick().load("train")) == 24


def test_points_come_from_surface_voxels():
    grid = np.zeros((24, 24, 24), bool)
    grid[4:9, 4:9, 4:9] = True
    points = modelnet10._surface_points(np.packbits(grid), 4000, RNG)
    voxels = np.floor((points + 1) * 12).astype(int)
    assert voxels.min() == 4
    assert voxels.max() == 8
    assert not ((voxels > 4) & (voxels < 8)).all(1).any()
    assert len(np.unique(voxels, axis=0)) == 5**3 - 3**3


@pytest.mark.skipif(not any((folder / "modelnet10").is_dir() for folder in data_dirs()), reason="needs modelnet10")
@pytest.mark.long
def test_the_splits_of_modelnet10_have_the_documented_sizes():
    data = ModelNet10(points=8)
    assert [len(data.load(split)) for split in ("train", "val", "test")] == [3362, 374, 907]
