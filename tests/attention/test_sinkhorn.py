"""Sparse Sinkhorn attention: equal to a loop over blocks; what the sorting network may see."""

import pytest
import torch

from regard.attention.mask import CausalMask, PaddingMask
from regard.attention.mechanisms.sinkhorn import SinkhornAttention, block_pairs
from regard.attention.mechanisms.sortcut import SortCutAttention
from regard.core.errors import Unsupported


@pytest.fixture(autouse=True)
def _double(double):
    pass


def reference(attend, h, q, k, v, causal):
    """One head of one input, from the formulas; exponentials instead of logarithms, lists instead of masks."""
    n, w = len(q), attend.block
    blocks = [list(range(start, min(start + w, n))) for start in range(0, n, w)]
    rows = []
    for i, block in enumerate(blocks):
        pooled = k[: block[0] + 1].sum(0) if causal else k[block].sum(0)
        hidden = torch.relu(pooled @ attend.first[h] + attend.first_bias[h, 0])
        score = torch.relu(hidden @ attend.second[h] + attend.second_bias[h, 0])[: len(blocks)]
        rows.append(
            (score / attend.temperature).exp() * torch.tensor([not causal or j < i for j in range(len(blocks))])
        )
    p = torch.stack(rows)
    for _ in range(attend.iterations):
        for dim in (1, 0):
            total = p.sum(dim, keepdim=True)
            p = p / torch.where(total > 0, total, 1.0)
    out = []
    for i, block in enumerate(blocks):
        sources = [j for j in range(len(blocks)) if not causal or j < i]
        filled = [t for t in range(w) if any(t < len(blocks[j]) for j in sources)]
        mixed = [
            [sum(p[i, j] * x[blocks[j][t]] for j in sources if t < len(blocks[j])) for t in filled] for x in (k, v)
        ]
        for m in block:
            seen = [x for x in block if x <= m or not causal]
            keys, values = (torch.stack([*far, *(x[s] for s in seen)]) for far, x in zip(mixed, (k, v), strict=True))
            out.append((q[m] @ keys.mT / q.shape[-1] ** 0.5).softmax(0) @ values)
    return torch.stack(out)


@pytest.mark.parametrize("causal", [False, True])
def test_it_equals_a_loop_over_blocks(causal):
    attend, lengths = SinkhornAttention(2, 6, block=3, length=14, iterations=4), torch.tensor([14, 9, 2])
    for bias in (attend.first_bias, attend.second_bias):
        torch.nn.init.normal_(bias)
    q, k, v = (torch.randn(3, 2, 14, d, requires_grad=True) for d in (6, 6, 5))
    mask = PaddingMask(lengths)
    out = attend(q, k, v, CausalMask() & mask if causal else mask)
    pairs = [
        (out[b, h, :n], reference(attend, h, q[b, h, :n], k[b, h, :n], v[b, h, :n], causal))
        for b, n in enumerate(lengths.tolist())
        for h in range(2)
    ]
    found, expected = (torch.cat(each) for each in zip(*pairs, strict=True))
    torch.testing.assert_close(found, expected)
    grads = (torch.autograd.grad(x.square().sum(), (q, k, v, *attend.parameters())) for x in (found, expected))
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other)


def test_the_permutation_is_doubly_stochastic_and_sharpens():
    k, pairs = torch.randn(2, 2, 5, 3, 6), torch.ones(2, 1, 5, 5, dtype=torch.bool)
    torch.manual_seed(0)
    soft = SinkhornAttention(2, 6, block=3, length=15, iterations=200)
    torch.manual_seed(0)
    sharp = SinkhornAttention(2, 6, block=3, length=15, iterations=200, temperature=0.2)
    for attend in (soft, sharp):
        p = attend.permutation(k, pairs, False)
        torch.testing.assert_close(p.sum(-1), torch.ones(2, 2, 5), rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(p.sum(-2), torch.ones(2, 2, 5))
    assert sharp.permutation(k, pairs, False).amax(-1).mean() > soft.permutation(k, pairs, False).amax(-1).mean()


def test_noise_is_drawn_in_training_only():
    attend = SinkhornAttention(2, 6, block=3, length=15, noise=1.0)
    q = torch.randn(1, 2, 9, 6)
    assert not torch.equal(attend(q, q, q), attend(q, q, q))
    attend.eval()
    assert torch.equal(attend(q, q, q), attend(q, q, q))


def test_more_tokens_than_the_sorting_network_knows_are_refused():
    attend, q = SinkhornAttention(2, 6, block=3, length=7), torch.randn(1, 2, 10, 6)
    attend(*(q[:, :, :9],) * 3)
    with pytest.raises(Unsupported, match="up to 3 blocks of 3 tokens, got 10"):
        attend(q, q, q)


def test_sortcut_reads_the_first_sorted_blocks_alone():
    """The last block, of two tokens, has no third one: places beyond the length are in no sorted block."""
    attend, n = SortCutAttention(2, 6, block=3, cut=2, length=14), 11
    torch.nn.init.normal_(attend.second_bias)
    q, k, v = (torch.randn(1, 2, n, d) for d in (6, 6, 5))
    blocks = torch.nn.functional.pad(k, (0, 0, 0, 1)).unflatten(2, (4, 3))
    order = attend.permutation(blocks, block_pairs(torch.ones(1, 1, 4, dtype=torch.bool), False), False)[0]
    for h in range(2):
        keys, values = [], []
        for i in range(2):
            for place in range(3):
                sources = [j for j in range(4) if 3 * j + place < n]
                keys.append(sum(order[h, i, j] * k[0, h, 3 * j + place] for j in sources))
                values.append(sum(order[h, i, j] * v[0, h, 3 * j + place] for j in sources))
        expected = (q[0, h] @ torch.stack(keys).mT / 6**0.5).softmax(-1) @ torch.stack(values)
        torch.testing.assert_close(attend(q, k, v)[0, h], expected)
