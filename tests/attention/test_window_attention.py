"""Attention within windows: the plain form beside a mask over the whole grid, the kernel beside the plain form."""

import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

from regard.attention.window_attention import kernel_supports, window_attention_qkv
from regard.core.errors import BadInput, UnknownName, Unsupported

# batch, grid, heads, head width, window, shift, real, bias, scale by head, unit, layout
CASES = {
    "49 cells": {"grid": (14, 7), "window": (7, 7), "batch": 1},
    "49 cells, shifted": {"grid": (14, 14), "window": (7, 7), "shift": (3, 3), "width": 32, "batch": 1},
    "49 cells, shifted, padding": {"grid": (14, 14), "window": (7, 7), "shift": (3, 3), "real": (9, 13), "heads": 1},
    "64 cells of cosine": {
        "grid": (8, 16),
        "window": (8, 8),
        "shift": (0, 4),
        "cosine": True,
        "scaled": True,
        "width": 32,
        "batch": 1,
    },
    "16 cells": {"grid": (8, 8), "window": (4, 4), "shift": (2, 2), "heads": 3},
    "a width of 24, no bias": {"grid": (6, 9), "window": (3, 3), "shift": (1, 1), "width": 24, "biased": False},
    "a width of 20, windows not square": {
        "grid": (6, 10),
        "window": (3, 5),
        "shift": (1, 2),
        "width": 20,
        "scaled": True,
    },
    "a grid that is no multiple": {"grid": (7, 10), "window": (4, 4), "shift": (2, 2), "width": 8},
    "windows of padding alone": {"grid": (12, 8), "window": (4, 4), "real": (3, 8), "width": 8, "cosine": True},
    "head by head": {"grid": (8, 4), "window": (4, 4), "shift": (2, 0), "heads": 3, "by_head": True},
    "many windows a program": {"grid": (4, 6), "window": (2, 3), "shift": (1, 1), "batch": 5, "width": 8},
}
CODE = """
import sys, torch
from regard.attention import window_attention_triton as window_kernel
from tests.attention.test_window_attention import both
window_kernel.FORWARD.programs = window_kernel.BACKWARD.programs = 7  # so that each walks over several windows
torch.save({name: both(case, "triton") for name, case in torch.load(sys.argv[1]).items()}, sys.argv[2])
"""


def case(
    grid, window, shift=(0, 0), real=None, batch=2, heads=2, width=16, biased=True, scaled=False, cosine=False,
    by_head=False, dtype=torch.float32, device="cpu",
):  # fmt: skip
    g = torch.Generator().manual_seed(1)
    cells = window[0] * window[1]
    shape = (batch, *grid, heads, 3, width) if by_head else (batch, *grid, 3, heads, width)
    qkv = torch.randn(shape, generator=g, dtype=torch.float64)
    return {
        "qkv": (qkv.transpose(3, 4) if by_head else qkv).to(device, dtype),
        "bias": torch.randn(heads, cells, cells, generator=g, dtype=torch.float64).to(device) if biased else None,
        "scale": (1 + torch.rand(heads, generator=g, dtype=torch.float64)).to(device) if scaled else width**-0.5,
        "slope": torch.randn(batch, *grid, heads, width, generator=g, dtype=torch.float64).to(device, dtype),
        "how": {"window": window, "shift": shift, "real": real or grid, "cosine": cosine},
    }


def both(case, backend, dtype=None):
    """The output, and the gradients by qkv, bias and scale."""
    exact = dtype or torch.float32
    qkv = case["qkv"].to(dtype or case["qkv"].dtype).detach().requires_grad_()
    others = {name: case[name] for name in ("bias", "scale") if isinstance(case[name], torch.Tensor)}
    others = {name: x.to(exact).detach().requires_grad_() for name, x in others.items()}
    given = {"bias": None, "scale": case["scale"]} | others
    out = window_attention_qkv(qkv, given["bias"], scale=given["scale"], backend=backend, **case["how"])
    slopes = torch.autograd.grad(out, [qkv, *others.values()], case["slope"].to(out.dtype))
    return [out.detach(), *slopes]


def close(found, right, much):
    for mine, wanted in zip(found, right, strict=True):
        assert torch.isfinite(mine).all()
        wanted = wanted.double()
        assert (mine.double() - wanted).norm() <= much * wanted.norm()


