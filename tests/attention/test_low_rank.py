"""Low-rank attention: landmarks of true lengths, the pseudoinverse, CSALR's formula, Linformer's limit and sharing."""

import pytest
import torch

from regard.attention.landmarks import segment_means
from regard.attention.mask import PaddingMask
from regard.attention.mechanisms.csalr import CSALRAttention
from regard.attention.mechanisms.linformer import LinformerAttention
from regard.attention.mechanisms.low_rank_local import LowRankLocalAttention
from regard.attention.mechanisms.nystrom import NystromAttention, pseudoinverse
from regard.attention.mechanisms.softmax import SoftmaxAttention
from regard.core.errors import RegardError, UnknownName, Unsupported
from regard.core.layer_state import PassState
from regard.models import build


@pytest.fixture(autouse=True)
def _double(double):
    pass


def parts(n, m=None):
    return [torch.randn(2, 3, length, width) for length, width in ((n, 6), (m or n, 6), (m or n, 5))]


def test_landmarks_are_means_of_segments_of_the_true_length():
    x = torch.arange(10.0)[None, None, :, None]
    for length, expected in ((10, [1, 3.5, 6, 8.5]), (8, [0.5, 2.5, 4.5, 6.5]), (3, [0, 1, 2, 0]), (0, [0, 0, 0, 0])):
        means, found = segment_means(4, 10, PaddingMask(torch.tensor([length])), x)
        assert (means @ x).flatten().tolist() == expected
        assert found.sum() == min(4, length)
    means, found = segment_means(64, 10, None, x)
    assert torch.equal(means[0, 0], torch.eye(10))
    assert found.all()


def test_pseudoinverse_converges_to_that_of_the_singular_values():
    a = torch.randn(3, 8, 8).softmax(-1)
    a[1, 5:] = a[1, :, 5:] = 0  # landmarks that do not exist
    errors = [float((pseudoinverse(a, times) - torch.linalg.pinv(a)).abs().max()) for times in (6, 25)]
    assert errors[1] < 1e-8
    assert pseudoinverse(torch.zeros(2, 2), 6).abs().max() == 0


def test_nystrom_error_falls_with_landmarks_on_smooth_tokens():
    """Neighbours are alike, so that a segment's mean stands for it."""
    errors = dict.fromkeys((2, 8, 32), 0.0)
    for seed in range(4):
        torch.manual_seed(seed)
        q, k, v = (torch.randn(2, 3, 64, 6).cumsum(2) / 8 for _ in range(3))
        expected = SoftmaxAttention(backend="eager")(q, k, v)
        for landmarks in errors:
            found = NystromAttention(3, landmarks=landmarks)(q, k, v)
            errors[landmarks] += float((found - expected).square().mean())
    assert errors[2] > 3 * errors[8] > 3 * errors[32]


def test_convolution_must_be_centred():
    with pytest.raises(RegardError, match="conv must be an odd number"):
        NystromAttention(3, conv=4)


def test_csalr_equals_its_formula_and_its_rows_sum_to_one_half():
    q, k, v = parts(12)
    attend = CSALRAttention(landmarks=4, scale=1.0)
    few_q, few_k = (x.unflatten(2, (4, 3)).mean(3) for x in (q, k))
    between = 0.999 * (few_q @ few_k.mT).softmax(-1) + torch.eye(4)
    expected = (q @ few_k.mT).softmax(-1) @ torch.linalg.inv(between) @ (few_q @ k.mT).softmax(-1)
    torch.testing.assert_close(attend.weights(q, k), expected)
    torch.testing.assert_close(attend(q, k, v), expected @ v)
    torch.testing.assert_close(expected.sum(-1), torch.full((2, 3, 12), 0.5), atol=3e-4, rtol=0)


def test_csalr_of_landmarks_that_attend_to_each_other_alone():
    """The matrix between them is a permutation, and with the identity added it has no inverse."""
    q = torch.zeros(1, 1, 4, 2)
    q[..., :2, 0], q[..., 2:, 1] = 1e4, 1e4
    k, v = q.flip(2).clone().requires_grad_(), torch.randn(1, 1, 4, 3)
    out = CSALRAttention(landmarks=2)(q, k, v)
    out.sum().backward()
    assert out.isfinite().all()
    assert k.grad.isfinite().all()


@pytest.mark.parametrize("sharing", ["none", "headwise", "kv", "layerwise"])
def test_linformer_with_identities_is_softmax_attention(sharing):
    attend = LinformerAttention(3, length=9, rank=9, sharing=sharing)
    for parameter in attend.parameters():
        torch.nn.init.zeros_(parameter)
        with torch.no_grad():
            parameter += torch.eye(9)
    q, k, v = parts(5, 9)
    torch.testing.assert_close(
        attend(q, k, v, layer_state=PassState().layer(0)), SoftmaxAttention(backend="eager")(q, k, v)
    )


def test_linformer_shares_what_it_says():
    count = {
        sharing: sum(p.numel() for p in LinformerAttention(3, length=10, rank=4, sharing=sharing).parameters())
        for sharing in ("none", "headwise", "kv", "layerwise")
    }
    assert count == {"none": 240, "headwise": 80, "kv": 40, "layerwise": 40}
    sizes = {"vocab": 11, "width": 12, "heads": 3, "layers": 3, "length": 8, "head": None}
    model = build("bert", attention="linformer(rank=4, sharing='layerwise')", **sizes)
    model(torch.randint(11, (2, 6))).square().sum().backward()
    used = [block.mix.attend.project_keys.grad is not None for block in model.encoder.blocks]
    assert used == [True, False, False]


def test_linformer_refuses_longer_sequences_and_unknown_settings():
    with pytest.raises(Unsupported, match="up to 8 keys, got 9"):
        LinformerAttention(3, length=8)(*parts(9))
    with pytest.raises(RegardError, match="needs its length"):
        LinformerAttention(3)
    with pytest.raises(UnknownName, match="did you mean 'headwise'"):
        LinformerAttention(3, length=8, sharing="headwize")
    with pytest.raises(Unsupported, match="LayerState"):
        LinformerAttention(3, length=8, sharing="layerwise")(*parts(5))


def test_low_rank_local_is_softmax_attention_in_both_limits():
    q, k, v = parts(9)
    expected = SoftmaxAttention(backend="eager")(q, k, v)
    whole_band = LowRankLocalAttention(3, 6, rank=2, window=32)
    torch.nn.init.constant_(whole_band.share, 50.0)
    torch.testing.assert_close(whole_band(q, k, v), expected)
    full_rank = LowRankLocalAttention(3, 6, rank=6, window=2)
    torch.nn.init.constant_(full_rank.share, -50.0)
    with torch.no_grad():
        for projection in (full_rank.project_queries, full_rank.project_keys):
            projection.copy_(torch.eye(6).expand(3, 6, 6))
    torch.testing.assert_close(full_rank(q, k, v), expected)


def test_low_rank_local_equals_the_mixture_of_its_two_maps():
    attend, (q, k, v) = LowRankLocalAttention(3, 6, rank=2, window=4), parts(9)
    torch.nn.init.normal_(attend.share)
    far = ((q @ attend.project_queries) @ (k @ attend.project_keys).mT / 2**0.5).softmax(-1)
    near = torch.arange(9)[:, None] - torch.arange(9)
    band = (q @ k.mT / 6**0.5).masked_fill(near.abs() > 2, float("-inf")).softmax(-1)
    share = attend.share.sigmoid()
    torch.testing.assert_close(attend(q, k, v), ((1 - share) * far + share * band) @ v)
