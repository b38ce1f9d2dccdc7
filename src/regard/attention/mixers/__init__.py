"""Mixers: tokens in, tokens out, whatever happens between. The table of contents."""

from __future__ import annotations

from regard.core.spec import Registry

MIXERS: Registry = {
    "multihead": ("regard.attention.multihead", "MultiHeadAttention"),
}
