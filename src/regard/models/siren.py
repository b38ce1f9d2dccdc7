"""SIREN on the globe: a network of sines that maps a code of a place to numbers.

    tokens      none: one place, longitude and latitude in degrees
    positions   spherical harmonics, random Fourier features of the unit vector, or plain coordinates (`encoding`)
    attention   none
    head        x' = sin(ω W x + b), layers times, then a linear map                                           O(C²)

Sines as activations make a network whose derivatives are networks of the same kind, so it fits fine detail; what counts
is the initial scale: weights uniform in ±sqrt(6 / fan-in) / ω, in the first layer in ±1 / fan-in.

Sitzmann, Martel, Bergman, Lindell, Wetzstein: Implicit Neural Representations with Periodic Activation Functions.
NeurIPS 2020. arXiv:2006.09661; Rußwurm et al.: Geographic Location Encoding with Spherical Harmonics. ICLR 2024.
arXiv:2310.06743
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import pi, sqrt
from typing import Any, Literal

import torch
from torch import nn

from regard.core.config import field
from regard.core.shapes import Float, Tensor
from regard.core.validation import validate
from regard.models.contract import ModelContract
from regard.positions.added.fourier import FourierFeatures
from regard.positions.added.spherical import SphericalHarmonics, check_globe


@dataclass(frozen=True)
class Config:
    """Hyperparameters of a SIREN over the globe."""

    num_outputs: int = 1
    encoding: Literal["harmonics", "fourier", "unit", "degrees"] = "harmonics"
    degrees: int = field(20, low=1, high=128)  # of the harmonics
    fourier_width: int = 256
    fourier_scale: float = field(2.0, above=0)
    width: int = 128
    layers: int = 2
    activation: Literal["sine", "relu"] = "sine"
    omega: float = field(1.0, above=0)  # ω after the first layer's ω of `first_omega`
    first_omega: float = field(1.0, above=0)


SIZES: dict[str, dict[str, Any]] = {"tiny": {"degrees": 4, "width": 16}, "base": {}}


class SIREN(ModelContract):
    """Places to numbers."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config = config
        self.encode: nn.Module | None = None
        inputs = {"unit": 3, "degrees": 2}.get(config.encoding, 0)
        if config.encoding == "harmonics":
            self.encode, inputs = SphericalHarmonics(config.degrees), config.degrees**2
        elif config.encoding == "fourier":
            self.encode, inputs = (
                FourierFeatures(config.fourier_width, 3, scale=config.fourier_scale),
                config.fourier_width,
            )
        sizes = [inputs, *[config.width] * config.layers]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.head = nn.Linear(config.width, config.num_outputs)
        if config.activation == "sine":
            self._init_sines()

    @torch.no_grad()
    def _init_sines(self) -> None:
        for depth, layer in enumerate([*self.layers, self.head]):
            fan_in: Any = layer.in_features
            bound = 1 / fan_in if depth == 0 else sqrt(6 / fan_in) / self.config.omega
            nn.init.uniform_(layer.weight, -bound, bound)

    def forward(self, places: Float[Tensor, "B 2"]) -> Float[Tensor, "B K"]:
        """Return the numbers of places, longitude and latitude in degrees."""
        x = self.codes(places)
        for depth, layer in enumerate(self.layers):
            omega = self.config.first_omega if depth == 0 else self.config.omega
            x = (omega * layer(x)).sin() if self.config.activation == "sine" else torch.relu(layer(x))
        out: Tensor = self.head(x)
        return out

    def codes(self, places: Float[Tensor, "B 2"]) -> Float[Tensor, "B C"]:
        """Return what the first layer reads."""
        if self.config.encoding == "harmonics":
            assert self.encode is not None
            harmonics: Tensor = self.encode(places)
            return harmonics
        check_globe(places)
        if self.config.encoding == "degrees":
            return places / 180
        longitude, latitude = (places * (pi / 180)).unbind(-1)
        ring = latitude.cos()
        unit = torch.stack([ring * longitude.cos(), ring * longitude.sin(), latitude.sin()], -1)
        return unit if self.encode is None else self.encode(unit)
