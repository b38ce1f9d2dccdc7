"""Sharpened links: following a link does not blur the address.

    sharpened   f = sharpen(L w^r + ε, γ_f)     b = sharpen(Lᵀ w^r + ε, γ_b)     γ = 1 + softplus, per head, direction
    links       f = L w^r                       b = Lᵀ w^r                       each step spreads the address further

A head that follows a chain of writes multiplies by L again and again; what is not quite one at one cell becomes noise
over all. The power (see sharpening) restores the peak. ε is added first, so that a head whose cell has no link gets a
flat address, not the rounding errors of L made large.

Csordás, Schmidhuber: Improving Differentiable Neural Computers Through Memory Masking, De-allocation, and Link
Distribution Sharpness Control. ICLR 2019. arXiv:1904.10278 (section 3.3)
"""

from __future__ import annotations

from regard.attention.addressing.content import strength
from regard.attention.addressing.sharpening import sharpen
from regard.attention.addressing.temporal_links import TemporalLinks
from regard.core.shapes import Float, Tensor

EPS = 1e-6


class SharpenedLinks(TemporalLinks):
    """Temporal links with two powers; raw is the three scores and the powers, backward first."""

    def raw_width(self, word: int) -> int:
        return 5

    def follow(
        self, raw: Float[Tensor, "*B H P"], previous: Float[Tensor, "*B H N"], links: Float[Tensor, "*B N N"]
    ) -> tuple[Float[Tensor, "*B H N"], Float[Tensor, "*B H N"]]:
        backward, forward = super().follow(raw, previous, links)
        return sharpen(backward + EPS, strength(raw[..., 3:4])), sharpen(forward + EPS, strength(raw[..., 4:5]))
