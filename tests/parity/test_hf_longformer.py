"""Longformer and BigBird: equal to transformers' own attention with the same weights."""

import pytest
import torch

from regard.attention.mask import PaddingMask
from regard.attention.mechanisms.bigbird import BigBirdAttention
from regard.attention.mixers.longformer import LongformerAttention

transformers = pytest.importorskip("transformers")


def join_projections(layers, heads):
    """Weights and biases of q, k, v (or k, v) in one matrix whose rows are ordered by head."""
    parts = [torch.cat([layer.weight, layer.bias[:, None]], 1).unflatten(0, (heads, -1)) for layer in layers]
    joined = torch.cat(parts, 1).flatten(0, 1).detach()
    return {"weight": joined[:, :-1], "bias": joined[:, -1]}


@pytest.mark.parametrize("global_tokens", [0, 3])
def test_longformer(global_tokens):
    from transformers.models.longformer.modeling_longformer import LongformerConfig, LongformerSelfAttention

    width, heads, window, n, lengths = 24, 3, 8, 32, torch.tensor([32, 21])
    config = LongformerConfig(
        hidden_size=width, num_attention_heads=heads, attention_window=[window], attention_probs_dropout_prob=0.0
    )
    theirs = LongformerSelfAttention(config, 0).eval()
    ours = LongformerAttention(width, heads, window=window, global_tokens=global_tokens).eval()
    ours.project.qkv.load_state_dict(join_projections([theirs.query, theirs.key, theirs.value], heads))
    if global_tokens:
        ours.project_global.q.load_state_dict(theirs.query_global.state_dict())
        ours.project_global.kv.load_state_dict(join_projections([theirs.key_global, theirs.value_global], heads))
    ours.join.out.weight.data, ours.join.out.bias.data = torch.eye(width), torch.zeros(width)

    x = torch.randn(2, n, width, requires_grad=True)
    real = torch.arange(n) < lengths[:, None]
    is_global = (torch.arange(n) < global_tokens).expand(2, n)
    expected = theirs(
        x,
        attention_mask=torch.where(real, torch.where(is_global, 1e4, 0.0), -1e4),
        is_index_masked=~real,
        is_index_global_attn=is_global,
        is_global_attn=global_tokens > 0,
    )[0]
    found = ours(x, mask=PaddingMask(lengths))
    weights = torch.randn(2, n, width) * real[..., None]  # outputs of padding are nobody's
    torch.testing.assert_close(found * real[..., None], expected * real[..., None], rtol=1e-5, atol=1e-6)
    gradients = [torch.autograd.grad((out * weights).sum(), x)[0] for out in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-6)


def test_bigbird(monkeypatch):
    """With our random blocks in the place of theirs."""
    from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention, BigBirdConfig

    width, heads, block, n = 24, 3, 2, 26
    config = BigBirdConfig(
        hidden_size=width,
        num_attention_heads=heads,
        block_size=block,
        num_random_blocks=2,
        attention_probs_dropout_prob=0.0,
    )
    theirs = BigBirdBlockSparseAttention(config, seed=0)
    ours = BigBirdAttention(block=block, random_blocks=2)
    pattern, blocks = ours.layer_pattern(None), n // block
    i, h = torch.arange(1, blocks - 1), torch.arange(heads)[:, None]
    random = torch.stack([pattern.random_block(r, h, i, blocks, causal=False) for r in range(2)], -1)
    monkeypatch.setattr(theirs, "_bigbird_block_rand_mask_with_head", lambda **sizes: list(random.numpy()))

    x = torch.randn(2, n, width, requires_grad=True)
    ones = torch.ones(2, n)
    blocked = ones.view(2, blocks, block)
    band = torch.ones(2, 1, blocks - 4, block, 3 * block)
    expected = theirs(
        x,
        band_mask=band,
        from_mask=ones[:, None, :, None],
        to_mask=ones[:, None, None],
        from_blocked_mask=blocked,
        to_blocked_mask=blocked,
    )[0]
    q, k, v = (
        layer(x).unflatten(-1, (heads, -1)).transpose(1, 2) for layer in (theirs.query, theirs.key, theirs.value)
    )
    found = ours(q, k, v).transpose(1, 2).flatten(2)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    weights = torch.randn(2, n, width)
    gradients = [torch.autograd.grad((out * weights).sum(), x, retain_graph=True)[0] for out in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-6)
