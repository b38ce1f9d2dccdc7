"""Transformer blocks with packed weights as one call of a kernel (runtime.few_rows), where their rows are few.

A short text takes a CPU a few milliseconds, and the calls of some ninety modules and a few hundred operations a good
part of them. A direct block stands in for the `forward` of an encoder block or the `step` of a decoder block:

    post-norm    x = norm(x + W_o attend(W_qkv x));  ...;  x = norm(x + W_2 a(W_1 x))
    pre-norm     x = x + W_o attend(W_qkv norm(x));  ...;  x = x + W_2 a(W_1 norm(x))

It hands every call that asks for more back to the block: many rows, positions inside attention, other masks, gradients,
and hooks on a part (`watch`, interventions).
"""

from __future__ import annotations

import ctypes
from ctypes import c_float, c_int, c_long, c_void_p
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as torch_module

from regard.attention.joins.concat import OutputProjection
from regard.attention.kv_cache import BeamTable, KVCache
from regard.attention.mask import DenseMask, DocumentMask, Mask, PaddingMask
from regard.attention.mechanisms.softmax import SoftmaxAttention
from regard.attention.multihead import MultiHeadAttention
from regard.attention.projections import CrossProjection, KeyValue, QKVProjection
from regard.blocks.decoder import DecoderBlock, Masks
from regard.blocks.encoder import EncoderBlock
from regard.blocks.norms import LayerNorm
from regard.core.layer_state import LayerState
from regard.core.positions import PositionInfo
from regard.core.shapes import Tensor
from regard.runtime.few_rows import ACTIVATIONS, LANES, MAX_KEYS, CLinear, is_few, load_library


class CNorm(ctypes.Structure):
    """`Norm` in C."""

    _fields_ = (("weight", c_void_p), ("bias", c_void_p), ("eps", c_float))


class CBlock(ctypes.Structure):
    """`Block` in C."""

    _fields_ = (
        *((name, CLinear) for name in ("qkv", "out", "cross_q", "cross_out", "up", "down")),
        *((name, CNorm) for name in ("mix_norm", "cross_norm", "feed_norm")),
        *((name, c_long) for name in ("heads", "head_dim")),
        *((name, c_float) for name in ("scale", "cross_scale")),
        *((name, c_int) for name in ("pre_norm", "activation")),
    )


class CCache(ctypes.Structure):
    """`Cache` in C."""

    _fields_ = (("k", c_void_p), ("v", c_void_p), ("capacity", c_long), ("filled", c_long), ("allowed", c_void_p))


class CMemory(ctypes.Structure):
    """`Memory` in C."""

    _fields_ = (
        *(("k", c_void_p), ("v", c_void_p)),
        *((name, c_long) for name in ("keys", "key_stride", "dim_stride")),
        ("allowed", c_void_p),
    )


