"""Stacks of Transformer blocks with packed weights as one call of a kernel (runtime.few_rows), where rows are few.

A short text takes a CPU a few milliseconds, and the calls of some ninety modules and a few hundred operations a good
part of them. Direct blocks stand in for `apply_blocks` of an encoder or `step_blocks` of a decoder whose blocks are all

    post-norm    x = norm(x + W_o attend(W_qkv x));  ...;  x = norm(x + W_2 a(W_1 x))
    pre-norm     x = x + W_o attend(W_qkv norm(x));  ...;  x = x + W_2 a(W_1 norm(x))

They hand every call that asks for more back to the stack: many rows, positions inside attention, other masks,
gradients, hooks on a part (`watch`, interventions), and parts that were exchanged or are in training mode.
"""

from __future__ import annotations

import ctypes
from ctypes import c_float, c_int, c_long, c_void_p
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as torch_module

from regard.attention.joins.concat import OutputProjection
from regard.attention.mask import DocumentMask, Mask, PaddingMask
from regard.attention.mechanisms.softmax import SoftmaxAttention
from regard.attention.multihead import MultiHeadAttention
from regard.attention.projections import CrossProjection, QKVProjection
from regard.blocks.decoder import Decoder, DecoderBlock, State
from regard.blocks.encoder import Encoder, EncoderBlock
from regard.blocks.norms import LayerNorm
from regard.core.layer_state import PassState
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


class DirectBlocks:
    """The weights of a stack's blocks as the kernel reads them, and the question whether a call is for it."""

    def __init__(self, stack: Any) -> None:
        blocks, mix = list(stack.blocks), stack.blocks[0].mix
        self.stack, self.blocks = stack, stack.blocks
        self.parts = [(part, dict(part._modules)) for part in stack.blocks.modules()]  # and what they consist of
        self.heads, self.head_dim = mix.project.kv_heads, mix.project.head_dim
        self.norms: list[tuple[Any, Tensor, Tensor]] = []  # their weights are referenced, so that they stay
        self.c = (CBlock * len(blocks))(*map(self._block, blocks))
        self.scratch_width = max(self._scratch_width(block) for block in self.c)

    def _block(self, block: Any) -> CBlock:
        mix, feed, cross = block.mix, block.feed, getattr(block, "cross", None)
        linears = {"qkv": mix.project.qkv, "out": mix.join.out, "up": feed.up, "down": feed.down}
        norms = {"mix_norm": block.mix_norm, "feed_norm": block.feed_norm}
        if cross is not None:
            linears |= {"cross_q": cross.project.q, "cross_out": cross.join.out}
            norms["cross_norm"] = block.cross_norm
        self.norms += [(norm, norm.weight.detach(), norm.bias.detach()) for norm in norms.values()]
        return CBlock(
            heads=mix.project.kv_heads,
            head_dim=mix.project.head_dim,
            scale=_scale(mix),
            cross_scale=0.0 if cross is None else _scale(cross),
            pre_norm=block.pre_norm,
            activation=ACTIVATIONS[feed.up.activation],
            **{name: linear.matrix.c for name, linear in linears.items()},
            **{name: CNorm(norm.weight.data_ptr(), norm.bias.data_ptr(), norm.eps) for name, norm in norms.items()},
        )

    @staticmethod
    def _scratch_width(block: CBlock) -> int:
        """Return how many numbers the kernel needs for a row."""
        return max(block.qkv.outputs, block.up.outputs) + block.out.inputs + block.down.outputs

    def is_plain(self, x: Tensor, positions: PositionInfo) -> bool:
        """Return whether the kernel does all that the blocks would do for this call."""
        if not is_few(x, x.shape[0] * x.shape[1], self.c[0].down.outputs) or not x.numel():
            return False
        if positions.qk_transform is not None or positions.bias is not None or positions.query_vectors is not None:
            return False
        if (torch.is_grad_enabled() and x.requires_grad) or torch.is_autocast_enabled("cpu"):
            return False
        if torch_module._has_any_global_hook() or self.stack.blocks is not self.blocks:
            return False
        if any(
            norm.weight.data_ptr() != weight.data_ptr() or norm.bias.data_ptr() != bias.data_ptr()
            for norm, weight, bias in self.norms
        ):
            return False
        return not any(
            part._forward_hooks or part._forward_pre_hooks or part.training or part._modules != children
            for part, children in self.parts
        )

    def call(self, name: str, x: Tensor, *arguments: Any) -> Tensor:
        """Return what a function of the kernel makes of x."""
        library, parallel = load_library()  # type: ignore[misc]
        x = x.contiguous()
        out, scratch = torch.empty_like(x), x.new_empty(x.shape[0] * x.shape[1] * self.scratch_width)
        pointers = x.data_ptr(), out.data_ptr(), scratch.data_ptr()
        threads = torch.get_num_threads()
        getattr(library, name)(self.c, len(self.c), *pointers, *arguments, threads, parallel)
        return out


