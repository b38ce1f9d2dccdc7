"""The fused loss equals the plain one in value and gradient."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from regard.losses import fused_linear_cross_entropy as module
from regard.losses.fused_linear_cross_entropy import (
    IGNORE_INDEX,
    fused_linear_cross_entropy,
    fused_linear_loss_and_correct,
)


def plain(x, weight, targets, label_smoothing=0.0):
    """Reference implementation: all logits at once."""
    logits = (x @ weight.T).flatten(0, -2)
    return F.cross_entropy(
        logits, targets.flatten(), ignore_index=IGNORE_INDEX, label_smoothing=label_smoothing, reduction="sum"
    )


def random_inputs(vocab=37, dtype=torch.float64):
    x = torch.randn(3, 7, 11, dtype=dtype, requires_grad=True)
    weight = torch.randn(vocab, 11, dtype=dtype, requires_grad=True)
    targets = torch.randint(vocab, (3, 7))
    targets[0, 2:4] = targets[2, 6] = IGNORE_INDEX
    return x, weight, targets


@pytest.fixture
def padded(monkeypatch):
    """Pad the matrix on this machine too, as on a GPU."""

    def pad(weight, dtype):
        return F.pad(weight.to(dtype), (0, 0) * (weight.ndim - 1) + (0, -len(weight) % 8))

    monkeypatch.setattr(module, "_pad_rows", pad)


def check(chunk, smoothing):
    x, weight, targets = random_inputs()
    expected = plain(x, weight, targets, smoothing)
    expected_grads = torch.autograd.grad(3.7 * expected, (x, weight))
    found = fused_linear_cross_entropy(x, weight, targets, chunk, smoothing)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    for actual, reference in zip(torch.autograd.grad(3.7 * found, (x, weight)), expected_grads, strict=True):
        torch.testing.assert_close(actual, reference, rtol=1e-11, atol=1e-11)
    with torch.no_grad():
        torch.testing.assert_close(fused_linear_cross_entropy(x, weight, targets, chunk, smoothing), expected)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("chunk", [None, 1, 4, 21, 100])
def test_value_and_gradient_equal_the_plain_form(chunk, smoothing):
    check(chunk, smoothing)


@pytest.mark.usefixtures("padded")
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_padding_of_the_matrix_changes_nothing(smoothing):
    check(5, smoothing)


@pytest.mark.usefixtures("padded")
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("chunk", [None, 4])
def test_bias_gets_value_and_gradient(chunk, smoothing):
    x, weight, targets = random_inputs()
    bias = torch.randn(len(weight), dtype=torch.float64, requires_grad=True)
    logits = (x @ weight.T + bias).flatten(0, -2)
    expected = F.cross_entropy(
        logits, targets.flatten(), ignore_index=IGNORE_INDEX, label_smoothing=smoothing, reduction="sum"
    )
    expected_grads = torch.autograd.grad(3.7 * expected, (x, weight, bias))
    found = fused_linear_cross_entropy(x, weight, targets, chunk, smoothing, bias)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    for actual, reference in zip(torch.autograd.grad(3.7 * found, (x, weight, bias)), expected_grads, strict=True):
        torch.testing.assert_close(actual, reference, rtol=1e-11, atol=1e-11)
    with torch.no_grad():
        torch.testing.assert_close(fused_linear_cross_entropy(x, weight, targets, chunk, smoothing, bias), expected)
    right = (logits.argmax(-1) == targets.flatten()).sum()
    assert fused_linear_loss_and_correct(x, weight, targets, chunk, bias)[1] == right


def test_targets_may_be_int32_and_all_ignored():
    x, weight, targets = random_inputs()
    assert torch.equal(
        fused_linear_cross_entropy(x, weight, targets.int()), fused_linear_cross_entropy(x, weight, targets)
    )
    loss = fused_linear_cross_entropy(x, weight, torch.full_like(targets, IGNORE_INDEX))
    assert loss == 0
    assert all(g.abs().max() == 0 for g in torch.autograd.grad(loss, (x, weight)))


def test_a_tied_matrix_gets_both_gradients():
    embed = nn.Embedding(37, 11, dtype=torch.float64)
    tokens, targets = torch.randint(37, (2, 5)), torch.randint(37, (2, 5))
    gradients = []
    for loss in (plain, fused_linear_cross_entropy):
        embed.zero_grad()
        loss(embed(tokens).tanh(), embed.weight, targets).backward()
        gradients.append(embed.weight.grad.clone())
    torch.testing.assert_close(*gradients, rtol=1e-11, atol=1e-11)


def test_gradient_of_x_alone():
    x, weight, targets = random_inputs()
    (expected,) = torch.autograd.grad(plain(x, weight, targets), (x,))
    torch.testing.assert_close(
        torch.autograd.grad(fused_linear_cross_entropy(x, weight.detach(), targets), (x,))[0], expected
    )
    assert not fused_linear_cross_entropy(x.detach(), weight.detach(), targets).requires_grad


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.usefixtures("padded")
def test_the_form_that_is_compiled_has_the_same_gradient(monkeypatch, smoothing):
    """Compiled code runs in processes of its own; here it is taken step by step."""
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    check(4, smoothing)


def test_large_logits_stay_finite():
    x, weight, targets = random_inputs()
    found = fused_linear_cross_entropy(1e4 * x, weight, targets)
    assert found.isfinite()
    torch.testing.assert_close(found, plain(1e4 * x, weight, targets))


def test_under_autocast_products_are_bfloat16_and_sums_float32():
    torch.manual_seed(3)
    x = torch.randn(512, 64, requires_grad=True)
    weight = (0.1 * torch.randn(300, 64)).requires_grad_()
    targets = torch.randint(300, (512,))
    exact = torch.autograd.grad(plain(x.double(), weight.double(), targets), (x, weight))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = fused_linear_cross_entropy(x, weight, targets, chunk_size=64)
        mixed = plain(x, weight, targets)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, plain(x, weight, targets), rtol=1e-3, atol=0.0)
    actual, reference = torch.autograd.grad(found, (x, weight)), torch.autograd.grad(mixed, (x, weight))
    for fused, autocast, right in zip(actual, reference, exact, strict=True):
        assert fused.dtype == torch.float32
        # as near to the truth as the plain form under the same autocast
        assert (fused - right).norm() < 1.1 * (autocast - right).norm() + 1e-6
        assert (fused - right).norm() < 0.01 * right.norm()


def test_correct_counts_the_argmax():
    x, weight, targets = random_inputs()
    found = fused_linear_loss_and_correct(x, weight, targets, chunk_size=4)
    torch.testing.assert_close(found[0], plain(x, weight, targets).detach())
    assert found[1] == ((x @ weight.T).argmax(-1) == targets).sum()
    assert not found.requires_grad


def test_full_logits_are_never_materialised(monkeypatch):
    """No intermediate tensor is as large as rows x vocabulary."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Sizes(TorchDispatchMode):
        largest = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            for tensor in out if isinstance(out, (tuple, list)) else [out]:
                if isinstance(tensor, torch.Tensor):
                    Sizes.largest = max(Sizes.largest, tensor.numel())
            return out

    x = torch.randn(256, 8, requires_grad=True)
    weight, targets = torch.randn(1000, 8, requires_grad=True), torch.randint(1000, (256,))
    with Sizes():
        fused_linear_cross_entropy(x, weight, targets, chunk_size=16).backward()
    assert Sizes.largest == 16 * 1000