class DirectBlock:
    """A block's weights as the kernel reads them, and the question whether a call is for it."""

    def __init__(self, block: Any) -> None:
        mix, feed, cross = block.mix, block.feed, getattr(block, "cross", None)
        self.block, self.parts = block, [part for part in block.modules() if part is not block]
        self.heads, self.head_dim = mix.project.kv_heads, mix.project.head_dim
        linears = {"qkv": mix.project.qkv, "out": mix.join.out, "up": feed.up, "down": feed.down}
        norms = {"mix_norm": block.mix_norm, "feed_norm": block.feed_norm}
        if cross is not None:
            linears |= {"cross_q": cross.project.q, "cross_out": cross.join.out}
            norms["cross_norm"] = block.cross_norm
        self.scratch_width = (
            max(feed.up.matrix.outputs, 3 * self.heads * self.head_dim)
            + self.heads * self.head_dim
            + feed.down.matrix.outputs
        )
        self.c = CBlock(
            heads=self.heads,
            head_dim=self.head_dim,
            scale=_scale(mix),
            cross_scale=0.0 if cross is None else _scale(cross),
            pre_norm=block.pre_norm,
            activation=ACTIVATIONS[feed.up.activation],
            **{name: linear.matrix.c for name, linear in linears.items()},
            **{name: CNorm(norm.weight.data_ptr(), norm.bias.data_ptr(), norm.eps) for name, norm in norms.items()},
        )
        self.address = ctypes.addressof(self.c)
        self.norms = [(norm, norm.weight.detach(), norm.bias.detach()) for norm in norms.values()]  # referenced: stay

    def is_plain(self, x: Tensor, positions: PositionInfo | None) -> bool:
        """Return whether the kernel does all that the block would do for this call."""
        if not is_few(x, x.shape[0] * x.shape[1]) or not x.numel():
            return False
        if positions is not None and not (
            positions.qk_transform is None and positions.bias is None and positions.query_vectors is None
        ):
            return False
        if (torch.is_grad_enabled() and x.requires_grad) or torch.is_autocast_enabled("cpu"):
            return False
        if torch_module._has_any_global_hook() or torch._C._len_torch_dispatch_stack():
            return False
        if any(norm.weight.data_ptr() != weight.data_ptr() for norm, weight, _ in self.norms):
            return False
        return not any(part._forward_hooks or part._forward_pre_hooks for part in self.parts)


class DirectEncoderBlock(DirectBlock):
    """The `forward` of an encoder block."""

    def __call__(
        self,
        x: Tensor,
        mask: Mask | None = None,
        positions: PositionInfo | None = None,
        layer_state: LayerState | None = None,
    ) -> Tensor:
        longest = mask.max_length if isinstance(mask, DocumentMask) else x.shape[1]
        if type(mask) not in (type(None), PaddingMask, DocumentMask) or longest > MAX_KEYS:
            return EncoderBlock.forward(self.block, x, mask, positions, layer_state)
        if not self.is_plain(x, positions):
            return EncoderBlock.forward(self.block, x, mask, positions, layer_state)
        x = x.contiguous()
        (texts, n, _), ends, lengths = x.shape, None, None
        if isinstance(mask, DocumentMask):
            texts, ends = len(mask.lengths), mask.cu_seqlens
        elif isinstance(mask, PaddingMask):
            lengths = mask.lengths.long().contiguous()
        rows = x.shape[0] * n
        out, scratch = torch.empty_like(x), x.new_empty(rows * self.scratch_width)
        library, parallel = load_library()  # type: ignore[misc]
        library.encoder_block(
            self.address,
            x.data_ptr(),
            out.data_ptr(),
            scratch.data_ptr(),
            rows,
            texts,
            n,
            None if ends is None else ends.data_ptr(),
            None if lengths is None else lengths.data_ptr(),
            torch.get_num_threads(),
            parallel,
        )
        return out


class DirectDecoderStep(DirectBlock):
    """The `step` of a decoder block."""

    def __call__(
        self,
        x: Tensor,
        cache: Any,
        keys: KeyValue,
        beam_table: BeamTable,
        masks: Masks,
        positions: PositionInfo,
        layer_state: LayerState | None = None,
    ) -> tuple[Tensor, Any]:
        filled, memory = beam_table.filled, _memory(keys, masks.memory)
        if memory is None or not isinstance(filled, int) or filled > MAX_KEYS or not self.is_plain(x, positions):
            return DecoderBlock.step(self.block, x, cache, keys, beam_table, masks, positions, layer_state)
        x = x.contiguous()
        inputs, beams = x.shape[:2]
        if cache.k is None:
            zeros = x.new_zeros(2, inputs, self.heads, cache.capacity, self.head_dim)
            cache = KVCache(cache.capacity, *zeros.unbind())
        allowed = None if beam_table.single_beam else beam_table.allow.contiguous()
        past = CCache(
            cache.k.data_ptr(),
            cache.v.data_ptr(),
            cache.capacity,
            filled,
            None if allowed is None else allowed.data_ptr(),
        )
        out, scratch = torch.empty_like(x), x.new_empty(inputs * beams * self.scratch_width)
        library, parallel = load_library()  # type: ignore[misc]
        library.decoder_step(
            self.address,
            x.data_ptr(),
            out.data_ptr(),
            scratch.data_ptr(),
            inputs,
            beams,
            ctypes.addressof(past),
            ctypes.addressof(memory),
            torch.get_num_threads(),
            parallel,
        )
        return out, cache


