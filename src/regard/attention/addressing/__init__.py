"""Addressing: where the heads of an external memory read and write, one rule per file. The table of contents.

A head has an address: weights over the N cells of a memory. Rules make it, one after the other. They have no
parameters: what they need (keys, strengths, gates) comes from the controller.
"""

from __future__ import annotations

from regard.core.spec import Registry

ADDRESSING: Registry = {
    "content": ("regard.attention.addressing.content", "ContentAddressing"),
    "masked_content": ("regard.attention.addressing.masked_content", "MaskedContentAddressing"),
    "interpolation": ("regard.attention.addressing.interpolation", "Interpolation"),
    "shift": ("regard.attention.addressing.shift", "CircularShift"),
    "sharpening": ("regard.attention.addressing.sharpening", "Sharpening"),
    "top_k": ("regard.attention.addressing.top_k", "TopK"),
    "allocation": ("regard.attention.addressing.allocation", "Allocation"),
    "temporal_links": ("regard.attention.addressing.temporal_links", "TemporalLinks"),
    "sharpened_links": ("regard.attention.addressing.sharpened_links", "SharpenedLinks"),
}
