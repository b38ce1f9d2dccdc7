"""The local relation layer equals its form with copied neighbourhoods; its weights can be watched."""

import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

import regard
from regard.blocks.local_relation import LocalRelation, neighbours_inside
from regard.core.errors import BadInput


def unfold_form(layer, x):
    """The paper's formula with every neighbourhood copied."""
    channels, kernel, stride, shared = x.shape[1], layer.kernel, layer.stride, layer.shared

    def neighbours(grid):
        return F.unfold(grid, kernel, padding=kernel // 2, stride=stride).unflatten(1, (grid.shape[1], -1))

    q = layer.query(x)[:, :, ::stride, ::stride]
    scores = q.flatten(2)[:, :, None] * neighbours(layer.key(x)) + layer.prior().T[None, :, :, None]
    outside = neighbours(torch.ones_like(x[:1, :1]))[:, :1] == 0
    weights = scores.masked_fill(outside, float("-inf")).softmax(2)
    each = weights.repeat_interleave(shared, 1)[:, :channels]
    return layer.out((each * neighbours(x)).sum(2).unflatten(2, q.shape[2:]))


@pytest.mark.parametrize("stride", [1, 2])
def test_equals_the_form_with_unfold_in_value_and_gradient(stride):
    for channels, kernel, size in ((16, 3, (7, 5)), (12, 7, (9, 10)), (8, 5, (1, 3)), (3, 1, (4, 4))):
        layer = LocalRelation(channels, kernel, stride).double()
        x = torch.randn(2, channels, *size, dtype=torch.float64, requires_grad=True)
        given, parameters = layer(x), [x, *layer.parameters()]
        expected = unfold_form(layer, x)
        torch.testing.assert_close(given, expected, rtol=1e-12, atol=1e-12)
        into = torch.randn_like(given)
        found, wanted = (torch.autograd.grad(y, parameters, into) for y in (given, expected))
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-11)


def test_without_scores_it_is_the_mean_of_the_cells_inside():
    layer = LocalRelation(6, 3).double()
    with torch.no_grad():
        for part in (layer.query, layer.prior.score):
            part.weight.zero_()
            part.bias.zero_()
    x = torch.randn(2, 6, 5, 8, dtype=torch.float64)
    mean = F.avg_pool2d(x, 3, 1, 1, count_include_pad=False)
    torch.testing.assert_close(layer(x), layer.out(mean), rtol=1e-12, atol=1e-12)


def test_neighbours_at_the_edge_are_no_keys():
    inside = neighbours_inside((3, 4), 3, 2, torch.device("cpu"))
    assert inside.shape == (9, 2, 2)
    assert inside[:, 0, 0].tolist() == [False] * 4 + [True] * 2 + [False] + [True] * 2


@pytest.mark.parametrize("stride", [1, 2])
def test_watched_weights_are_those_of_the_sum(stride):
    layer = LocalRelation(8, 3, stride).double()
    x = torch.randn(2, 8, 5, 6, dtype=torch.float64)
    with regard.watch(torch.nn.Sequential(layer)) as seen, torch.no_grad():
        out = layer(x)
    (trace,) = seen.traces("self")
    operator = trace.operator()  # B 1 out inn: one group
    torch.testing.assert_close(operator.sum(-1), torch.ones_like(operator[..., 0]))
    mixed = (x.flatten(2) @ operator[:, 0].mT).unflatten(2, out.shape[2:])
    torch.testing.assert_close(layer.out(mixed), out)


def test_an_even_kernel_is_refused():
    with pytest.raises(BadInput, match="kernel must be odd"):
        LocalRelation(8, 4)


# -- kernels -----------------------------------------------------------------------------------------------------------

