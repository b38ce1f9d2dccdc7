"""Attention: masks, mechanisms, aligners, mixers, and a way to watch them.

| file | contents |
|---|---|
| mask | who may attend to whom, as a formula |
| protocol | Aligner, Mechanism, Mixer, Traits |
| multihead, projections, joins | project, attend, join |
| mechanisms, mixers, aligners | the tables, one file for each part |
| kv_cache | the state of decoding |
| window_attention | attention within windows of a grid |
| capture | `watch`: attention maps of a running model |
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from regard.attention.aligners import ALIGNERS
from regard.attention.mechanisms import MECHANISMS
from regard.attention.mixers import MIXERS, build_mixer

if TYPE_CHECKING:
    from regard.attention.capture.watch import watch
    from regard.attention.joins import JOINS, OutputProjection
    from regard.attention.kv_cache import BeamTable, KVCache
    from regard.attention.mask import (
        CausalMask,
        DenseMask,
        DocumentMask,
        GlobalMask,
        Mask,
        PaddingMask,
        SegmentMask,
        WindowMask,
    )
    from regard.attention.multihead import MultiHeadAttention
    from regard.attention.projections import PROJECTIONS, CrossProjection, QKVProjection
    from regard.attention.protocol import Aligner, Mechanism, Mixer, Traits

_LAZY = {
    **dict.fromkeys(
        ["CausalMask", "DenseMask", "DocumentMask", "GlobalMask", "Mask", "PaddingMask", "SegmentMask", "WindowMask"],
        "mask",
    ),
    **dict.fromkeys(["Aligner", "Mechanism", "Mixer", "Traits"], "protocol"),
    **dict.fromkeys(["PROJECTIONS", "CrossProjection", "QKVProjection"], "projections"),
    **dict.fromkeys(["JOINS", "OutputProjection"], "joins"),
    **dict.fromkeys(["BeamTable", "KVCache"], "kv_cache"),
    "MultiHeadAttention": "multihead",
    "watch": "capture.watch",
}

__all__ = [
    "ALIGNERS",
    "JOINS",
    "MECHANISMS",
    "MIXERS",
    "PROJECTIONS",
    "Aligner",
    "BeamTable",
    "CausalMask",
    "CrossProjection",
    "DenseMask",
    "DocumentMask",
    "GlobalMask",
    "KVCache",
    "Mask",
    "Mechanism",
    "Mixer",
    "MultiHeadAttention",
    "OutputProjection",
    "PaddingMask",
    "QKVProjection",
    "SegmentMask",
    "Traits",
    "WindowMask",
    "build_mixer",
    "watch",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"regard.attention.{_LAZY[name]}"), name)


def __dir__() -> list[str]:
    return __all__
