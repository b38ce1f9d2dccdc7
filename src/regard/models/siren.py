"""SIREN on the globe: a network of sines that maps a code of a place to numbers.

    tokens      none: one place, longitude and latitude in degrees
    positions   spherical harmonics or another code of the place (`positions`)
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
from math import sqrt
from typing import Any, Literal

import torch
from torch import nn

from regard.core.config import field
from regard.core.shapes import Float, Tensor
from regard.core.spec import build_part
from regard.core.validation import validate
from regard.models.contract import ModelContract
from regard.positions import GLOBE_POSITIONS


@dataclass(frozen=True)
class Config:
    """Hyperparameters of a SIREN over the globe."""

    num_outputs: int = 1
    positions: str = "harmonics(degrees=20)"  # a spec of GLOBE_POSITIONS
    width: int = 128
    layers: int = 2
    activation: Literal["sine", "relu"] = "sine"
    omega: float = field(1.0, above=0)  # ω after the first layer's ω of `first_omega`
    first_omega: float = field(1.0, above=0)


SIZES: dict[str, dict[str, Any]] = {"tiny": {"positions": "harmonics(degrees=4)", "width": 16}, "base": {}}


class SIREN(ModelContract):
    """Places to numbers."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config = config
        self.positions = build_part(GLOBE_POSITIONS, config.positions, "positions")
        sizes = [self.positions.width, *[config.width] * config.layers]
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
        x = self.positions(places)
        for depth, layer in enumerate(self.layers):
            omega = self.config.first_omega if depth == 0 else self.config.omega
            x = (omega * layer(x)).sin() if self.config.activation == "sine" else torch.relu(layer(x))
        out: Tensor = self.head(x)
        return out
