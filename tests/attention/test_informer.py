"""Informer: equal to a loop written from the paper, and uniform samples that can be repeated."""

import pytest
import torch

from regard.attention.mask import CausalMask, PaddingMask
from regard.attention.mechanisms.informer import InformerAttention


@pytest.fixture(autouse=True)
def _double(double):
    pass


@pytest.mark.parametrize("causal", [False, True])
def test_it_equals_a_loop_over_queries(causal):
    attend, lengths = InformerAttention(factor=1, seed=3), torch.tensor([20, 11, 1])
    q, k, v = (torch.randn(3, 2, 20, d, requires_grad=True) for d in (6, 6, 5))
    mask = PaddingMask(lengths)
    found = attend(q, k, v, CausalMask() & mask if causal else mask)
    samples = attend.sample(20, lengths)
    rows, expected = [], []
    for b, n in enumerate(lengths.tolist()):
        u = {20: 4, 11: 3, 1: 1}[n]  # ceil(ln(n + 1))
        for h in range(2):
            sampled = [[(q[b, h, i] @ k[b, h, j]).item() for j in samples[b, i, :u].tolist()] for i in range(n)]
            measure = [max(row) - sum(row) / n for row in sampled]
            chosen = sorted(range(n), key=lambda i, measure=measure: -measure[i])[:u]
            for i in range(n):
                end = i + 1 if causal else n
                lazy = v[b, h, :end].sum(0) if causal else v[b, h, :end].mean(0)
                full = (q[b, h, i] @ k[b, h, :end].mT / 6**0.5).softmax(0) @ v[b, h, :end]
                rows.append(found[b, h, i])
                expected.append(full if i in chosen else lazy)
    rows, expected = torch.stack(rows), torch.stack(expected)
    torch.testing.assert_close(rows, expected)
    grads = (torch.autograd.grad(x.square().sum(), (q, k, v)) for x in (rows, expected))
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other)


def test_samples_are_uniform_and_depend_on_the_seed_and_not_on_padding():
    lengths = torch.tensor([400, 57])
    samples = InformerAttention(factor=10).sample(400, lengths)
    assert torch.equal(samples, InformerAttention(factor=10).sample(400, lengths))
    assert not torch.equal(samples, InformerAttention(factor=10, seed=1).sample(400, lengths))
    assert torch.equal(samples[1:, :57, :50], InformerAttention(factor=10).sample(57, lengths[1:]))
    assert (samples[1, :, 50:] == 400).all()  # an input of 57 tokens needs 10 * 5
    counts = samples[0].flatten().bincount(minlength=400)
    assert 20 < counts.min() <= counts.max() < 120
    assert abs(float(counts.double().var()) - 60) < 15  # Poisson, about


def test_all_scores_equal_give_the_mean_either_way():
    q, v = torch.zeros(1, 1, 9, 4), torch.randn(1, 1, 9, 4)
    torch.testing.assert_close(InformerAttention(factor=1)(q, q, v), v.mean(2, keepdim=True).expand_as(v))