CODE = """
import torch
import torch.nn.functional as F
from torch._dynamo.testing import CompileCounterWithBackend
from regard.models import build
from regard.losses import fused_linear_cross_entropy as module
from regard.losses.fused_linear_cross_entropy import fused_linear_cross_entropy
module._pad_rows = lambda weight, dtype: F.pad(weight.to(dtype), (0, 0, 0, -len(weight) % 8))
torch.manual_seed(0)
model = build("gpt", size="tiny", vocab=37, width=16, heads=2, layers=2, tied={tied})
tokens, targets = torch.randint(37, (2, 9)), torch.randint(37, (2, 9))
targets[0, 3] = -100
def plain(x, weight, targets):
    return F.cross_entropy((x @ weight.T).flatten(0, 1).float(), targets.flatten(), reduction="sum")
def gradients(run, loss):
    model.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled={half}):
        value = run(tokens, targets=targets, loss=loss)
    (value / 17).backward()
    return [value.detach(), *(p.grad.clone() for p in model.parameters())]
module.CPU_CHUNK_ELEMENTS = 37 * 64
counter = CompileCounterWithBackend("{backend}")
run = torch.compile(model, backend=counter, fullgraph=True)
expected, found = gradients(model, plain), gradients(run, fused_linear_cross_entropy)
close = dict(rtol=0.1, atol=0.02) if {half} else dict(rtol=1e-4, atol=1e-6)
for a, b in zip(found, expected, strict=True):
    torch.testing.assert_close(a, b, **close)
gradients(run, fused_linear_cross_entropy)
assert counter.frame_count == 1, counter.frame_count
nested = torch.compile(fused_linear_cross_entropy, backend="{backend}")
for a, b in zip(gradients(run, nested), expected, strict=True):
    torch.testing.assert_close(a, b, **close)
"""


@pytest.mark.long
@pytest.mark.parametrize("half", [False, True])
def test_compiles_into_one_graph_with_the_model(half, python):
    python(CODE.format(tied=True, half=half, backend="aot_eager"))


@pytest.mark.long
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("half", [False, True])
def test_compiles_to_kernels_with_the_model(tied, half, python):
    python(CODE.format(tied=tied, half=half, backend="inductor"))
