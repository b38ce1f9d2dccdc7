"""Reformer: equal to a loop over rounds, chunks and tokens; shared queries and keys."""

import pytest
import torch

from regard.attention.gather import gather_tokens
from regard.attention.mask import CausalMask, PaddingMask
from regard.attention.mechanisms.reformer import ReformerAttention
from regard.attention.mixers import build_mixer
from regard.core.errors import RegardError


@pytest.fixture(autouse=True)
def _double(double):
    pass


def reference(attend, q, k, v, length, causal):
    """One head: sort by bucket, cut into chunks, attend to the own and the previous chunk, combine the rounds."""
    n, w, head = length, attend.chunk, 0
    keys = k / k.square().mean(-1, keepdim=True).add(1e-6).sqrt() / k.shape[-1] ** 0.5
    chunks, owner = [], []
    for r in range(attend.rounds):
        projected = q[:n] @ attend.rotations[head, :, r]
        bucket = torch.cat([projected, -projected], 1).argmax(1).tolist()
        order = sorted(range(n), key=lambda i, bucket=bucket: (bucket[i], i))
        for start in range(0, n, w):
            chunks.append(order[start : start + w])
            owner.append(r)
    outs, totals = torch.zeros(attend.rounds, n, v.shape[-1]), torch.zeros(attend.rounds, n)
    for c, chunk in enumerate(chunks):
        near = chunk + chunks[c - 1]  # the first looks at the last: a ring
        for i in chunk:
            seen = [j for j in near if j != i and (j <= i or not causal)]
            scores = torch.stack([q[i] @ keys[j] for j in seen]) if seen else torch.full((1,), -1e5)
            outs[owner[c], i] = scores.softmax(0) @ v[seen or [i]]
            totals[owner[c], i] = scores.logsumexp(0)
    return (totals.softmax(0)[..., None] * outs).sum(0)


@pytest.mark.parametrize("causal", [False, True])
def test_it_equals_a_loop_over_chunks(causal):
    for length, chunk, rounds in ((12, 4, 2), (11, 4, 3), (11, 3, 1), (2, 4, 2), (1, 1, 1)):
        attend = ReformerAttention(heads=1, head_dim=6, chunk=chunk, rounds=rounds, buckets=4)
        q, k, v = (torch.randn(1, 1, 12, d, requires_grad=True) for d in (6, 6, 5))
        mask = PaddingMask(torch.tensor([length]))
        found = attend(q, k, v, CausalMask() & mask if causal else mask)[0, 0, :length]
        expected = reference(attend, q[0, 0], k[0, 0], v[0, 0], length, causal)
        torch.testing.assert_close(found, expected)
        grads = (torch.autograd.grad(x.square().sum(), (q, k, v), allow_unused=True) for x in (found, expected))
        for one, other in zip(*grads, strict=True):
            torch.testing.assert_close(one if one is None else one + 0, one * 0 if other is None else other)


def test_in_one_chunk_it_is_softmax_attention_over_normalised_keys_without_the_own():
    attend = ReformerAttention(heads=2, head_dim=6, chunk=16, rounds=3)
    q, v = torch.randn(2, 2, 9, 6), torch.randn(2, 2, 9, 5)
    scores = q @ torch.nn.functional.rms_norm(q, (6,), eps=1e-6).mT / 6**0.5
    expected = scores.masked_fill(torch.eye(9, dtype=torch.bool), -torch.inf).softmax(-1) @ v
    torch.testing.assert_close(attend(q, q, v), expected)


def test_two_factors_of_buckets_are_a_product_of_hashes():
    attend = ReformerAttention(heads=2, head_dim=6, chunk=4, rounds=2, buckets=(4, 2))
    x = torch.randn(1, 2, 50, 6)
    buckets, rotated = attend.hash(x), torch.einsum("bhnd,hdrf->bhrnf", x, attend.rotations)
    first, second = (torch.cat([part, -part], -1).argmax(-1) for part in (rotated[..., :2], rotated[..., 2:]))
    assert torch.equal(buckets, first + 4 * second)
    assert ReformerAttention(heads=2, head_dim=6, chunk=4, length=4096).factors == (32, 64)
    with pytest.raises(RegardError, match="must be even"):
        ReformerAttention(heads=2, head_dim=6, buckets=5)


def test_a_layer_shares_queries_and_keys_by_itself():
    mixer = build_mixer("reformer(chunk=4)", width=12, heads=2, length=16, bias=False).eval()
    x = torch.randn(2, 13, 12)
    q, k, v = mixer.project(x)
    assert torch.equal(q, k)
    torch.testing.assert_close(mixer(x), mixer.join(mixer.attend(q, q, v)))
    moved, *_ = mixer.project(x, torch.ones(1, 13, 12))
    torch.testing.assert_close(moved, mixer.project(x + 1)[0])
    normed = build_mixer("reformer", width=12, heads=2, norms=(torch.nn.RMSNorm(6), torch.nn.RMSNorm(6)))
    q, k, _ = normed.project(x)
    assert torch.equal(q, k)
    torch.testing.assert_close(q.square().mean(-1), torch.ones(2, 2, 13), rtol=1e-4, atol=1e-4)
    with pytest.raises(RegardError, match="kv_heads must be 2, got 1"):
        build_mixer("reformer", width=12, heads=2, kv_heads=1)


def test_gathering_adds_up_gradients():
    x, index = torch.randn(2, 3, 5, 4, requires_grad=True), torch.randint(5, (2, 3, 7, 2))
    picked = torch.stack([x[b, h, index[b, h]] for b in range(2) for h in range(3)]).unflatten(0, (2, 3))
    assert torch.equal(gather_tokens(x, index), picked)
    for one, other in zip(
        *(torch.autograd.grad(y.sin().sum(), x) for y in (gather_tokens(x, index), picked)), strict=True
    ):
        torch.testing.assert_close(one, other)
