"""Colours as tokens: every pixel becomes the number of the nearest colour of a palette.

    x_n = argmin_v |p_n - c_v|²        p_n: a pixel, from 0 to 1 in each channel        c_v: V colours

A palette of grey levels, or a lattice of colours, needs no data; `fit` finds one by k-means (Lloyd's algorithm) over
pixels. 9 bits (512 colours) in place of 24 make the sequence of an image three times as short as one of intensities.

Chen et al.: Generative Pretraining from Pixels. ICML 2020; Lloyd: Least Squares Quantization in PCM. 1982
"""

from __future__ import annotations

import torch
from torch import nn

from regard.core.shapes import Float, Int, Tensor

ITERATIONS = 20  # of k-means
CHUNK = 2**25  # distances in memory at a time


class ColorPalette(nn.Module):
    """A buffer of colours V C, from 0 to 1."""

    colors: Tensor

    def __init__(self, size: int, channels: int) -> None:
        super().__init__()
        self.register_buffer("colors", lattice(size, channels))

    def nearest(self, pixels: Float[Tensor, "B C Y X"]) -> Int[Tensor, "B Y X"]:
        """Return the number of the nearest colour of every pixel; of two as near, the first."""
        colors = self.colors.to(torch.promote_types(pixels.dtype, torch.float32))
        flat = pixels.movedim(1, -1).to(colors.dtype)
        each = max(1, CHUNK // (flat[0].numel() // flat.shape[-1] * len(colors))) if len(flat) else 1
        return torch.cat([nearest_rows(some.flatten(0, 2), colors) for some in flat.split(each)]).view(flat.shape[:-1])

    @torch.no_grad()
    def fit(self, pixels: Float[Tensor, "N C"], seed: int = 0) -> None:
        """Set the colours to means of clusters of these pixels, found from random pixels on."""
        unique = pixels.unique(dim=0)
        order = torch.randperm(len(unique), generator=torch.Generator().manual_seed(seed))
        colors = self.colors.clone()
        first = unique[order[: len(colors)].to(unique.device)]
        colors[: len(first)] = first.to(colors)  # with fewer pixels than colours the others stay where they are
        for _ in range(ITERATIONS):
            own = nearest_rows(pixels.to(colors), colors)
            counts = torch.bincount(own, minlength=len(colors))[:, None]
            sums = torch.zeros_like(colors).index_add_(0, own, pixels.to(colors))
            colors = torch.where(counts > 0, sums / counts.clamp(min=1), colors)
        self.colors.copy_(colors)


def nearest_rows(x: Float[Tensor, "N C"], colors: Float[Tensor, "V C"]) -> Int[Tensor, " N"]:
    """Return the number of the nearest colour of each row; |x|² is the same for all colours and left out."""
    found = [((colors * colors).sum(1) - 2 * some @ colors.T).argmin(1) for some in x.split(CHUNK // len(colors) + 1)]
    return torch.cat(found)


def lattice(size: int, channels: int) -> Float[Tensor, "V C"]:
    """Return colours that are spread evenly: levels of grey from 0 to 1, or points of a lattice."""
    side = next(n for n in range(1, size + 1) if n**channels >= size)
    levels = torch.linspace(0, 1, side) if side > 1 else torch.zeros(1)
    points = torch.cartesian_prod(*[levels] * channels).view(-1, channels)
    return points[torch.linspace(0, len(points) - 1, size).round().long()]
