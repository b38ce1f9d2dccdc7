"""Aligners: one step at a time, with state, for recurrent decoders. The table of contents."""

from __future__ import annotations

from regard.core.spec import Table

ALIGNERS: Table = {
    "additive": ("regard.attention.aligners.additive", "AdditiveAligner"),
    "dot": ("regard.attention.aligners.dot", "DotAligner"),
    "scaled_dot": ("regard.attention.aligners.scaled_dot", "ScaledDotAligner"),
    "bilinear": ("regard.attention.aligners.bilinear", "BilinearAligner"),
    "concat": ("regard.attention.aligners.concat", "ConcatAligner"),
    "local_m": ("regard.attention.aligners.local_m", "LocalMonotonicAligner"),
    "local_p": ("regard.attention.aligners.local_p", "LocalPredictiveAligner"),
    "location": ("regard.attention.aligners.location", "LocationAligner"),
    "gmm": ("regard.attention.aligners.gmm", "GMMAligner"),
    "monotonic": ("regard.attention.aligners.monotonic", "MonotonicAligner"),
    "coverage": ("regard.attention.aligners.coverage", "CoverageAligner"),
    "remembering": ("regard.attention.aligners.remembering", "RememberingAligner"),
    "hard": ("regard.attention.aligners.hard", "HardAligner"),
    "gumbel": ("regard.attention.aligners.gumbel", "GumbelAligner"),
}
