"""Clustered attention, plain and improved: equal to loops written from the paper."""

import pytest
import torch

from regard.attention.mask import PaddingMask
from regard.attention.mechanisms.clustered import ClusteredAttention
from regard.attention.mechanisms.improved_clustered import ImprovedClusteredAttention


@pytest.fixture(autouse=True)
def _double(double):
    pass


def k_means(attend, q):
    """The clusters of the queries of one head: Lloyd's algorithm over hashes, with majorities for means."""
    code = [[1 if bit > 0 else 0 for bit in row] for row in (q @ attend.planes[:-1] + attend.planes[-1]).tolist()]
    centroids = code[: attend.clusters]

    def nearest(hash):
        distances = [sum(a != b for a, b in zip(hash, centre, strict=True)) for centre in centroids]
        return distances.index(min(distances))

    for _ in range(attend.iterations - 1):
        owner = [nearest(hash) for hash in code]
        for c in range(len(centroids)):
            own = [hash for hash, cluster in zip(code, owner, strict=True) if cluster == c]
            if own:
                centroids[c] = [int(2 * sum(bits) > len(own)) for bits in zip(*own, strict=True)]
    return [nearest(hash) for hash in code]


def reference(attend, q, k, v, top_k=None):
    owner, out = k_means(attend, q), []
    for n, c in enumerate(owner):
        members = [i for i, cluster in enumerate(owner) if cluster == c]
        weights = (q[members].mean(0) @ k.mT / q.shape[-1] ** 0.5).softmax(0)
        if top_k is not None:
            best = weights.argsort(descending=True)[:top_k]
            own = (q[n] @ k[best].mT / q.shape[-1] ** 0.5).softmax(0)
            weights = weights.index_copy(0, best, own * weights[best].sum())
        out.append(weights @ v)
    return torch.stack(out)


@pytest.mark.parametrize("top_k", [None, 4, 50])
def test_it_equals_a_loop_over_queries(top_k):
    lengths = torch.tensor([30, 17, 2])
    for clusters, bits, iterations in ((5, 8, 10), (3, 20, 1), (40, 6, 3)):
        sizes = {"head_dim": 6, "clusters": clusters, "bits": bits, "iterations": iterations}
        attend = ClusteredAttention(**sizes) if top_k is None else ImprovedClusteredAttention(**sizes, top_k=top_k)
        q, k, v = (torch.randn(3, 2, 30, d, requires_grad=True) for d in (6, 6, 5))
        out = attend(q, k, v, PaddingMask(lengths))
        pairs = [
            (out[b, h, :n], reference(attend, q[b, h, :n], k[b, h, :n], v[b, h, :n], top_k))
            for b, n in enumerate(lengths.tolist())
            for h in range(2)
        ]
        found, expected = (torch.cat(each) for each in zip(*pairs, strict=True))
        torch.testing.assert_close(found, expected)
        grads = (torch.autograd.grad(x.square().sum(), (q, k, v)) for x in (found, expected))
        for one, other in zip(*grads, strict=True):
            torch.testing.assert_close(one, other)


def test_equal_queries_need_one_cluster():
    attend = ClusteredAttention(head_dim=6, clusters=4)
    q, k, v = torch.randn(1, 1, 1, 6).expand(1, 1, 9, 6), torch.randn(1, 1, 9, 6), torch.randn(1, 1, 9, 6)
    assert attend.assign(q, torch.ones(1, 1, 9, dtype=torch.bool)).unique().numel() == 1  # three ran empty
    torch.testing.assert_close(attend(q, k, v), (q @ k.mT / 6**0.5).softmax(-1) @ v)
