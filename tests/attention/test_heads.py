"""Mechanisms of heads: each against a loop written from its paper, and what it adds to the loss."""

import pytest
import torch
from torch import nn

from regard.attention import MultiHeadAttention
from regard.attention.collaborative import CollaborativeProjection
from regard.attention.mask import CausalMask, PaddingMask, SegmentMask
from regard.attention.mechanisms.adaptive_span import AdaptiveSpanAttention
from regard.attention.mechanisms.disagreement import DisagreementAttention
from regard.attention.mechanisms.pattern_guidance import PatternGuidedAttention
from regard.attention.mechanisms.softmax import SoftmaxAttention
from regard.attention.mechanisms.talking_heads import TalkingHeadsAttention
from regard.attention.projections import QKVProjection
from regard.core.errors import RegardError, Unsupported
from regard.core.layer_state import PassState
from regard.core.positions import TensorBias
from regard.models import build

B, H, N, D = 2, 3, 7, 4


@pytest.fixture(autouse=True)
def _double(double):
    pass


def qkv(n=N):
    return [torch.randn(B, H, n, D, requires_grad=True) for _ in range(3)]


def test_talking_heads_mix_scores_and_weights():
    attend, (q, k, v) = TalkingHeadsAttention(H, softmax_heads=5), qkv()
    expected = torch.zeros(B, H, N, D)
    scores = q @ k.mT / D**0.5
    for h in range(H):
        for j in range(5):
            mixed = sum(attend.score_mix[j, i] * scores[:, i] for i in range(H))
            expected[:, h] = expected[:, h] + attend.weight_mix[h, j] * mixed.softmax(-1) @ v[:, h]
    found = attend(q, k, v)
    torch.testing.assert_close(found, expected)
    leaves = [q, k, v, *attend.parameters()]
    for one, other in zip(*(torch.autograd.grad(x.square().sum(), leaves) for x in (found, expected)), strict=True):
        torch.testing.assert_close(one, other)


def test_heads_that_do_not_talk_are_softmax_attention():
    attend, (q, k, v) = TalkingHeadsAttention(H), qkv()
    nn.init.eye_(attend.score_mix)
    nn.init.eye_(attend.weight_mix)
    torch.testing.assert_close(attend(q, k, v, CausalMask()), SoftmaxAttention()(q, k, v, CausalMask()))


@pytest.mark.parametrize("mask", [None, CausalMask()], ids=["all", "causal"])
def test_adaptive_span_weighs_keys_by_their_distance(mask):
    attend, (q, k, v) = AdaptiveSpanAttention(H, span=5, ramp=2), qkv()
    with torch.no_grad():
        attend.extent.copy_(torch.tensor([0.0, 0.3, 1.0]))
    expected = torch.zeros(B, H, N, D)
    for h in range(H):
        for n in range(N):
            places = [m for m in range(N) if abs(n - m) < 5 and (mask is None or m <= n)]
            ramp = torch.stack([((2 + 5 * attend.extent[h] - abs(n - m)) / 2).clamp(0, 1) for m in places])
            scores = (q[:, h, n, None] * k[:, h, places]).sum(-1) / D**0.5
            weights = ramp * scores.exp()
            weights = weights / weights.sum(-1, keepdim=True)
            expected[:, h, n] = (weights[..., None] * v[:, h, places]).sum(1)
    leaves, pass_state = [q, k, v, attend.extent], PassState()
    reference = torch.autograd.grad(expected.square().sum(), leaves)
    for training in (True, False):
        found = attend.train(training)(q, k, v, mask, layer_state=pass_state.layer(0))
        torch.testing.assert_close(found, expected)
        for one, other in zip(torch.autograd.grad(found.square().sum(), leaves), reference, strict=True):
            torch.testing.assert_close(one, other)
    torch.testing.assert_close(pass_state.total_loss("span"), 2e-6 * 5 * attend.extent.mean())


