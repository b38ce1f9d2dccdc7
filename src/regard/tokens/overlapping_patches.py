"""Overlapping patches: a convolution whose kernel is wider than its stride.

    patches        kernel P, stride P                          every pixel in exactly one token
    overlapping    kernel 2 P - 1, stride P, padding P - 1     a token sees up to the centres of its neighbours

In clips a token spans 3 frames, and every second frame has tokens. A side of n pixels has ⌈n / P⌉ tokens.

Fan et al.: Multiscale Vision Transformers. ICCV 2021. arXiv:2104.11227
"""

from __future__ import annotations

import torch
from torch import nn

from regard.core.shapes import Float, Tensor
from regard.core.trace import Slots, receptive_fields
from regard.tokens.patches import check_images


class OverlappingPatchEmbedding(nn.Module):
    """Images B C Y X (clips B C T Y X) in, a grid of tokens B Y X C (B T Y X C) out."""

    exact_geometry = False  # neighbours share pixels, and a filter weighs them

    def __init__(self, channels: int, width: int, patch: int, clips: bool = False) -> None:
        super().__init__()
        time = (1,) if clips else ()
        self.channels, self.stride = channels, (*(2 * t for t in time), patch, patch)
        self.kernel = tuple(2 * step - 1 for step in self.stride)
        conv = nn.Conv3d if clips else nn.Conv2d
        padding = tuple(step - 1 for step in self.stride)
        self.embed = conv(channels, width, self.kernel, self.stride, padding)  # type: ignore[arg-type]

    def forward(self, images: Float[Tensor, "B C *S"]) -> Float[Tensor, "B *G D"]:
        check_images(images, self.channels, clips=len(self.stride) == 3)
        tokens: Tensor = self.embed(images)
        return tokens.movedim(1, -1)

    def grid_size(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the size of the grid of tokens of images of this shape."""
        return tuple(-(-n // step) for n, step in zip(shape, self.stride, strict=True))

    def slots(self, images: Float[Tensor, "B C *S"]) -> Slots:
        """Return the pixels that every token covers; shares fall off linearly from its centre."""
        shape = tuple(images.shape[2:])
        cells = receptive_fields(shape, self.kernel, self.stride, torch.device(images.device))
        tent = torch.ones(1, device=images.device)
        for step in self.stride:
            side = step - (torch.arange(2 * step - 1, device=images.device) - (step - 1)).abs()
            tent = (tent[:, None] * side).flatten()
        share = tent * (cells >= 0)
        return Slots(cells[None, None], shape, (share / share.sum(-1, keepdim=True))[None, None])
