"""Point Transformer and PointNet: padding and the order of the points change nothing, and the layers are those of a
loop over the points, in value and gradient."""

import os
import subprocess
import sys

import pytest
import torch

import regard
from regard.blocks.points import farthest_point_sampling, knn
from regard.core.errors import BadInput
from regard.models import build, point_transformer
from regard.models.point_transformer import PointSet, VectorAttention

LENGTHS = torch.tensor([23, 9, 2])


@pytest.fixture(autouse=True)
def _double(double):
    pass


def clouds():
    x = torch.randn(3, 23, 5)
    return x, torch.where(torch.arange(23)[:, None] < LENGTHS[:, None, None], x, 1e3)


def models(head):
    for name, settings in (
        ("point_transformer", {}),
        ("point_transformer", {"widths": (8, 12, 12), "layers": (1, 2, 1), "share": 4}),
        ("pointnet", {}),
    ):
        yield build(name, size="tiny", input_dim=5, head=head, **settings).eval()


@pytest.mark.parametrize("head", ["cloud", "points"])
def test_the_order_of_the_points_changes_nothing_or_permutes_the_result(head):
    x, order = clouds()[0], torch.randperm(23)
    for model in models(head):
        out, moved = model(x), model(x[:, order])
        assert out.shape == ((3, 5) if head == "cloud" else (3, 23, 5))
        torch.testing.assert_close(moved, out if head == "cloud" else out[:, order])
        other = model(torch.cat([x[:, :-1], x[:, -1:] + 1], 1))
        assert not torch.allclose(other, out)  # every point counts


@pytest.mark.parametrize("head", ["cloud", "points"])
def test_a_batch_of_clouds_equals_its_singles_whatever_the_padding(head):
    x, loud = clouds()
    for model in models(head):
        out, again = model(x, LENGTHS), model(loud, LENGTHS)
        for b, n in enumerate(LENGTHS.tolist()):
            single = model(x[b : b + 1, :n])[0]
            torch.testing.assert_close(out[b] if head == "cloud" else out[b, :n], single)
            torch.testing.assert_close(again[b] if head == "cloud" else again[b, :n], single)
        assert torch.isfinite(model(x, torch.tensor([23, 0, 2]))).all()


