"""Mechanisms: queries, keys and values to mixed values. The table of contents."""

from __future__ import annotations

from regard.core.spec import Registry

MECHANISMS: Registry = {
    "softmax": ("regard.attention.mechanisms.softmax", "SoftmaxAttention"),
    # sparse by position
    "window": ("regard.attention.mechanisms.window", "SlidingWindowAttention"),
    "bigbird": ("regard.attention.mechanisms.bigbird", "BigBirdAttention"),
    "sparse_strided": ("regard.attention.mechanisms.sparse_strided", "SparseStridedAttention"),
    "sparse_fixed": ("regard.attention.mechanisms.sparse_fixed", "SparseFixedAttention"),
    "image_local_1d": ("regard.attention.mechanisms.image_local_1d", "ImageLocal1DAttention"),
    "image_local_2d": ("regard.attention.mechanisms.image_local_2d", "ImageLocal2DAttention"),
    "axial": ("regard.attention.mechanisms.axial", "AxialAttention"),
    # sparse by content
    # linearised
    "linear": ("regard.attention.mechanisms.linear", "LinearAttention"),
    # fewer queries or keys
    # low rank
    # with a prior
    "realformer": ("regard.attention.mechanisms.realformer", "RealFormerAttention"),
    # heads
}
