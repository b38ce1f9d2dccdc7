"""Routing attention: equal to a loop over clusters; centroids that follow the tokens after an update."""

import pytest
import torch
import torch.nn.functional as F

from regard.attention.mask import CausalMask, PaddingMask
from regard.attention.mechanisms.routing import RoutingAttention
from regard.attention.mixers import build_mixer
from regard.core.layer_state import PassState


@pytest.fixture(autouse=True)
def _double(double):
    pass


def reference(centroids, window, q, k, v, causal):
    """One head: every cluster takes its nearest tokens, whose outputs are averaged over clusters."""
    q, k = (F.layer_norm(x, x.shape[-1:]) for x in (q, k))
    outs = [[] for _ in q]
    for centre in centroids:
        queries, keys = ((x @ centre).argsort(descending=True)[:window].tolist() for x in (q, q if causal else k))
        for i in queries:
            seen = [j for j in keys if j <= i or not causal]
            outs[i].append((q[i] @ k[seen].mT / q.shape[-1] ** 0.5).softmax(0) @ v[seen])
    return torch.stack([torch.stack(each).mean(0) if each else torch.zeros_like(v[0]) for each in outs])


@pytest.mark.parametrize("causal", [False, True])
def test_it_equals_a_loop_over_clusters(causal):
    attend, lengths = RoutingAttention(2, 6, clusters=3, window=5).eval(), torch.tensor([14, 9, 2])
    q, k, v = (torch.randn(3, 2, 14, d, requires_grad=True) for d in (6, 6, 5))
    mask = PaddingMask(lengths)
    out = attend(q, k, v, CausalMask() & mask if causal else mask)
    pairs = [
        (out[b, h, :n], reference(attend.centroids[h], 5, q[b, h, :n], k[b, h, :n], v[b, h, :n], causal))
        for b, n in enumerate(lengths.tolist())
        for h in range(2)
    ]
    found, expected = (torch.cat(each) for each in zip(*pairs, strict=True))
    torch.testing.assert_close(found, expected)
    assert (found[:14] == 0).all(-1).any()  # a token in no cluster
    grads = (torch.autograd.grad(x.square().sum(), (q, k, v)) for x in (found, expected))
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other)


def test_one_cluster_of_all_tokens_is_softmax_attention_over_normalised_vectors():
    attend = RoutingAttention(2, 6, clusters=1, window=20)
    q, k, v = torch.randn(3, 2, 2, 9, 6).unbind(0)
    expected = F.scaled_dot_product_attention(F.layer_norm(q, (6,)), F.layer_norm(k, (6,)), v)
    torch.testing.assert_close(attend(q, k, v), expected)


@pytest.mark.parametrize("causal", [False, True])
def test_centroids_follow_their_tokens_after_an_update_and_only_then(causal):
    attend, mask = RoutingAttention(2, 6, clusters=3, window=5, decay=0.9), PaddingMask(torch.tensor([9, 4]))
    mask = CausalMask() & mask if causal else mask
    before, expected = attend.centroids.clone(), attend.centroids.clone()
    tokens, loss = [[] for _ in range(2)], 0.0
    for _ in range(2):  # two passes, one update
        q, k, v = torch.randn(3, 2, 2, 9, 6).unbind(0)
        state = PassState()
        attend(q, k, v, mask, layer_state=state.layer(0))
        for h in range(2):
            own = [F.layer_norm(x[b, h, :n], (6,)) for x in ((q,) if causal else (q, k)) for b, n in ((0, 9), (1, 4))]
            tokens[h].append(torch.cat(own))
        loss = state.total_loss("commitment")
    assert torch.equal(attend.centroids, before)
    last = 0.0
    for h in range(2):
        nearest = (torch.cat(tokens[h]) @ before[h].mT).argmax(1)
        unit = F.normalize(tokens[h][-1], dim=-1)
        last += (unit - before[h][(tokens[h][-1] @ before[h].mT).argmax(1)]).square().mean() / 2
        for c in range(3):
            mean = F.normalize(torch.cat(tokens[h])[nearest == c].sum(0), dim=0)
            expected[h, c] = F.normalize(0.9 * before[h, c] + 0.1 * mean, dim=0)
    attend.after_update()
    torch.testing.assert_close(attend.centroids, expected)
    torch.testing.assert_close(loss, 1e-4 * last)
    moved = attend.centroids.clone()
    attend.after_update()  # nothing was seen since
    assert torch.equal(attend.centroids, moved)


def test_neither_evaluation_nor_weights_move_the_centroids():
    attend, state = RoutingAttention(2, 6, clusters=3, window=5), PassState()
    q = torch.randn(1, 2, 9, 6)
    attend.weights(q, q, layer_state=state.layer(0))
    attend.eval()(q, q, q, layer_state=state.layer(0))
    assert not attend.seen.any()
    assert state.total_loss("commitment") is None


def test_numbers_that_are_not_finite_leave_the_centroids_alone():
    attend = RoutingAttention(2, 6, clusters=3, window=5)
    before = attend.centroids.clone()
    q = torch.full((1, 2, 9, 6), torch.nan)
    attend(q, q, q, layer_state=PassState().layer(0))
    attend.after_update()
    assert torch.equal(attend.centroids, before)
    assert not attend.seen.any()


def test_causal_layers_share_queries_and_keys():
    for causal in (False, True):
        mixer = build_mixer("routing", width=12, heads=2, length=16, causal=causal)
        q, k, _ = mixer.project(torch.randn(1, 5, 12))
        assert torch.equal(q, k) == causal
        assert (mixer.attend.centroids.shape[1], mixer.attend.window) == (4, 4)  # the square root of the length
