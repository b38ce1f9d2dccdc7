"""Nyström attention with the same weights equals transformers' NystromformerSelfAttention, in value and gradient."""

import pytest
import torch
from torch import nn

from regard.attention import MultiHeadAttention
from regard.attention.mask import PaddingMask

transformers = pytest.importorskip("transformers")


def pair(heads, conv):
    """Our layer and theirs: 4 landmarks of 16 tokens, the same projections and filters."""
    from transformers.models.nystromformer.modeling_nystromformer import NystromformerSelfAttention

    config = transformers.NystromformerConfig(
        hidden_size=12,
        num_attention_heads=heads,
        num_landmarks=4,
        segment_means_seq_len=16,
        conv_kernel_size=conv or 1,
        attention_probs_dropout_prob=0.0,
    )
    theirs = NystromformerSelfAttention(config).double().eval()
    theirs.conv_kernel_size = conv
    ours = MultiHeadAttention(12, heads, mechanism=f"nystrom(landmarks=4, conv={conv})").double().eval()
    parts = [getattr(theirs, name) for name in ("query", "key", "value")]
    weight = torch.stack([part.weight.unflatten(0, (heads, -1)) for part in parts], 1)  # by head: q, k, v
    bias = torch.stack([part.bias.unflatten(0, (heads, -1)) for part in parts], 1)
    with torch.no_grad():
        ours.project.qkv.weight.copy_(weight.flatten(0, 2))
        ours.project.qkv.bias.copy_(bias.flatten())
        if conv is not None:
            ours.attend.conv.weight.copy_(theirs.conv.weight)
    ours.join = Concat()
    return ours, theirs


class Concat(nn.Module):
    """Heads side by side: theirs has no output projection in this module."""

    def forward(self, x):
        return x.transpose(1, 2).flatten(2)


def test_nystrom_equals_transformers():
    for heads, batch, conv, option in ((3, 2, 5, "exact"), (3, 2, None, "exact"), (1, 1, 5, "original")):
        ours, theirs = pair(heads, conv)
        theirs.init_option = option  # "original" takes the largest norm of all heads and inputs, so one of each
        x = torch.randn(batch, 16, 12, dtype=torch.float64, requires_grad=True)
        found, expected = ours(x), theirs(x)[0]
        torch.testing.assert_close(found, expected)
        probe = torch.randn_like(found)
        gradients = (torch.autograd.grad((out * probe).sum(), x) for out in (found, expected))
        torch.testing.assert_close(*gradients)


def test_padding_differs_from_transformers_which_takes_means_over_padding():
    """Theirs masks padded keys in one of the three matrices only; ours equals an input without padding."""
    ours, _ = pair(3, 5)
    x = torch.randn(2, 16, 12, dtype=torch.float64)
    padded = ours(x, mask=PaddingMask(torch.tensor([16, 8])))
    torch.testing.assert_close(padded[1:, :8], ours(x[1:, :8]))
