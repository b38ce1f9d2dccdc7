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

from regard.attention.aligners import ALIGNERS as ALIGNERS
from regard.attention.mechanisms import MECHANISMS as MECHANISMS
from regard.attention.mixers import MIXERS as MIXERS
from regard.attention.mixers import build_mixer as build_mixer
from regard.core.lazy_exports import lazy_exports

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
if TYPE_CHECKING:
    from regard.attention._exports import *
else:
    __getattr__, __dir__ = lazy_exports(__name__, _MODULES, ALIGNERS, MECHANISMS)
