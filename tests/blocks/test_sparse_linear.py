"""A linear map of mostly zeros: a list of the other entries gives what the dense product gives."""

import pytest
import torch

from regard.blocks.sparse_linear import SparseLinear
from regard.core.tensor_memo import TensorMemo


@pytest.fixture(autouse=True)
def _small(monkeypatch, double):
    monkeypatch.setattr(TensorMemo, "LARGE", 1)


def mostly_zeros(b=2, n=11, width=50):
    x = torch.zeros(b, n, width)
    x[:, torch.arange(n), torch.arange(n) * 3] = torch.randn(b, n)
    x[1:, 4] = 0  # a row without entries
    return x


@pytest.mark.parametrize("bias", [True, False])
def test_entries_give_the_dense_product_in_value_and_gradient(bias, monkeypatch):
    x, layer = mostly_zeros(), SparseLinear(50, 6, bias)
    found = layer(x)
    torch.testing.assert_close(found, torch.nn.functional.linear(x, layer.weight, layer.bias))
    gradients = torch.autograd.grad(found.sin().sum(), list(layer.parameters()))
    dense = torch.nn.functional.linear(x, layer.weight, layer.bias)
    for a, b in zip(gradients, torch.autograd.grad(dense.sin().sum(), list(layer.parameters())), strict=True):
        torch.testing.assert_close(a, b)
    monkeypatch.setattr(torch.nn.functional, "embedding_bag", None)  # an input of many entries never gets there
    torch.testing.assert_close(layer(x + 1), layer(x.requires_grad_() + 1))


def test_dropout_drops_entries_and_keeps_the_mean():
    x, layer = mostly_zeros(1, 15), SparseLinear(50, 50, bias=False, dropout=0.75).train()
    torch.nn.init.eye_(layer.weight)
    ratios = torch.stack([layer(x)[0, n, 3 * n] / x[0, n, 3 * n] for n in range(15) for _ in range(100)])
    assert set(ratios.round(decimals=6).tolist()) == {0.0, 4.0}
    assert abs(ratios.mean() - 1) < 0.25
    torch.testing.assert_close(layer.eval()(x), x)


def test_a_result_is_kept_until_its_tensor_changes_or_dies():
    calls = []
    memo = TensorMemo(lambda x: (calls.append(1), float(x.sum()))[1])
    x = torch.ones(4)
    assert [memo(x), memo(x)] == [4, 4]
    assert len(calls) == 1
    x[0] = 3
    assert memo(x) == 6
    assert memo(torch.zeros(4)) == 0
    assert len(memo.known) == 1
    with torch.inference_mode():
        frozen = torch.ones(4)
        assert [memo(frozen), memo(frozen)] == [4, 4]
    assert len(memo.known) == 1