class DirectEncoderBlocks(DirectBlocks):
    """The `apply_blocks` of an encoder."""

    def __call__(self, x: Tensor, mask: Mask | None, positions: PositionInfo, pass_state: PassState) -> Tensor:
        (texts, n, _), ends, lengths = x.shape, None, None
        longest = mask.max_length if isinstance(mask, DocumentMask) else n
        is_known = mask is None or type(mask) in (PaddingMask, DocumentMask)
        if isinstance(mask, PaddingMask):
            lengths = mask.lengths.long().contiguous()
            is_known = len(lengths) == texts
        if not is_known or longest > MAX_KEYS or not self.is_plain(x, positions):
            return Encoder.apply_blocks(self.stack, x, mask, positions, pass_state)
        if isinstance(mask, DocumentMask):
            texts, ends = len(mask.lengths), mask.cu_seqlens
        return self.call("encoder_blocks", x, len(x) * n, texts, n, _address(ends), _address(lengths))


class DirectDecoderBlocks(DirectBlocks):
    """The `step_blocks` of a decoder."""

    def __call__(self, x: Tensor, state: State, positions: PositionInfo) -> tuple[Tensor, list[Any]]:
        (inputs, beams, _), table, memory_mask = x.shape, state.beam_table, state.memory_mask
        allowed = None if table.single_beam else table.allow.contiguous()
        memory_allowed = None if memory_mask is None else memory_mask.allowed.contiguous()
        memories = [found for k, v in state.keys if (found := _memory(k, v, memory_allowed, inputs)) is not None]
        number, fits = len(self.c), isinstance(table.filled, int) and table.filled <= MAX_KEYS
        if not fits or len(memories) < number or not self.is_plain(x, positions):
            return Decoder.step_blocks(self.stack, x, state, positions)
        empty = x.new_empty(inputs, self.heads, 0, self.head_dim)
        caches = [cache.allocate(empty, empty) for cache in state.caches]
        pasts = [
            CCache(cache.k.data_ptr(), cache.v.data_ptr(), cache.capacity, table.filled, _address(allowed))
            for cache in caches
        ]
        arrays = (CCache * number)(*pasts), (CMemory * number)(*memories)
        return self.call("decoder_steps", x, inputs, beams, *arrays), caches


def _memory(k: Tensor, v: Tensor, allowed: Tensor | None, inputs: int) -> CMemory | None:
    """Return keys and values of the memory for the kernel; None in a layout or dtype that it does not know."""
    if k.shape[2] > MAX_KEYS or not v.is_contiguous() or not (k.is_contiguous() or k.mT.is_contiguous()):
        return None
    if not k.dtype == v.dtype == torch.float32 or len(k) != inputs:
        return None
    if allowed is not None and allowed.shape != (inputs, 1, k.shape[2]):
        return None
    strides = (k.shape[3], 1) if k.is_contiguous() else (1, k.shape[2])
    return CMemory(k.data_ptr(), v.data_ptr(), k.shape[2], *strides, _address(allowed))


def _address(x: Tensor | None) -> int | None:
    return None if x is None else x.data_ptr()


def use_direct_blocks(model: nn.Module, linear_class: type[nn.Module], feed_class: type[nn.Module]) -> None:
    """Let every stack whose blocks can all run directly do so; the classes are what their parts were replaced by."""
    stacks: list[Any] = [part for part in model.modules() if isinstance(part, (Encoder, Decoder)) and len(part.blocks)]
    for stack in stacks:
        is_encoder = isinstance(stack, Encoder)
        kind = EncoderBlock if is_encoder else DecoderBlock
        if not all(
            type(block) is kind and _can_run_directly(block, linear_class, feed_class) for block in stack.blocks
        ):
            continue
        if is_encoder:
            stack.apply_blocks = DirectEncoderBlocks(stack)
        else:
            stack.step_blocks = DirectDecoderBlocks(stack)


def has_direct_blocks(model: nn.Module) -> bool:
    """Return whether an encoder of the model runs directly where rows are few."""
    return any(isinstance(getattr(part, "apply_blocks", None), DirectEncoderBlocks) for part in model.modules())


def _can_run_directly(block: Any, linear_class: type[nn.Module], feed_class: type[nn.Module]) -> bool:
    """Return whether a block is plain attention and a plain feed-forward, all with weights that the kernel reads."""
    if block.path.p or getattr(block, "mix_scale", None) or getattr(block, "feed_scale", None):
        return False
    mix, feed, norms = block.mix, block.feed, [block.mix_norm, block.feed_norm]
    if (
        type(block.feed) is not feed_class
        or not _is_plain_attention(mix, QKVProjection)
        or mix.project.q_norm is not None
    ):
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