@pytest.mark.parametrize("share", [1, 3])
def test_vector_attention_is_a_loop_over_points_neighbours_and_channels_in_value_and_gradient(share):
    layer = VectorAttention(6, share)
    points, x = torch.randn(2, 7, 3), torch.randn(2, 7, 6, requires_grad=True)
    index = torch.stack([torch.randperm(7)[:4] for _ in range(14)]).view(2, 7, 4)
    exists = torch.rand(2, 7, 4) < 0.7
    exists[..., 0] = True
    cells = torch.arange(7).expand(2, 7)
    out = layer(PointSet(x, points, None, cells, index, exists, 7))
    rows = []
    for b in range(2):
        for i in range(7):
            scores, values = [], []
            for j in index[b, i][exists[b, i]]:
                position = layer.position(points[b, i] - points[b, j])
                scores.append(layer.weigh(layer.q(x[b, i]) - layer.k(x[b, j]) + position))
                values.append(layer.v(x[b, j]) + position)
            row = []
            for channel in range(6):
                exps = [score[channel // share].exp() for score in scores]
                row.append(sum(e * v[channel] for e, v in zip(exps, values, strict=True)) / sum(exps))
            rows.append(torch.stack(row))
    expected = torch.stack(rows).view(2, 7, 6)
    torch.testing.assert_close(out, expected)
    seed = torch.randn_like(out)
    of = [x, *layer.parameters()]
    for a, b in zip(*(torch.autograd.grad((y * seed).sum(), of) for y in (out, expected)), strict=True):
        torch.testing.assert_close(a, b)


def test_a_stage_keeps_the_farthest_points_with_the_largest_features_of_their_neighbours():
    model, x = build("point_transformer", size="tiny", input_dim=5).eval(), clouds()[0]
    first, second = model.encode(x, LENGTHS)
    assert second.lengths.tolist() == [6, 3, 1]
    for b, n in enumerate(LENGTHS.tolist()):
        chosen = farthest_point_sampling(x[b : b + 1, :n, :3], -(-n // 4))[0]
        assert second.cells[b, : len(chosen)].tolist() == chosen.tolist()
        torch.testing.assert_close(second.points[b, : len(chosen)], x[b, chosen, :3])
    down = model.down[0](first)
    near = (x[0, second.cells[0, 2], :3] - x[0, :, :3]).norm(dim=-1).argsort()[:4]
    torch.testing.assert_close(down.x[0, 2], model.down[0].linear(first.x[:1, near])[0].amax(0))


def test_watch_has_a_map_of_every_channel_on_the_points_of_the_input():
    model, x = build("point_transformer", size="tiny", input_dim=5, share=2).eval(), clouds()[0]
    with torch.no_grad(), regard.watch(model) as seen:
        out = model(x, LENGTHS)
    assert torch.equal(out, model(x, LENGTHS))
    for name, channels, kept in (("stages.0.0.mix", 4, 9), ("stages.1.0.mix", 6, 3)):
        maps = seen[name].batch_item(1).operator()
        assert maps.shape == (1, channels, 23, 23)
        rows = maps[0].sum(-1)  # of points that are there one, of others zero
        assert ((rows - 1).abs() < 1e-9).sum().item() == channels * kept
        assert (rows.abs() < 1e-9).sum().item() == channels * (23 - kept)
        assert not maps[..., 9:].any()  # padding gets nothing
        assert (maps[0, 0] > 0).sum(-1).max() <= 4  # neighbours


def test_a_cloud_of_fewer_points_than_neighbours_and_of_equal_points_is_an_input():
    model = build("point_transformer", size="tiny").eval()
    assert torch.isfinite(model(torch.randn(1, 1, 3))).all()
    assert torch.isfinite(model(torch.zeros(2, 9, 3))).all()


def test_settings_that_do_not_fit_are_refused():
    with pytest.raises(BadInput, match="one number for each stage"):
        build("point_transformer", widths=(8,), layers=(1, 1))
    with pytest.raises(BadInput, match="share=5"):
        build("point_transformer", size="tiny", share=5)


def point_set(points, x, neighbors, lengths=None):
    n = points.shape[1]
    return PointSet(x, points, lengths, torch.arange(n).expand(len(x), n), *knn(points, points, neighbors, lengths), n)


def values_and_gradients(layer, s, into):
    out = layer(s)
    return [out.detach(), *torch.autograd.grad(out, [s.x, *layer.parameters()], into)]


@pytest.mark.parametrize("kept", [0, 10**9])
def test_points_taken_in_chunks_give_the_same_values_and_gradients(kept, monkeypatch):
    points, x = torch.randn(2, 23, 3), torch.randn(2, 23, 6, requires_grad=True)
    layer, s = VectorAttention(6, 3), point_set(points, x, 4, torch.tensor([23, 3]))
    into = torch.randn(2, 23, 6)
    whole = values_and_gradients(layer, s, into)
    monkeypatch.setattr(point_transformer, "CHUNK", 5 * 2 * 4 * 6)  # five points at a time
    monkeypatch.setattr(point_transformer, "MAX_KEPT", kept)
    calls = []
    monkeypatch.setattr(layer, "mix", lambda *given: calls.append(1) or VectorAttention.mix(layer, *given))
    for one, other in zip(values_and_gradients(layer, s, into), whole, strict=True):
        torch.testing.assert_close(one, other)
    assert len(calls) == (5 if kept else 10)  # computed once more where nothing is kept


# -- kernels -----------------------------------------------------------------------------------------------------------

CODE = """
import sys, torch
from regard.blocks import vector_attention_triton as kernels
from regard.models.point_transformer import PointSet, VectorAttention
kernels.CHUNK = 2000
found = []
for width, share, state, x, points, index, exists, into in torch.load(sys.argv[1]):
    layer = VectorAttention(width, share)
    layer.load_state_dict(state)
    layer._can_fuse = lambda s: True
    x.requires_grad_()
    cells = torch.arange(x.shape[1]).expand(x.shape[:2])
    out = layer(PointSet(x, points, None, cells, index, exists, x.shape[1]))
    found.append([out.detach(), *torch.autograd.grad(out, [x, *layer.parameters()], into)])
torch.save(found, sys.argv[2])
"""


@pytest.mark.long
def test_interpreted_kernels_equal_the_plain_form_in_value_and_gradient(tmp_path):
    pytest.importorskip("triton")
    given, wanted = [], []
    for width, share, n, neighbors in ((6, 1, 7, 3), (12, 4, 37, 5), (16, 1, 40, 16)):
        layer, points = VectorAttention(width, share), torch.randn(2, n, 3).float()
        s = point_set(points.double(), torch.randn(2, n, width, requires_grad=True), neighbors, torch.tensor([n, 2]))
        into = torch.randn(2, n, width)
        wanted.append(values_and_gradients(layer, s, into))
        state = {name: value.float() for name, value in layer.state_dict().items()}
        given.append((width, share, state, s.x.detach().float(), points, s.index, s.exists, into.float()))
    torch.save(given, tmp_path / "given.pt")
    command = [sys.executable, "-c", CODE, str(tmp_path / "given.pt"), str(tmp_path / "found.pt")]
    subprocess.run(command, check=True, env=os.environ | {"TRITON_INTERPRET": "1"}, timeout=600)
    for found, right in zip(torch.load(tmp_path / "found.pt"), wanted, strict=True):
        for one, other in zip(found, right, strict=True):
            torch.testing.assert_close(one.double(), other, rtol=1e-3, atol=1e-4)


def test_kernels_are_not_used_on_a_cpu():
    assert not VectorAttention(6)._can_fuse(point_set(torch.randn(1, 7, 3), torch.randn(1, 7, 6), 3))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("dtype", "width"), [(torch.float32, 24), (torch.float32, 64), (torch.bfloat16, 128)])
def test_kernels_equal_the_plain_form_on_a_gpu(dtype, width, compiled, monkeypatch):
    layer, points = VectorAttention(width, 2).float().cuda(), torch.randn(2, 300, 3, dtype=torch.float32).cuda()
    x = torch.randn(2, 300, width, dtype=torch.float32, device="cuda", requires_grad=True)
    lengths = torch.tensor([300, 5], device="cuda")
    near = knn(points, points, 16, lengths)
    s = PointSet(x, points, lengths, torch.arange(300, device="cuda").expand(2, 300), *near, 300)
    into = torch.randn(2, 300, width, dtype=torch.float32, device="cuda")
    into[1, 5:] = 0  # padding counts nowhere
    run = torch.compile(layer) if compiled else layer
    found = []
    with torch.autocast("cuda", dtype=dtype, enabled=dtype != torch.float32):
        assert layer._can_fuse(s)
        out = run(s)
    found = [out.detach().float(), *torch.autograd.grad(out, [x, *layer.parameters()], into.to(out.dtype))]
    monkeypatch.setattr(layer, "_can_fuse", lambda s: False)
    right = values_and_gradients(layer, s, into)
    for one, other in zip(found, right, strict=True):
        size = other.abs().max().clamp(min=1e-3)
        assert (one - other).abs().max() < (2e-4 if dtype == torch.float32 else 4e-2) * size + 1e-4
