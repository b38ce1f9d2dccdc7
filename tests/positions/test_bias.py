from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from regard.core.errors import BadInput
from regard.positions.bias.alibi import AlibiPositions
from regard.positions.bias.relative import RelativePositions

QUERIES = torch.tensor([[5, 6, 7], [0, 30, 200]])
KEYS = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 7], [0, 1, 9, 17, 33, 90, 190, 300]])


def parts():
    torch.manual_seed(0)
    small = RelativePositions(6, buckets=12, max_distance=50, causal=True)
    return [RelativePositions(6), RelativePositions(6, causal=True), small, AlibiPositions(6)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("buckets", "distance"), [(32, 128), (32, 100), (8, 20), (64, 256), (18, 77)])
def test_buckets_equal_t5(causal, buckets, distance):
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    d = torch.arange(-3000, 3000)
    peer = t5.T5Attention._relative_position_bucket(d, not causal, buckets, distance)
    assert torch.equal(RelativePositions(2, buckets, distance, causal).bucket(d), peer)


@pytest.mark.parametrize("causal", [False, True])
def test_bias_equals_t5(causal):
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    config = t5.T5Config(d_model=24, d_kv=4, num_heads=6, is_decoder=causal)
    layer = t5.T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    part = RelativePositions(6, causal=causal)
    part.table.weight.data.copy_(layer.relative_attention_bias.weight.data)
    index = torch.arange(300)[None]
    assert torch.equal(part.bias(index, index).dense(), layer.compute_bias(300, 300))


@pytest.mark.parametrize("heads", [1, 2, 8, 16, 32])
def test_slopes_of_a_power_of_two_are_the_formula_of_the_paper(heads):
    want = torch.tensor([2 ** (-8 * h / heads) for h in range(1, heads + 1)])
    torch.testing.assert_close(AlibiPositions(heads).slopes(), want)


@pytest.mark.parametrize("heads", [3, 5, 6, 12, 20, 25, 40])
def test_slopes_of_other_numbers_are_filled_from_the_next_power(heads):
    power = 2 ** math.floor(math.log2(heads))
    first = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    double = [2 ** (-8 * h / (2 * power)) for h in range(1, 2 * power + 1)]
    torch.testing.assert_close(AlibiPositions(heads).slopes(), torch.tensor(first + double[0::2][: heads - power]))


@pytest.mark.parametrize("heads", [8, 12])
def test_alibi_weights_equal_bloom_under_a_causal_mask(heads):
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    peer = bloom.build_alibi_tensor(torch.ones(1, 20), heads, torch.float32)[
        None
    ]  # slope · m: differs by a row constant
    index, causal = torch.arange(20)[None], torch.ones(20, 20).tril().bool()
    ours = AlibiPositions(heads).bias(index, index).dense()
    soft = [b.masked_fill(~causal, -math.inf).softmax(-1) for b in (ours, peer.expand_as(ours))]
    torch.testing.assert_close(*soft)


@pytest.mark.parametrize("part", parts(), ids=["relative", "causal", "small", "alibi"])
class TestEveryBias:
    def test_shift_changes_nothing(self, part):
        near, far = part.bias(QUERIES, KEYS).dense(), part.bias(QUERIES + 977, KEYS + 977).dense()
        assert torch.equal(near, far)

    def test_requested_rows_equal_those_of_the_full_bias(self, part):
        full = part.bias(QUERIES, KEYS).dense()
        for rows in (slice(1, 3), slice(0, 1), slice(2, None), slice(0, 0)):
            fresh, warm = part.bias(QUERIES, KEYS), part.bias(QUERIES, KEYS)
            warm.dense()
            assert torch.equal(fresh.dense(rows), full[:, :, rows])
            assert torch.equal(warm.dense(rows), full[:, :, rows])

    @pytest.mark.parametrize(("q", "k"), [(2, 2), (1, 2), (2, 1), (1, 1)])
    def test_score_equals_dense_elementwise(self, part, q, k):
        bias = part.bias(QUERIES[:q], KEYS[:k])
        dense = bias.dense().expand(2, -1, -1, -1)
        scores = torch.randn(dense.shape)
        b, h, n, m = torch.meshgrid(*map(torch.arange, dense.shape), indexing="ij")
        torch.testing.assert_close(bias.score_mod()(scores, b, h, n, m), scores + dense)

    @pytest.mark.filterwarnings("ignore:flex_attention called without")
    def test_flex_attention_equals_plain(self, part):
        flex = pytest.importorskip("torch.nn.attention.flex_attention").flex_attention
        q, k, v = torch.randn(2, 6, 3, 4), torch.randn(2, 6, 8, 4), torch.randn(2, 6, 8, 4)
        bias = part.bias(QUERIES, KEYS)
        with torch.no_grad():
            ours = flex(q, k, v, score_mod=bias.score_mod())
            torch.testing.assert_close(ours, F.scaled_dot_product_attention(q, k, v, attn_mask=bias.dense()))

    def test_layers_share_one_matrix(self, part):
        bias = part.bias(QUERIES, KEYS)
        assert bias.dense().data_ptr() == bias.dense().data_ptr() == bias.dense(slice(0, 2)).data_ptr()

    def test_dense_without_gradient_does_not_block_training(self, part):
        bias = part.bias(QUERIES, KEYS)
        with torch.inference_mode():
            bias.dense()
        assert bias.dense().requires_grad == bool(list(part.parameters()))
        assert not bias.dense().is_inference()


def test_gradient_counts_how_often_a_bucket_was_used():
    part = RelativePositions(2)
    bias = part.bias(QUERIES, KEYS)
    (bias.dense() + bias.dense()).sum().backward()  # two layers, one table
    used = torch.bincount(part.bucket(KEYS[:, None] - QUERIES[..., None]).flatten(), minlength=32)
    assert torch.equal(part.table.weight.grad, 2.0 * used[:, None].expand(-1, 2))


@pytest.mark.parametrize("arguments", [{"buckets": 2}, {"buckets": 7}, {"buckets": 32, "max_distance": 8}])
def test_invalid_buckets_raise(arguments):
    with pytest.raises(BadInput, match="buckets"):
        RelativePositions(4, **arguments)


@pytest.mark.gpu
@pytest.mark.parametrize("part", parts(), ids=["relative", "causal", "small", "alibi"])
def test_compiled_flex_attention_equals_plain_in_value_and_gradient(part):
    from torch.nn.attention.flex_attention import flex_attention

    part = part.cuda()
    torch.manual_seed(0)
    index = torch.arange(200, device="cuda")[None]
    q, k, v = (torch.randn(2, 6, 200, 32, device="cuda", requires_grad=True) for _ in range(3))
    learned = list(part.parameters())

    def run(attend):
        out = attend(part.bias(index, index))
        return [out, *torch.autograd.grad(out.square().sum(), [q, k, v, *learned])]

    compiled = torch.compile(flex_attention, dynamic=False)
    ours = run(lambda bias: compiled(q, k, v, score_mod=bias.score_mod()))
    plain = run(lambda bias: ((q @ k.mT) * 32**-0.5 + bias.dense()).softmax(-1) @ v)
    for a, b in zip(ours, plain, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-2, atol=2e-2 * float(b.abs().max()))
