"""Fourier features: sines and cosines of random or given frequencies of a point, in any number of dimensions.

    p(x) = [sin(2π B x), cos(2π B x)],   B: random, N(0, σ²)  (scale σ), or powers of two along each axis

σ decides how fine a function of the point can be learned from p: p(x)·p(y) depends on x - y alone and falls off within
about 1 / σ. Powers of two are the positional encoding of NeRF. B is a buffer: it is saved with the model.

Tancik et al.: Fourier Features Let Networks Learn High Frequency Functions in Low Dimensional Domains. NeurIPS 2020.
arXiv:2006.10739; Mildenhall et al.: NeRF. ECCV 2020. arXiv:2003.08934
"""

from __future__ import annotations

from math import pi
from typing import Annotated, ClassVar, Literal

import torch
from torch import nn

from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor
from regard.core.validation import Range
from regard.positions.traits import PositionTraits


class FourierFeatures(nn.Module):
    """Vectors of points with `dims` coordinates; `spacing` of the frequencies: random, or powers of two."""

    kind: ClassVar[str] = "added"
    traits: ClassVar = PositionTraits("points", invariant=frozenset({"shift"}))
    frequencies: Tensor

    def __init__(
        self,
        width: int,
        dims: Annotated[int, Range(low=1, high=64)] = 2,
        spacing: Literal["random", "powers"] = "random",
        scale: Annotated[float, Range(above=0)] = 1.0,
        seed: Annotated[int, Range(low=0)] = 0,
    ) -> None:
        super().__init__()
        step = 2 if spacing == "random" else 2 * dims
        if width < step or width % step:
            raise BadInput(
                f"{spacing} Fourier features of {dims} coordinates need a width divisible by {step}, got {width}"
            )
        if spacing == "random":
            drawn = torch.randn(width // 2, dims, generator=torch.Generator().manual_seed(seed))
            frequencies = scale * drawn
        else:
            powers = scale * 2.0 ** torch.arange(width // step)
            frequencies = torch.block_diag(*[powers[:, None]] * dims)
        self.register_buffer("frequencies", frequencies)
        self.width = width

    def forward(self, points: Float[Tensor, "*B d"]) -> Float[Tensor, "*B C"]:
        """Return the vectors of points."""
        if points.shape[-1] != self.frequencies.shape[1]:
            raise BadInput(f"expected points of {self.frequencies.shape[1]} coordinates, got {points.shape[-1]}")
        angles = 2 * pi * points @ self.frequencies.to(points.dtype).T
        return torch.cat([angles.sin(), angles.cos()], -1)
