"""Codes of places on the globe beside spherical harmonics: plain numbers, sines of them, and codes of the unit vector.

    degrees        (λ, φ) / 180                                              cut at 180°, crowded at the poles
    sinusoidal     sin 2^k λ, cos 2^k λ, sin 2^k φ, cos 2^k φ, k < K           no cut, crowded at the poles
    unit_vector    u = (cos φ cos λ, cos φ sin λ, sin φ)                     neither, but nothing fine
    fourier        sin 2π B u, cos 2π B u                                    neither; B random, N(0, σ²)

λ is the longitude, φ the latitude. Near a pole all longitudes are one place: a code of λ tells apart what is the same.

Mac Aodha, Cole, Perona: Presence-Only Geographical Priors for Fine-Grained Image Classification. ICCV 2019.
arXiv:1906.05272
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from torch import nn

from regard.core.shapes import Float, Tensor
from regard.core.validation import Range
from regard.positions.added.fourier import FourierFeatures
from regard.positions.added.spherical import check_globe
from regard.positions.traits import PositionTraits

MAX_FREQUENCIES = 2**16


class Degrees(nn.Module):
    """Longitude and latitude, as they are."""

    kind: ClassVar[str] = "added"
    traits: ClassVar = PositionTraits("globe")
    width = 2

    def forward(self, places: Float[Tensor, "*B 2"]) -> Float[Tensor, "*B C"]:
        """Return the code of places (longitude, latitude) in degrees, in [-1, 1]."""
        check_globe(places)
        return places / 180


class GlobeSinusoids(nn.Module):
    """Sines and cosines of longitude and latitude at `octaves` frequencies, each twice the one before."""

    kind: ClassVar[str] = "added"
    traits: ClassVar = PositionTraits("globe", invariant=frozenset({"shift"}))

    def __init__(self, octaves: Annotated[int, Range(low=1, high=32)] = 6) -> None:
        super().__init__()
        self.octaves, self.width = octaves, 4 * octaves

    def forward(self, places: Float[Tensor, "*B 2"]) -> Float[Tensor, "*B C"]:
        """Return the code of places (longitude, latitude) in degrees."""
        check_globe(places)
        powers = 2.0 ** torch.arange(self.octaves, dtype=places.dtype, device=places.device)
        angle = (torch.deg2rad(places)[..., None] * powers).flatten(-2)
        return torch.cat([angle.sin(), angle.cos()], -1)


class UnitVectors(nn.Module):
    """The place on a sphere of radius one, in space."""

    kind: ClassVar[str] = "added"
    traits: ClassVar = PositionTraits("globe", invariant=frozenset({"rotation"}))
    width = 3

    def forward(self, places: Float[Tensor, "*B 2"]) -> Float[Tensor, "*B C"]:
        """Return the unit vector of places (longitude, latitude) in degrees."""
        return unit_vectors(places)


class GlobeFourierFeatures(FourierFeatures):
    """Random Fourier features of the unit vector."""

    # Over all rotations only as the number of random frequencies grows, so it is not claimed.
    traits: ClassVar = PositionTraits("globe")

    def __init__(
        self,
        frequencies: Annotated[int, Range(low=1, high=MAX_FREQUENCIES)] = 128,
        scale: Annotated[float, Range(above=0)] = 2.0,
        seed: Annotated[int, Range(low=0)] = 0,
    ) -> None:
        super().__init__(2 * frequencies, 3, scale=scale, seed=seed)

    def forward(self, places: Float[Tensor, "*B 2"]) -> Float[Tensor, "*B C"]:
        """Return the code of places (longitude, latitude) in degrees."""
        return super().forward(unit_vectors(places))


def unit_vectors(places: Float[Tensor, "*B 2"]) -> Float[Tensor, "*B 3"]:
    """Return the point in space of places (longitude, latitude) in degrees."""
    check_globe(places)
    longitude, latitude = torch.deg2rad(places).unbind(-1)
    ring = latitude.cos()
    return torch.stack([ring * longitude.cos(), ring * longitude.sin(), latitude.sin()], -1)