@pytest.mark.parametrize("name", CASES)
def test_windows_are_the_whole_grid_with_a_mask(name):
    made = case(**CASES[name], dtype=torch.float64)
    (wy, wx), (sy, sx), (ry, rx) = made["how"]["window"], made["how"]["shift"], made["how"]["real"]
    qkv, bias, scale = made["qkv"], made["bias"], made["scale"]
    rows, columns = qkv.shape[1:3]
    whole = -(-rows // wy) * wy, -(-columns // wx) * wx
    cells = [(y, x) for y in range(rows) for x in range(columns)]
    allowed = torch.zeros(len(cells), len(cells), dtype=torch.bool)
    added = torch.zeros(qkv.shape[4], len(cells), len(cells), dtype=torch.float64)
    placed = []
    for y, x in cells:  # the window of each cell, its place there, and whether the shift carried it to the other end
        a, b = (y - sy) % whole[0], (x - sx) % whole[1]
        placed.append(((a // wy, b // wx, y < sy, x < sx), a % wy * wx + b % wx))
    for n, (mine, place) in enumerate(placed):
        for m, (other, there) in enumerate(placed):
            allowed[n, m] = mine == other and cells[m][0] < ry and cells[m][1] < rx
            if bias is not None and mine == other:
                added[:, n, m] = bias[:, place, there]
    q, k, v = qkv.flatten(1, 2).permute(2, 0, 3, 1, 4)
    if made["how"]["cosine"]:
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    scores = (q @ k.mT) * (scale[:, None, None] if isinstance(scale, torch.Tensor) else scale) + added
    weights = scores.masked_fill(~allowed, -torch.inf).softmax(-1).nan_to_num()  # a row that sees nothing: zeros
    wanted = (weights @ v).transpose(1, 2).unflatten(1, (rows, columns))
    wanted[:, ry:], wanted[:, :, rx:] = 0, 0
    out = window_attention_qkv(qkv, bias, scale=scale, **made["how"])
    torch.testing.assert_close(out, wanted, rtol=1e-12, atol=1e-12)


def test_a_padded_cell_has_no_influence():
    made = case(grid=(8, 8), window=(4, 4), shift=(2, 2), real=(7, 5), dtype=torch.float64)
    before = window_attention_qkv(made["qkv"], made["bias"], scale=0.3, **made["how"])
    made["qkv"][:, 7:] += 100
    made["qkv"][:, :, 5:] += 100
    assert torch.equal(window_attention_qkv(made["qkv"], made["bias"], scale=0.3, **made["how"]), before)


def test_what_does_not_fit_is_told():
    made = case(grid=(6, 9), window=(3, 3))
    qkv, how = made["qkv"], made["how"] | {"scale": 1.0}
    with pytest.raises(UnknownName, match="triton"):
        window_attention_qkv(qkv, None, backend="tritom", **how)
    with pytest.raises(BadInput, match="shift"):
        window_attention_qkv(qkv, None, **how | {"shift": (3, 0)})
    with pytest.raises(BadInput, match="real"):
        window_attention_qkv(qkv, None, **how | {"real": (7, 9)})
    with pytest.raises(BadInput, match="2, 9, 9"):
        window_attention_qkv(qkv, made["bias"][:, :8, :8], **how)
    if not kernel_supports(qkv, (3, 3)):
        with pytest.raises(Unsupported, match="eager"):
            window_attention_qkv(qkv, None, backend="triton", **how)


def test_the_kernel_gives_value_and_gradient_of_the_plain_form(tmp_path):
    pytest.importorskip("triton")
    made = {name: case(**about) for name, about in CASES.items()}
    torch.save(made, tmp_path / "cases.pt")
    command = [sys.executable, "-c", CODE, str(tmp_path / "cases.pt"), str(tmp_path / "found.pt")]
    subprocess.run(command, check=True, env=os.environ | {"TRITON_INTERPRET": "1"}, timeout=600)
    found = torch.load(tmp_path / "found.pt")
    for name, about in made.items():
        close(found[name], both(about, "eager", torch.float64), 1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", CASES)
def test_the_kernel_on_a_gpu_gives_the_same(name, dtype):
    made = case(**CASES[name], dtype=dtype, device="cuda")
    much = {torch.float32: 2e-5, torch.float16: 3e-3, torch.bfloat16: 2e-2}[dtype]
    close(both(made, "triton"), both(made, "eager", torch.float64), much)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_kernel_stays_in_a_compiled_graph(unchecked):
    made = case(grid=(14, 14), window=(7, 7), shift=(3, 3), width=32, dtype=torch.bfloat16, device="cuda")
    qkv, bias = made["qkv"].requires_grad_(), made["bias"].float().requires_grad_()

    def run(qkv, bias):
        return window_attention_qkv(2 * qkv, bias, scale=made["scale"], backend="triton", **made["how"]) + 1

    wanted = torch.autograd.grad(run(qkv, bias), [qkv, bias], made["slope"])
    found = torch.autograd.grad(torch.compile(run, fullgraph=True)(qkv, bias), [qkv, bias], made["slope"])
    close(found, wanted, 1e-3)
