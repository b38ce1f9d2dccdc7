"""Talking heads against timm's, with the same weights."""

import torch

from regard.attention.mechanisms.talking_heads import TalkingHeadsAttention


def test_talking_heads_equal_those_of_timm(double):
    from timm.models.cait import TalkingHeadAttn

    reference = TalkingHeadAttn(12, num_heads=3, qkv_bias=True).eval()
    ours = TalkingHeadsAttention(3)
    with torch.no_grad():
        for matrix, linear in ((ours.score_mix, reference.proj_l), (ours.weight_mix, reference.proj_w)):
            matrix.copy_(linear.weight)
            linear.bias.zero_()  # the paper has none
    x = torch.randn(2, 7, 12)
    q, k, v = reference.qkv(x).unflatten(-1, (3, 3, 4)).permute(2, 0, 3, 1, 4)
    found = reference.proj(ours(q, k, v).transpose(1, 2).flatten(2))
    torch.testing.assert_close(found, reference(x))
