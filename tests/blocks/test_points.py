"""Neighbours, samples and interpolation of point clouds equal loops over the points."""

import os
import subprocess
import sys

import pytest
import torch

from regard.blocks import points as points_module
from regard.blocks.points import PointBatchNorm, farthest_point_sampling, interpolate, knn, real_points

LENGTHS = torch.tensor([9, 1, 2, 6])


@pytest.fixture(autouse=True)
def _double(double):
    pass


def cloud():
    x = torch.randn(4, 9, 3)
    x[3, 2] = x[3, 5]  # a duplicate
    return torch.where(torch.arange(9)[:, None] < LENGTHS[:, None, None], x, 1e3)


def loop_nearest(query, points, k):
    distances = [float((query - p).square().sum()) ** 0.5 for p in points]
    return sorted(distances)[:k]


def test_neighbours_are_those_of_a_loop_in_one_chunk_or_many(monkeypatch):
    points, queries = cloud(), torch.randn(4, 5, 3)
    for chunk in (points_module.CACHED_CHUNK, 40):
        monkeypatch.setattr(points_module, "CACHED_CHUNK", chunk)
        for k in (1, 4, 20):  # more than there are points
            index, exists = knn(queries, points, k, LENGTHS)
            assert index.shape == exists.shape == (4, 5, min(k, 9))
            for b, length in enumerate(LENGTHS.tolist()):
                for n in range(5):
                    found = [float((queries[b, n] - points[b, i]).norm()) for i in index[b, n][exists[b, n]]]
                    assert found == pytest.approx(loop_nearest(queries[b, n], points[b, :length], k))
                    assert (index[b, n][exists[b, n]] < length).all()
                    assert len(set(index[b, n][exists[b, n]].tolist())) == len(found)


def loop_sampling(points, count):
    start = max(range(len(points)), key=lambda i: float((points[i] - points.mean(0)).norm()))
    chosen = [start]
    while len(chosen) < min(count, len(points)):
        rest = [i for i in range(len(points)) if i not in chosen]
        chosen.append(max(rest, key=lambda i: min(float((points[i] - points[j]).norm()) for j in chosen)))
    return chosen


def test_samples_are_those_of_a_loop_and_do_not_depend_on_the_order():
    points = cloud()
    index = farthest_point_sampling(points, 5, LENGTHS)
    for b, length in enumerate(LENGTHS.tolist()):
        expected = loop_sampling(points[b, :length], 5)
        expected += expected[:1] * (5 - len(expected))
        torch.testing.assert_close(points[b, index[b]], points[b, expected])
    order = torch.randperm(9)
    again = order[farthest_point_sampling(points[:1, order], 5)]
    assert again.tolist() == index[:1].tolist()
    same = farthest_point_sampling(torch.ones(1, 4, 3), 4)
    assert sorted(same[0].tolist()) == [0, 1, 2, 3]  # duplicates are different points


def test_interpolation_is_a_loops_in_value_and_gradient():
    points, queries, x = cloud(), torch.randn(4, 5, 3), torch.randn(4, 9, 2)
    points[3, 2] += 1  # of two points in one place, either may be the third
    x.requires_grad_()
    queries[0, 0] = points[0, 3]
    out = interpolate(x, points, queries, LENGTHS)
    torch.testing.assert_close(out[0, 0], x[0, 3])  # at a point, its features
    rows = []
    for b, length in enumerate(LENGTHS.tolist()):
        for query in queries[b]:
            distances = (query - points[b, :length]).norm(dim=-1)
            near = distances.argsort()[:3]
            weights = 1 / (distances[near] + 1e-8)
            rows.append((weights[:, None] * x[b, near]).sum(0) / weights.sum())
    expected = torch.stack(rows).view(4, 5, 2)
    torch.testing.assert_close(out, expected)
    seed = torch.randn_like(out)
    torch.testing.assert_close(*(torch.autograd.grad((each * seed).sum(), x)[0] for each in (out, expected)))
    assert not interpolate(x, points, queries, torch.zeros(4, dtype=torch.long)).any()  # no points


def test_batch_norm_takes_its_statistics_from_real_points_only():
    norm, plain, x = PointBatchNorm(3), torch.nn.BatchNorm1d(3), torch.randn(4, 9, 3)
    real = real_points(x, LENGTHS)
    loud = torch.where(real[..., None], x, 1e3)
    out = norm(loud, real)
    torch.testing.assert_close(out[real], plain(x[real]))
    assert not out[~real].any()
    for _ in range(2):
        norm(loud, real)
        plain(x[real])
    torch.testing.assert_close(norm.running_var, plain.running_var)
    torch.testing.assert_close(norm.eval()(x[:1]), plain.eval()(x[0])[None])
    torch.testing.assert_close(PointBatchNorm(3)(x), torch.nn.BatchNorm1d(3)(x.mT).mT)
    assert torch.isfinite(PointBatchNorm(3)(x[:1, :1])).all()  # a single point


# -- kernels -----------------------------------------------------------------------------------------------------------

CODE = """
import sys, torch
from regard.blocks import points, sampling_triton
sampling_triton.MAX_TILE = 16
found = []
for cloud, count, lengths in torch.load(sys.argv[1]):
    real = points.real_points(cloud, lengths)
    cloud = cloud.masked_fill(~real[..., None], 0)
    mean = cloud.sum(1, keepdim=True) / real.sum(1)[:, None, None].clamp(min=1)
    far = (cloud - mean).square().sum(-1)
    found.append(sampling_triton.fused_farthest_points(cloud, far, real, count))
torch.save(found, sys.argv[2])
"""


@pytest.mark.long
def test_the_interpreted_sampling_kernel_chooses_the_same_points(tmp_path):
    pytest.importorskip("triton")
    given = [(cloud().float(), 5, LENGTHS), (torch.randn(3, 37, 3).float(), 37, torch.tensor([37, 20, 0]))]
    torch.save(given, tmp_path / "given.pt")
    command = [sys.executable, "-c", CODE, str(tmp_path / "given.pt"), str(tmp_path / "found.pt")]
    subprocess.run(command, check=True, env=os.environ | {"TRITON_INTERPRET": "1"}, timeout=600)
    for (points, count, lengths), found in zip(given, torch.load(tmp_path / "found.pt"), strict=True):
        assert torch.equal(found, farthest_point_sampling(points, count, lengths))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("n", [300, 9000])
def test_samples_on_a_gpu_are_those_of_a_cpu(n):
    points, lengths = torch.randn(2, n, 3, dtype=torch.float32), torch.tensor([n, 7])
    found = farthest_point_sampling(points.cuda(), 64, lengths.cuda())
    assert torch.equal(found.cpu(), farthest_point_sampling(points, 64, lengths))
