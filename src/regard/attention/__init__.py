"""Attention: masks, mechanisms, aligners, mixers, and a way to watch them.

| file | contents |
|---|---|
| mask | who may attend to whom, as a formula |
| protocol | Aligner, Mechanism, Mixer, Traits |
| multihead, projections, joins | project, attend, join |
| mechanisms, mixers, aligners | the tables, one file for each part |
| sparse_pattern | attention to the keys of a pattern of places |
| kv_cache | the state of decoding |
| window_attention | attention within windows of a grid |
| capture | `watch`: attention maps of a running model |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.attention.aligners import ALIGNERS
from regard.attention.mechanisms import MECHANISMS
from regard.attention.mixers import MIXERS, build_mixer
from regard.core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from regard.attention.capture.watch import watch
    from regard.attention.joins import JOINS
    from regard.attention.joins.concat import OutputProjection
    from regard.attention.kv_cache import BeamTable, KVCache
    from regard.attention.mask import (
        CausalMask,
        ChunkMask,
        DenseMask,
        DocumentMask,
        GlobalMask,
        KeyMask,
        Mask,
        PaddingMask,
        SegmentMask,
        WindowMask,
    )
    from regard.attention.multihead import MultiHeadAttention
    from regard.attention.projections import PROJECTIONS, CrossProjection, QKVProjection
    from regard.attention.protocol import Aligner, Mechanism, Mixer, Traits

__all__ = [
    "ALIGNERS",
    "JOINS",
    "MECHANISMS",
    "MIXERS",
    "PROJECTIONS",
    "Aligner",
    "BeamTable",
    "CausalMask",
    "ChunkMask",
    "CrossProjection",
    "DenseMask",
    "DocumentMask",
    "GlobalMask",
    "KVCache",
    "KeyMask",
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

_MODULES = {
    "mask": (
        "CausalMask", "ChunkMask", "DenseMask", "DocumentMask", "GlobalMask", "KeyMask", "Mask", "PaddingMask",
        "SegmentMask", "WindowMask",
    ),
    "protocol": ("Aligner", "Mechanism", "Mixer", "Traits"),
    "multihead": ("MultiHeadAttention",),
    "projections": ("PROJECTIONS", "CrossProjection", "QKVProjection"),
    "joins": ("JOINS",),
    "joins.concat": ("OutputProjection",),
    "kv_cache": ("BeamTable", "KVCache"),
    "window_attention": ("CosineWindowAttention", "WindowAttention"),
    "capture.watch": ("watch",),
}  # fmt: skip
__getattr__, __dir__ = lazy_exports(__name__, _MODULES, ALIGNERS, MECHANISMS)
