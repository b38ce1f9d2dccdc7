"""Mixers: tokens in, tokens out, whatever happens between. `build_mixer` finds a part in either table.

A block's `attention` is a spec: the name of a mechanism, which multi-head attention then applies, or the name of a
mixer.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from regard.attention.mechanisms import MECHANISMS
from regard.core.errors import UnknownName, Unsupported, did_you_mean
from regard.core.plugins import load_plugins
from regard.core.spec import Registry, Spec, build_part

MIXERS: Registry = {
    "multihead": ("regard.attention.multihead", "MultiHeadAttention"),
    # sparse by position
    "longformer": ("regard.attention.mixers.longformer", "LongformerAttention"),
    # fewer queries or keys
    "luna": ("regard.attention.mixers.luna", "LunaAttention"),
    "isab": ("regard.attention.mixers.isab", "ISAB"),
    "memory_compressed": ("regard.attention.mixers.memory_compressed", "MemoryCompressedAttention"),
    "poolingformer": ("regard.attention.mixers.poolingformer", "PoolingformerAttention"),
    # with a prior
    "average": ("regard.attention.mixers.average", "AverageAttention"),
}


def build_mixer(spec: Any, *, width: int, heads: int, **context: Any) -> nn.Module:
    """Build the mixer that a spec names, from the sizes and settings of its place.

    Args:
        spec: a mechanism ("linear") or a mixer ("multihead(mechanism='linear')") by name, or a module: a `Mechanism`
            is wrapped in multi-head attention, any other module is the mixer itself.
        width, heads: sizes of the place; `context` may add kv_heads, head_dim, length, causal, layer, grid, prefix,
            bias, out_bias, dropout, scale, cross and norms. A part gets those that its constructor takes.
    """
    from regard.attention.multihead import MultiHeadAttention
    from regard.attention.protocol import Mechanism

    if isinstance(spec, str):
        name = Spec.parse(spec).name
        if name not in MECHANISMS and name not in MIXERS:
            load_plugins()
        if name in MIXERS:
            mixer: nn.Module = build_part(MIXERS, spec, "attention", width=width, heads=heads, **context)
            return _check_place(mixer, spec, **context)
        if name not in MECHANISMS:
            raise UnknownName(f"no attention is called '{name}'; {did_you_mean(name, {*MECHANISMS, *MIXERS})}")
    elif isinstance(spec, nn.Module) and not isinstance(spec, Mechanism):
        return spec
    return _check_place(MultiHeadAttention(width, heads, mechanism=spec, **context), spec, **context)


def _check_place(mixer: nn.Module, spec: Any, causal: bool = False, cross: bool = False, **_: Any) -> nn.Module:
    """Return the mixer, or refuse one that cannot attend as its place demands."""
    traits = getattr(getattr(mixer, "attend", mixer), "traits", None)
    name = spec if isinstance(spec, str) else type(spec).__name__
    if traits is not None and causal and not traits.masks & {"any", "causal"}:
        raise Unsupported(
            f"{name} takes no mask of kind causal, which a decoder needs; use it in an encoder, or choose one whose "
            "causality is not 'none' (regard list attention)"
        )
    if traits is not None and cross and traits.square:
        raise Unsupported(f"{name} attends within one sequence; use another attention for a context")
    return mixer