def _memory(keys: KeyValue, mask: Mask | None) -> CMemory | None:
    """Return the keys and values of the memory for the kernel; None in a layout or with a mask that it does not know."""
    (k, v), allowed = keys, None
    if k.shape[2] > MAX_KEYS or not v.is_contiguous() or not (k.is_contiguous() or k.mT.is_contiguous()):
        return None
    if mask is not None:
        if not isinstance(mask, DenseMask) or mask.allowed.shape[1] != 1 or not mask.allowed.is_contiguous():
            return None
        allowed = mask.allowed.data_ptr()
    strides = (k.shape[3], 1) if k.is_contiguous() else (1, k.shape[2])
    return CMemory(k.data_ptr(), v.data_ptr(), k.shape[2], *strides, allowed)


def use_direct_blocks(model: nn.Module, linear_class: type[nn.Module], feed_class: type[nn.Module]) -> None:
    """Let every block that can run directly do so; the classes are what its parts were replaced by."""
    for block in model.modules():
        if type(block) is EncoderBlock and _can_run_directly(block, linear_class, feed_class):
            block.forward = DirectEncoderBlock(block)  # type: ignore[method-assign]
        if type(block) is DecoderBlock and _can_run_directly(block, linear_class, feed_class):
            block.step = DirectDecoderStep(block)  # type: ignore[method-assign]


def _can_run_directly(block: Any, linear_class: type[nn.Module], feed_class: type[nn.Module]) -> bool:
    """Return whether a block is plain attention and a plain feed-forward, all with weights that the kernel reads."""
    if block.path is not None or getattr(block, "mix_scale", None) or getattr(block, "feed_scale", None):
        return False
    mix, feed, norms = block.mix, block.feed, [block.mix_norm, block.feed_norm]
    if type(feed) is not feed_class or not _is_plain_attention(mix, QKVProjection) or mix.project.q_norm is not None:
        return False
    linears = [mix.project.qkv, mix.join.out, feed.up, feed.down]
    if isinstance(block, DecoderBlock):
        cross: Any = block.cross
        if not _is_plain_attention(cross, CrossProjection) or cross.project.head_dim != mix.project.head_dim:
            return False
        if cross.project.heads != cross.project.kv_heads or cross.project.heads != mix.project.kv_heads:
            return False
        linears += [cross.project.q, cross.join.out]
        norms.append(block.cross_norm)
    return (
        all(type(linear) is linear_class and getattr(linear, "matrix", None) is not None for linear in linears)
        and feed.up.activation in ACTIVATIONS
        and all(type(norm) in (nn.LayerNorm, LayerNorm) and norm.bias is not None for norm in norms)
        and not (mix.project.head_dim % LANES or feed.down.matrix.outputs % LANES)
    )


def _is_plain_attention(mix: Any, projection: type[nn.Module]) -> bool:
    """Return whether this is softmax attention with as many key heads as query heads, and nothing else."""
    if type(mix) is not MultiHeadAttention or type(mix.join) is not OutputProjection:
        return False
    if type(mix.project) is not projection or getattr(mix.project, "heads_per_kv", 1) != 1:
        return False
    return type(mix.attend) is SoftmaxAttention and mix.attend.backend in ("sdpa", "bmm") and _scale(mix) > 0


def _scale(mix: Any) -> float:
    scale: float | None = mix.attend.scale
    return mix.project.head_dim**-0.5 if scale is None else scale
