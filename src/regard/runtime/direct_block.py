"""Encoder blocks with packed weights, run without the calls between their parts.

A short text takes a CPU a few milliseconds, and calls of some ninety modules a good part of them. A direct block calls
the same functions on the same weights one after another: four products, attention, two norms.

    post-norm    x = norm(x + W_o attend(W_qkv x));  x = norm(x + W_2 a(W_1 x))
    pre-norm     x = x + W_o attend(W_qkv norm(x));  x = x + W_2 a(W_1 norm(x))

It stands in for the `forward` of a block that has nothing else, and hands every call that asks for more back to it:
positions inside attention, gradients, and hooks on a part (`watch`, interventions).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules import module as torch_module

from regard.attention.joins.concat import OutputProjection
from regard.attention.mask import DocumentMask, Mask
from regard.attention.mechanisms.softmax import BACKENDS, SoftmaxAttention
from regard.attention.multihead import MultiHeadAttention
from regard.attention.projections import QKVProjection
from regard.blocks.encoder import EncoderBlock
from regard.blocks.norms import LayerNorm
from regard.core.layer_state import LayerState
from regard.core.positions import PositionInfo
from regard.core.shapes import Tensor

SHORT = 128  # tokens up to which two batched products beat the fused kernel on a CPU


class DirectBlock:
    """The `forward` of an encoder block, as plain calls."""

    def __init__(self, block: EncoderBlock) -> None:
        mix: Any = block.mix
        feed: Any = block.feed
        self.block, self.attend = block, mix.attend
        self.qkv, self.out, self.up, self.down = mix.project.qkv, mix.join.out, feed.up, feed.down
        self.norms: Any = (block.mix_norm, block.feed_norm)
        self.parts = [part for part in block.modules() if part is not block]
        self.heads, self.head_dim = mix.project.kv_heads, mix.project.head_dim
        self.scale = self.head_dim**-0.5 if self.attend.scale is None else self.attend.scale

    def __call__(
        self,
        x: Tensor,
        mask: Mask | None = None,
        positions: PositionInfo | None = None,
        layer_state: LayerState | None = None,
    ) -> Tensor:
        if not self._is_plain(x, positions):
            return EncoderBlock.forward(self.block, x, mask, positions, layer_state)
        first, second = self.norms
        if self.block.pre_norm:
            x = x + self._mix(_norm(x, first), mask)
            return x + self.down.product(self.up.product(_norm(x, second)))
        x = _norm(x + self._mix(x, mask), first)
        return _norm(x + self.down.product(self.up.product(x)), second)

    def _mix(self, x: Tensor, mask: Mask | None) -> Tensor:
        b, n, _ = x.shape
        q, k, v = self.qkv.product(x).view(b, n, self.heads, 3, self.head_dim).permute(3, 0, 2, 1, 4).unbind(0)
        short = n <= SHORT and not isinstance(mask, DocumentMask)
        mixed = BACKENDS["bmm" if short else "sdpa"](q, k, v, mask, None, self.scale, 0.0)
        out: Tensor = self.out.product(mixed.transpose(1, 2).reshape(b, n, self.heads * self.head_dim))
        return out

    def _is_plain(self, x: Tensor, positions: PositionInfo | None) -> bool:
        """Return whether the block would do nothing else for this call."""
        if positions is not None and not (
            positions.qk_transform is None and positions.bias is None and positions.query_vectors is None
        ):
            return False
        if (torch.is_grad_enabled() and x.requires_grad) or torch.is_autocast_enabled("cpu"):
            return False
        if torch_module._has_any_global_hook() or torch.compiler.is_compiling():
            return False
        return not any(part._forward_hooks or part._forward_pre_hooks for part in self.parts)


def use_direct_blocks(model: nn.Module, linear_class: type[nn.Module], feed_class: type[nn.Module]) -> None:
    """Let every encoder block that can run directly do so; the classes are what its parts were replaced by."""
    for block in model.modules():
        if type(block) is EncoderBlock and _can_run_directly(block, linear_class, feed_class):
            block.forward = DirectBlock(block)  # type: ignore[method-assign]


def _can_run_directly(block: EncoderBlock, linear_class: type[nn.Module], feed_class: type[nn.Module]) -> bool:
    """Return whether a block is plain self-attention and a plain feed-forward, all with packed weights."""
    if block.path is not None or block.mix_scale is not None or block.feed_scale is not None:
        return False
    mix: Any = block.mix
    feed: Any = block.feed
    if type(mix) is not MultiHeadAttention or type(mix.join) is not OutputProjection:
        return False
    project, attend = mix.project, mix.attend
    if type(project) is not QKVProjection or project.q_norm is not None or project.heads_per_kv != 1:
        return False
    return (
        type(attend) is SoftmaxAttention
        and attend.backend == "sdpa"
        and type(feed) is feed_class
        and {type(linear) for linear in (project.qkv, mix.join.out, feed.up, feed.down)} == {linear_class}
        and all(type(norm) in (nn.LayerNorm, LayerNorm) for norm in (block.mix_norm, block.feed_norm))
    )


def _norm(x: Tensor, norm: nn.LayerNorm) -> Tensor:
    return F.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)
