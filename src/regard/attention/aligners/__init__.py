"""Aligners: attention of recurrent decoders, one step at a time, with state. The table of contents."""

from __future__ import annotations

from regard.core.spec import Registry

ALIGNERS: Registry = {
    "additive": ("regard.attention.aligners.additive", "AdditiveAligner"),
    "dot": ("regard.attention.aligners.dot", "DotAligner"),
    "scaled_dot": ("regard.attention.aligners.scaled_dot", "ScaledDotAligner"),
    "bilinear": ("regard.attention.aligners.bilinear", "BilinearAligner"),
    "concat": ("regard.attention.aligners.concat", "ConcatAligner"),
    "local_monotonic": ("regard.attention.aligners.local_monotonic", "LocalMonotonicAligner"),
    "local_predictive": ("regard.attention.aligners.local_predictive", "LocalPredictiveAligner"),
    "location": ("regard.attention.aligners.location", "LocationAligner"),
    "gmm": ("regard.attention.aligners.gmm", "GMMAligner"),
    "monotonic": ("regard.attention.aligners.monotonic", "MonotonicAligner"),
    "coverage": ("regard.attention.aligners.coverage", "CoverageAligner"),
    "neural_coverage": ("regard.attention.aligners.neural_coverage", "NeuralCoverageAligner"),
    "hard": ("regard.attention.aligners.hard", "HardAligner"),
    "gumbel": ("regard.attention.aligners.gumbel", "GumbelAligner"),
}
