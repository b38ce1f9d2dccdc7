"""Spherical harmonics: where a point is on the globe.

    Y_l^m(λ, φ),   0 <= l < L,  -l <= m <= l:   L² real functions of longitude λ and latitude φ                  O(L²)

On the sphere they are what sines and cosines are on a line: orthonormal, smooth everywhere (the poles are no special
places, and 180° east is 180° west), ordered from coarse to fine. A rotation of the globe mixes only those of one
degree l, so p(x)·p(y) depends on the angle between x and y alone: Σ_lm Y_lm(x) Y_lm(y) = Σ_l (2l+1)/(4π) P_l(cos γ).

The associated Legendre functions come from the recurrence in l that is stable up to some hundred degrees, fully
normalised.

Rußwurm, Klemmer, Rolf, Zbinden, Tuia: Geographic Location Encoding with Spherical Harmonics and Sinusoidal
Representation Networks. ICLR 2024. arXiv:2310.06743
"""

from __future__ import annotations

from math import pi, sqrt
from typing import ClassVar

import torch
from torch import nn

from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor
from regard.positions.traits import PositionTraits

MAX_DEGREES = 128


class SphericalHarmonics(nn.Module):
    """Vectors of points of the globe: `degrees`² numbers for each."""

    kind: ClassVar[str] = "added"
    traits: ClassVar = PositionTraits("globe", invariant=frozenset({"rotation"}))

    def __init__(self, degrees: int = 10) -> None:
        super().__init__()
        if not 1 <= degrees <= MAX_DEGREES:
            raise BadInput(f"degrees must be 1 to {MAX_DEGREES}, got {degrees}")
        self.degrees, self.width = degrees, degrees**2

    def forward(self, points: Float[Tensor, "*B 2"]) -> Float[Tensor, "*B C"]:
        """Return the harmonics of points (longitude, latitude) in degrees, in the order of l, and of m from -l to l."""
        check_globe(points)
        wide = points.double()  # the recurrence loses digits
        longitude, latitude = (wide * (pi / 180)).unbind(-1)
        z, ring = latitude.sin(), latitude.cos()
        legendre = self._legendre(z, ring)
        order = torch.arange(1, self.degrees, device=points.device) * longitude[..., None]  # m λ
        cosines, sines = (sqrt(2) * wave for wave in (order.cos(), order.sin()))
        found = []
        for l in range(self.degrees):
            found += [legendre[l, m] * sines[..., m - 1] for m in range(l, 0, -1)]
            found += [legendre[l, 0], *(legendre[l, m] * cosines[..., m - 1] for m in range(1, l + 1))]
        return torch.stack(found, -1).to(points.dtype)

    def _legendre(self, z: Tensor, ring: Tensor) -> dict[tuple[int, int], Tensor]:
        """Return the normalised functions P_l^m of z, by (l, m); ring is sqrt(1 - z²)."""
        found = {(0, 0): torch.full_like(z, sqrt(1 / (4 * pi)))}
        for m in range(self.degrees):
            if m:
                found[m, m] = sqrt((2 * m + 1) / (2 * m)) * ring * found[m - 1, m - 1]
            for l in range(m + 1, self.degrees):
                a = sqrt((4 * l * l - 1) / (l * l - m * m))
                before = found[l - 2, m] if l - 2 >= m else torch.zeros_like(z)
                b = sqrt(((l - 1) ** 2 - m * m) / (4 * (l - 1) ** 2 - 1)) if l - 2 >= m else 0.0
                found[l, m] = a * (z * found[l - 1, m] - b * before)
        return found


def check_globe(points: Tensor) -> None:
    """Raise `BadInput` for what is no longitude and latitude in degrees."""
    if points.shape[-1] != 2:
        raise BadInput(f"expected longitude and latitude, got {points.shape[-1]} coordinates")
    if torch.compiler.is_compiling() or points.device.type != "cpu":  # reading the values would stop the device
        return
    if points.numel() and not bool((points[..., 1].abs() <= 90).all() and points[..., 0].isfinite().all()):
        raise BadInput("latitudes must be from -90 to 90 degrees, and longitudes finite")