def test_adaptive_span_in_blocks_equals_the_full_matrix():
    n = 23
    masks = [
        None,
        CausalMask(),
        PaddingMask(torch.tensor([n, 9])),
        CausalMask() & PaddingMask(torch.tensor([n, 9])),
        SegmentMask(torch.arange(2)[:, None] + torch.arange(n) // 4),
    ]
    for span in (1, 4, 11, 22):
        attend = AdaptiveSpanAttention(H, span=span, ramp=3, initial=0.7).train()
        q, k, v = qkv(n)
        for mask in masks:
            for bias in (None, TensorBias(torch.randn(1, H, n, n))):
                expected = attend.weights(q, k, mask, bias) @ v
                torch.testing.assert_close(attend(q, k, v, mask, bias), expected)


def test_a_short_span_reads_few_keys():
    """In evaluation keys beyond the largest learned span are not read, even if they are not numbers."""
    attend, (q, k, v) = AdaptiveSpanAttention(H, span=16, ramp=1, initial=0.1).eval(), qkv(16)
    k = k.detach().clone()
    k[:, :, :4] = torch.nan
    out = attend(q, k, v, CausalMask())
    assert attend._reach() == 3
    assert out[:, :, 9:].isfinite().all()


def test_spans_shrink_by_their_loss_and_stay_in_range():
    attend = AdaptiveSpanAttention(H, span=8, initial=0.5, penalty=1.0)
    for _ in range(20):
        pass_state = PassState()
        attend(*qkv(), layer_state=pass_state.layer(0))
        (gradient,) = torch.autograd.grad(pass_state.weighted_loss({}), attend.extent)
        with torch.no_grad():
            attend.extent -= 0.02 * gradient
        attend.after_update()
    assert (attend.extent == 0).all()
    with pytest.raises(RegardError, match="span=1024"):
        AdaptiveSpanAttention(H)


def random_multihead(heads=4, kv_heads=4, **kwargs):
    mixer = MultiHeadAttention(12, heads, kv_heads=kv_heads, **kwargs)
    for parameter in mixer.parameters():
        nn.init.normal_(parameter)
    return mixer


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_separate_heads_become_collaborative_at_full_rank(bias, kv_heads):
    mixer, x = random_multihead(kv_heads=kv_heads, bias=bias), torch.randn(2, 5, 12)
    expected = mixer(x, mask=CausalMask())
    mixer.project = CollaborativeProjection.from_multihead(mixer.project)
    assert mixer.project.key_dim == 12
    torch.testing.assert_close(mixer(x, mask=CausalMask()), expected)


def test_heads_that_overlap_fit_into_fewer_dimensions():
    """Four heads that weigh three shared dimensions each in its own way: three are enough, two are not."""
    mixer, x = random_multihead(), torch.randn(2, 5, 12)
    shared_q, shared_k, mixing = torch.randn(3, 13), torch.randn(3, 13), torch.randn(4, 3)
    with torch.no_grad():
        rows = mixer.project.qkv.weight.view(4, 3, 3, 12)
        biases = mixer.project.qkv.bias.view(4, 3, 3)
        rows[:, 0], biases[:, 0] = (mixing[..., None] * shared_q[:, :12]), mixing * shared_q[:, 12]
        rows[:, 1], biases[:, 1] = shared_k[:, :12], shared_k[:, 12]
    expected, separate, errors = mixer(x), mixer.project, []
    for key_dim in (2, 3):
        mixer.project = CollaborativeProjection.from_multihead(separate, key_dim=key_dim)
        errors.append((mixer(x) - expected).abs().max())
    assert errors[1] < 1e-6
    assert errors[0] > 1e-2


def test_collaborative_heads_train_and_decode_in_a_model():
    spec = "multihead(projection='collaborative(key_dim=16)')"
    model = build("gpt", size="tiny", vocab=11, attention=spec)
    tokens = torch.randint(11, (2, 6))
    whole = model(tokens)
    whole.square().sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    _, state = model.eval().start(tokens[:, :3], capacity=8)
    for t in range(2, 6):
        logits, state = model.step(tokens[:, t : t + 1], state)
        torch.testing.assert_close(logits[:, 0], whole[:, t])


def test_collaborative_heads_refuse_norms_and_too_many_dimensions():
    norms = nn.LayerNorm(3), nn.LayerNorm(3)
    with pytest.raises(Unsupported, match="normed by head"):
        CollaborativeProjection(12, 4, norms=norms)
    with pytest.raises(Unsupported, match="QK-norm"):
        CollaborativeProjection.from_multihead(QKVProjection(12, 4, norms=norms))
    with pytest.raises(RegardError, match="at most 12"):
        CollaborativeProjection.from_multihead(QKVProjection(12, 4), key_dim=13)


def test_disagreement_is_the_similarity_of_pairs_of_heads():
    q, k, v = qkv()
    lengths = torch.tensor([N, 4])
    attend = DisagreementAttention(subspaces=0.5, positions=2.0, outputs=3.0).train()
    pass_state = PassState()
    out = attend(q, k, v, PaddingMask(lengths), layer_state=pass_state.layer(0))
    torch.testing.assert_close(out, SoftmaxAttention()(q, k, v, PaddingMask(lengths)))
    weights, terms = attend.weights(q, k, PaddingMask(lengths)), torch.zeros(3)
    for b in range(B):
        for n in range(int(lengths[b])):
            for i in range(H):
                for j in range(H):
                    values, outputs = (torch.cosine_similarity(x[b, i, n], x[b, j, n], 0) for x in (v, out))
                    terms += torch.stack([values, weights[b, i, n] @ weights[b, j, n], outputs]).detach() / H**2
    expected = (terms / (N + 4) * torch.tensor([0.5, 2.0, 3.0])).sum()
    torch.testing.assert_close(pass_state.total_loss("disagreement"), expected)
    pass_state.total_loss("disagreement").backward()
    assert all(x.grad.abs().max() > 0 for x in (q, k, v))
    attend.eval()(q, k, v, layer_state=(quiet := PassState()).layer(0))
    assert quiet.total_loss("disagreement") is None


def test_guidance_is_the_distance_from_the_patterns():
    q, k, v = qkv()
    attend = PatternGuidedAttention(H, following=1, previous=1, first=1, guidance=2.0).train()
    lengths, pass_state = torch.tensor([N, 5]), PassState()
    out = attend(q, k, v, PaddingMask(lengths), layer_state=pass_state.layer(0))
    torch.testing.assert_close(out, SoftmaxAttention()(q, k, v, PaddingMask(lengths)))
    weights, expected = attend.weights(q, k, PaddingMask(lengths)), 0.0
    for b in range(B):
        for n in range(int(lengths[b])):
            for m in range(int(lengths[b])):
                for head, target in enumerate((m == n + 1, m == n - 1, m == 0)):
                    expected = expected + (weights[b, head, n, m] - float(target)) ** 2
    torch.testing.assert_close(pass_state.total_loss("guidance"), 2.0 * expected / (N**2 + 5**2))
    grouped = PatternGuidedAttention(4, following=0, previous=2, itself=1)
    assert grouped.loss(torch.eye(5).expand(1, 4, 5, 5)) == 2 * (4 + 5) / 2 / 25  # all heads look at themselves


def test_guidance_refuses_what_cannot_be():
    with pytest.raises(RegardError, match="next token"):
        PatternGuidedAttention(4, following=1, causal=True)
    with pytest.raises(RegardError, match="guides 5 heads, but there are 4"):
        PatternGuidedAttention(4, first=3)
    attend, (q, k, v) = PatternGuidedAttention(H).train(), qkv()
    with pytest.raises(Unsupported, match="5 queries and 7 keys"):
        attend(q[:, :, :5], k, v, layer_state=PassState().layer(0))


def test_losses_of_heads_reach_the_task():
    """A guided model trained on the loss of its layers alone comes to look at the token before."""
    model = build("gpt", size="tiny", vocab=11, attention="pattern_guidance(previous=2)")
    optimizer, tokens, history = torch.optim.Adam(model.parameters(), 1e-2), torch.randint(11, (4, 12)), []
    for _ in range(15):
        pass_state = PassState()
        model(tokens, pass_state=pass_state)
        loss = pass_state.weighted_loss({})
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(float(loss.detach()))
    assert history[-1] < 0.8 * history[0]
