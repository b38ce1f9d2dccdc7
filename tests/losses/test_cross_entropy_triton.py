"""The Triton kernel equals the PyTorch form: in Triton's interpreter on a CPU, compiled on a GPU."""

import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

from regard.losses import fused_linear_cross_entropy as plain
from regard.losses.cross_entropy_triton import cross_entropy_with_grad
from regard.losses.fused_linear_cross_entropy import IGNORE_INDEX, can_use_triton
from regard.losses.label_smoothed_cross_entropy import label_smoothed_cross_entropy

ROWS, VOCAB = 5, 70
CASES = [(columns, smoothing) for columns in (VOCAB, 96) for smoothing in (0.0, 0.1)]
CODE = """
import sys, torch
from regard.losses import cross_entropy_triton as kernel
kernel.TILE_SIZE = 32  # several tiles, the last one not full
found = []
for case in torch.load(sys.argv[1]):
    both = kernel.cross_entropy_with_grad(**case)
    if case["z"].shape[1] == case["vocab"]:  # the differentiable form has no padded columns
        z = case["z"].clone().requires_grad_()
        loss = kernel.fused_cross_entropy(z, case["target"], case["label_smoothing"])
        both += loss.detach(), torch.autograd.grad(0.3 * loss, z)[0]
    found.append(both)
torch.save(found, sys.argv[2])
"""


def random_inputs(columns=VOCAB, device="cpu", dtype=torch.float32, rows=ROWS, vocab=VOCAB):
    z = 3 * torch.randn(rows, columns, generator=torch.Generator().manual_seed(1))
    z[1, 3] = 80.0  # far above the others, in the first tile
    target = (torch.arange(rows) * 16 % vocab).repeat_interleave(2)[::2]  # as of rows cut to one token: not contiguous
    target[2] = IGNORE_INDEX
    return {"z": z.to(device, dtype), "target": target.to(device), "vocab": vocab}


def reference(z, target, vocab, label_smoothing):
    z = z.double()
    each = [
        plain._chunk_loss(a, b, vocab, label_smoothing)[0]
        for a, b in zip(z.clone().split(1), target.split(1), strict=True)
    ]
    _, logp = plain._chunk_loss(z, target, vocab, label_smoothing)
    return torch.stack(each), plain._logit_grad(logp, target, vocab, label_smoothing)


def test_loss_and_gradient_equal_the_reference(tmp_path):
    pytest.importorskip("triton")
    cases = [random_inputs(columns) | {"label_smoothing": smoothing} for columns, smoothing in CASES]
    torch.save(cases, tmp_path / "cases.pt")
    command = [sys.executable, "-c", CODE, str(tmp_path / "cases.pt"), str(tmp_path / "found.pt")]
    subprocess.run(command, check=True, env=os.environ | {"TRITON_INTERPRET": "1"}, timeout=600)
    for case, found in zip(cases, torch.load(tmp_path / "found.pt"), strict=True):
        losses, g = expected = reference(**case)
        expected += (losses.sum(), 0.3 * g) if len(found) == 4 else ()
        for actual, right in zip(found, expected, strict=True):
            torch.testing.assert_close(actual.double(), right, rtol=1e-5, atol=1e-5)
        assert (expected[1][2] == 0).all()  # the row whose target is ignored


def test_cpu_tensors_do_not_use_the_kernel():
    assert not can_use_triton(torch.zeros(2, 3))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_kernel_on_a_gpu_equals_the_reference(dtype, smoothing):
    inputs = random_inputs(50304, "cuda", dtype, rows=64, vocab=50257) | {"label_smoothing": smoothing}
    assert can_use_triton(inputs["z"])
    near = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 8e-3, "atol": 1e-4}
    for actual, right in zip(cross_entropy_with_grad(**inputs), reference(**inputs), strict=True):
        torch.testing.assert_close(actual.double(), right, **near)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("vocab", [1, 65, 10_000])
def test_the_loss_of_translations_is_that_of_pytorch_in_value_and_gradient(vocab):
    inputs = random_inputs(vocab, "cuda", torch.bfloat16, rows=33, vocab=vocab) if vocab > 3 else {
        "z": torch.zeros(33, 1, device="cuda"), "target": torch.zeros(33, dtype=torch.long, device="cuda")
    }  # fmt: skip
    z, target = inputs["z"][None].requires_grad_(), inputs["target"][None]
    again = z.detach().double().requires_grad_()
    found = label_smoothed_cross_entropy(z, target, 0.1) * 0.3
    expected = F.cross_entropy(again[0], target[0], ignore_index=-100, label_smoothing=0.1, reduction="sum") * 0.3
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
    one, other = (torch.autograd.grad(loss, x)[0] for loss, x in ((found, z), (expected, again)))
    torch.testing.assert_close(one.double(), other, rtol=8e-3, atol=1e-4)