# channels, kernel, shared, stride, size: the last group smaller, several programs, a kernel larger than the grid
CASES = [
    (12, 3, 8, 1, (7, 5)),
    (16, 5, 8, 2, (9, 10)),
    (6, 7, 4, 1, (2, 3)),
    (8, 3, 8, 1, (13, 11)),
    (5, 3, 2, 2, (1, 4)),
]
CODE = """
import sys, torch
from regard.blocks.local_relation import LocalRelation
from regard.blocks import local_relation_triton as kernels
kernels.MAX_BLOCK = 64
found = []
for (channels, kernel, shared, stride, size), state, x, into in torch.load(sys.argv[1]):
    layer = LocalRelation(channels, kernel, stride, shared)
    layer.load_state_dict(state)
    layer._can_fuse = lambda x: True
    x.requires_grad_()
    out = layer(x)
    found.append((out.detach(), torch.autograd.grad(out, [x, *layer.parameters()], into)))
torch.save(found, sys.argv[2])
"""


@pytest.mark.long
def test_interpreted_kernels_equal_the_plain_form_in_value_and_gradient(tmp_path):
    pytest.importorskip("triton")
    given, wanted = [], []
    for channels, kernel, shared, stride, size in CASES:
        layer = LocalRelation(channels, kernel, stride, shared)
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.3)
        x = torch.randn(2, channels, *size)
        precise, again = layer.double(), x.double().requires_grad_()
        out = precise(again)
        into = torch.randn_like(out)
        wanted.append((out.detach(), torch.autograd.grad(out, [again, *precise.parameters()], into)))
        state = {name: value.float() for name, value in layer.state_dict().items()}
        given.append(((channels, kernel, shared, stride, size), state, x, into.float()))
    torch.save(given, tmp_path / "given.pt")
    command = [sys.executable, "-c", CODE, str(tmp_path / "given.pt"), str(tmp_path / "found.pt")]
    subprocess.run(command, check=True, env=os.environ | {"TRITON_INTERPRET": "1"}, timeout=600)
    for (out, grads), (right, rights) in zip(torch.load(tmp_path / "found.pt"), wanted, strict=True):
        torch.testing.assert_close(out.double(), right, rtol=1e-4, atol=1e-5)
        for one, other in zip(grads, rights, strict=True):
            torch.testing.assert_close(one.double(), other, rtol=1e-3, atol=1e-4)


def test_kernels_are_not_used_on_a_cpu():
    layer = LocalRelation(8, 3)
    assert not layer._can_fuse(torch.zeros(1, 8, 4, 4))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_kernels_on_a_gpu_equal_the_plain_form_in_value_and_gradient(dtype, compiled, unchecked):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    for channels, kernel, shared, stride, size in [*CASES, (100, 7, 8, 1, (28, 28)), (48, 7, 8, 2, (32, 32))]:
        layer = LocalRelation(channels, kernel, stride, shared).cuda()
        x = torch.randn(3, channels, *size, device="cuda", requires_grad=True)
        precise = LocalRelation(channels, kernel, stride, shared).cuda().double()
        precise.load_state_dict(layer.state_dict())
        again = x.detach().double().requires_grad_()
        run = torch.compile(layer) if compiled else layer
        with torch.autocast("cuda", dtype=dtype, enabled=dtype != torch.float32):
            assert layer._can_fuse(x)
            out = run(x)
        expected = precise(again)
        into = torch.randn_like(expected)
        found = torch.autograd.grad(out, [x, *layer.parameters()], into.to(out.dtype))
        wanted = torch.autograd.grad(expected, [again, *precise.parameters()], into)
        # near: the gradient of the key's bias is 0 but for rounding
        far, near = (1e-4, 1e-5) if dtype == torch.float32 else (3e-2, 1e-2)
        for one, other in zip((out, *found), (expected, *wanted), strict=True):
            assert (one.double() - other).norm() <= far * other.norm() + near


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_watched_layers_on_a_gpu_show_their_weights():
    layer = LocalRelation(8, 3).cuda()
    x = torch.randn(2, 8, 5, 6, device="cuda")
    with torch.no_grad(), regard.watch(torch.nn.Sequential(layer)) as seen:
        shown = layer(x)
        assert len(seen.traces("self")) == 1
    with torch.no_grad():
        torch.testing.assert_close(layer(x), shown, rtol=1e-4, atol=1e-5)
