"""Aligners: one step at a time, with state, for recurrent decoders. The table of contents."""

from __future__ import annotations

from regard.core.spec import Table

ALIGNERS: Table = {
    "additive": ("regard.attention.aligners.additive", "AdditiveAligner"),
    "hard": ("regard.attention.aligners.hard", "HardAligner"),
    "gumbel": ("regard.attention.aligners.gumbel", "GumbelAligner"),
}
