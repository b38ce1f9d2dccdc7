"""Reformer's attention equals transformers' LSHSelfAttention: same weights, same rotations, same buckets.

Without padding: theirs lets the chunk before a round's first be one of padding, ours the last one that is real.
"""

import pytest
import torch

from regard.attention.mask import CausalMask
from regard.attention.mixers import build_mixer

transformers = pytest.importorskip("transformers")


@pytest.mark.parametrize("buckets", [4, [4, 2]])
@pytest.mark.parametrize("causal", [False, True])
def test_values_and_gradients_are_those_of_transformers(double, causal, buckets):
    from transformers.models.reformer.modeling_reformer import LSHSelfAttention

    config = transformers.ReformerConfig(
        hidden_size=12,
        num_attention_heads=3,
        attention_head_size=4,
        num_hashes=3,
        num_buckets=buckets,
        lsh_attn_chunk_length=4,
        is_decoder=causal,
        hash_seed=7,
        lsh_attention_probs_dropout_prob=0.0,
        attn_layers=["lsh"],
    )
    theirs = LSHSelfAttention(config, layer_idx=0)
    ours = build_mixer(f"reformer(chunk=4, rounds=3, buckets={buckets})", width=12, heads=3, bias=False, out_bias=False)
    with torch.no_grad():
        ours.project.qk_v.weight.copy_(interleave(theirs.query_key.weight, theirs.value.weight))
        ours.join.out.weight.copy_(torch.eye(12))
    torch.manual_seed(7)  # what they draw for each pass
    ours.attend.rotations.copy_(torch.randn(ours.attend.rotations.shape))

    x = torch.randn(2, 20, 12)
    found, expected = ours(x, mask=CausalMask() if causal else None), theirs(x)
    size = 8 if isinstance(buckets, list) else 4
    assert torch.equal(ours.attend.hash(ours.project(x)[0]) + torch.arange(3)[:, None] * size, expected.buckets)
    torch.testing.assert_close(found, expected.hidden_states)
    found.square().sum().backward()
    expected.hidden_states.square().sum().backward()
    gradient = interleave(theirs.query_key.weight.grad, theirs.value.weight.grad)
    torch.testing.assert_close(ours.project.qk_v.weight.grad, gradient)


def interleave(query_key, value):
    """The rows of each head: its query before its value."""
    return torch.stack([query_key.view(3, 4, 12), value.view(3, 4, 12)], 1).reshape(24, 12)
