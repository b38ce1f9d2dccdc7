"""Poolingformer: pools and windows against loops; with pools of one token and wide windows it is two softmax layers."""

import pytest
import torch

from regard.attention import MultiHeadAttention
from regard.attention.mask import CausalMask, PaddingMask
from regard.attention.mixers import build_mixer
from regard.attention.mixers.poolingformer import Pool, PoolWindowAttention
from regard.core.errors import RegardError, UnknownName, Unsupported
from regard.core.positions import PositionInfo
from regard.core.spec import build_part
from regard.positions import POSITIONS

SIZES = {"width": 12, "heads": 4, "kv_heads": 2}


@pytest.fixture(autouse=True)
def _double(double):
    pass


@pytest.mark.parametrize("pooling", ["mean", "max", "ldconv"])
def test_pools_are_made_of_real_tokens_around_every_stride(pooling):
    for n, kernel, stride in ((11, 5, 4), (3, 5, 4), (8, 3, 3), (7, 4, 2), (1, 5, 1)):
        pool, x = Pool(2, 6, kernel, stride, pooling), torch.randn(2, 2, n, 6)
        lengths = torch.tensor([n, max(1, n // 2)])
        found = pool(x, lengths)
        assert found.shape[2] == -(-n // stride)
        for b, g, p in torch.cartesian_prod(torch.arange(2), torch.arange(2), torch.arange(found.shape[2])).tolist():
            first = p * stride - (kernel - 1) // 2
            taps = [i for i in range(first, first + kernel) if 0 <= i < lengths[b]]
            if p * stride >= lengths[b]:
                continue  # never seen
            tokens = x[b, g, taps]
            if pooling == "max":
                expected = tokens.amax(0)
            else:
                scores = torch.zeros(len(taps))
                if pooling == "ldconv":
                    scores = (x[b, g, p * stride] @ pool.filter[g])[[i - first for i in taps]]
                expected = scores.softmax(0) @ tokens
            torch.testing.assert_close(found[b, g, p], expected)


def test_windows_of_pools_equal_the_dense_formula_in_value_and_gradient():
    for n, far, stride in ((23, 12, 4), (23, 6, 1), (23, 100, 4), (5, 2, 4), (1, 8, 4), (40, 8, 3)):
        pools = -(-n // stride)
        q, k = torch.randn(2, 4, n, 6, requires_grad=True), torch.randn(2, 2, pools, 6, requires_grad=True)
        v, probe = torch.randn(2, 2, pools, 5, requires_grad=True), torch.randn(2, 4, n, 5)
        attend = PoolWindowAttention(far, stride)
        near = (torch.arange(n)[:, None] - stride * torch.arange(pools)).abs() <= far // 2
        for lengths in (None, torch.tensor([pools, max(1, pools // 2)])):
            mask = None if lengths is None else PaddingMask(lengths)
            allowed = near if mask is None else near & mask.dense(2, n, pools)
            scores = (q @ k.repeat_interleave(2, 1).mT / 6**0.5).masked_fill(~allowed, -1e9)
            weights = scores.softmax(-1) * allowed
            torch.testing.assert_close(attend.weights(q, k, mask), weights)
            found, expected = attend(q, k, v, mask), weights @ v.repeat_interleave(2, 1)
            torch.testing.assert_close(found, expected)
            for one, other in zip(
                torch.autograd.grad((found * probe).sum(), (q, k, v)),
                torch.autograd.grad((expected * probe).sum(), (q, k, v)),
                strict=True,
            ):
                torch.testing.assert_close(one, other)


def test_pools_of_one_token_and_wide_windows_are_two_layers_of_softmax_attention():
    sizes = {"width": 12, "heads": 3, "kv_heads": 1}
    mixer = build_mixer("poolingformer(window=64, far=64, kernel=1, stride=1, pooling='mean')", **sizes)
    near, far = MultiHeadAttention(**sizes), MultiHeadAttention(**sizes)
    near.load_state_dict(mixer.near.state_dict())
    far.load_state_dict(mixer.far.state_dict())
    x, mask = torch.randn(3, 13, 12), PaddingMask(torch.tensor([13, 5, 1]))
    index, real = torch.arange(13)[None], mask.real(13)[..., None]
    rotary = build_part(POSITIONS, "rotary", "positions", head_dim=4, width=12, heads=3, length=13)
    for positions in (None, PositionInfo(index, index, rotary)):
        y = near(x, None, mask, positions)
        expected = y + far(y, None, mask, positions)
        torch.testing.assert_close(mixer(x, None, mask, positions) * real, expected * real)


def test_padding_changes_nothing():
    mixer = build_mixer("poolingformer(window=4, far=8)", **SIZES)
    x, lengths = torch.randn(3, 13, 12), torch.tensor([13, 5, 1])
    out = mixer(x, mask=PaddingMask(lengths))
    for b, n in enumerate(lengths.tolist()):
        torch.testing.assert_close(out[b : b + 1, :n], mixer(x[b : b + 1, :n]))


def test_what_it_refuses():
    with pytest.raises(RegardError, match="kernel 3 is less than stride 4"):
        build_mixer("poolingformer(kernel=3)", **SIZES)
    with pytest.raises((RegardError, UnknownName), match="mean"):
        build_mixer("poolingformer(pooling='median')", **SIZES)
    mixer, x = build_mixer("poolingformer", **SIZES), torch.randn(1, 5, 12)
    with pytest.raises(Unsupported, match="no mask of kind causal"):
        mixer(x, mask=CausalMask())
    with pytest.raises(Unsupported, match="takes no context"):
        mixer(x, x)
