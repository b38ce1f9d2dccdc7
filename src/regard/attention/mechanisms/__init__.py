"""Mechanisms: queries, keys and values to mixed values. The table of contents."""

from __future__ import annotations

from regard.core.spec import Registry

MECHANISMS: Registry = {
    "softmax": ("regard.attention.mechanisms.softmax", "SoftmaxAttention"),
    "linear": ("regard.attention.mechanisms.linear", "LinearAttention"),
    "realformer": ("regard.attention.mechanisms.realformer", "RealFormerAttention"),
}
