"""Patches: cut an image into squares and map the pixels of each to a vector, a token.

    cut       B C (Y P) (X P) -> B Y X (C P P)        every pixel in exactly one patch
    embed     z = W pixels + b                        W: width × C P², the same for every patch

The two together are a convolution whose stride is its kernel: `PatchEmbedding.forward`; `forward_unfolded` is the same
in two steps. Where the patch does not divide the image, it is padded with zeros (the mean colour, once normalised)
below and at the right. `NormalizedPatchEmbedding` norms the pixels of a patch before W and the token after it
(vit-pytorch).

A stem is a module from images to tokens, B C Y X -> B Y X C, that has a `stride`: the pixels from one token to the
next.

Dosovitskiy et al.: An Image is Worth 16x16 Words. ICLR 2021. arXiv:2010.11929
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from regard.core.errors import BadInput
from regard.core.shapes import Float, Pair, Size, Tensor, pair
from regard.core.trace import Slots


def grid_size(image: Size, stride: Size) -> Pair:
    """Return the rows and columns of tokens of an image; a partial patch at the edge counts."""
    (y, x), (down, right) = pair(image), pair(stride)
    return -(-y // down), -(-x // right)


def pad_to_stride(images: Float[Tensor, "B C Y X"], stride: Pair) -> Float[Tensor, "B C Y2 X2"]:
    """Pad images with zeros below and at the right, so that the stride divides their sides."""
    (y, x), (down, right) = images.shape[-2:], stride
    return F.pad(images, (0, -x % right, 0, -y % down)) if y % down or x % right else images


def patchify(images: Float[Tensor, "B C Y X"], patch: Pair) -> Float[Tensor, "B y x CP"]:
    """Flatten every patch into a row: channel by channel, in each from the upper left to the lower right."""
    images = pad_to_stride(images, patch)
    rows = images.unflatten(3, (-1, patch[1])).unflatten(2, (-1, patch[0]))  # B C y P x P
    return rows.permute(0, 2, 4, 1, 3, 5).flatten(3)


class PatchEmbedding(nn.Module):
    """Images to a grid of tokens: a convolution whose stride is its kernel."""

    def __init__(self, channels: int, width: int, patch: Size, bias: bool = True) -> None:
        super().__init__()
        self.channels, self.stride = channels, pair(patch)
        self.embed = nn.Conv2d(channels, width, self.stride, self.stride, bias=bias)

    def forward(self, images: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B y x D"]:
        check_images(images, self.channels)
        tokens: Tensor = self.embed(pad_to_stride(images, self.stride))
        return tokens.permute(0, 2, 3, 1)

    def forward_unfolded(self, images: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B y x D"]:
        """Compute `forward` in two steps, patchify and embed: the reference implementation."""
        return F.linear(patchify(images, self.stride), self.embed.weight.flatten(1), self.embed.bias)

    def slots(self, images: Float[Tensor, "B C Y X"]) -> Slots:
        return pixel_slots(images, self.stride)


class NormalizedPatchEmbedding(nn.Module):
    """Images to a grid of tokens: norm, linear, norm over the pixels of each patch."""

    def __init__(self, channels: int, width: int, patch: Size) -> None:
        super().__init__()
        self.channels, self.stride = channels, pair(patch)
        inside = channels * self.stride[0] * self.stride[1]
        self.pixel_norm = nn.LayerNorm(inside)
        self.embed = nn.Linear(inside, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, images: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B y x D"]:
        check_images(images, self.channels)
        tokens: Tensor = self.norm(self.embed(self.pixel_norm(patchify(images, self.stride))))
        return tokens

    def slots(self, images: Float[Tensor, "B C Y X"]) -> Slots:
        return pixel_slots(images, self.stride)


def pixel_slots(images: Float[Tensor, "B C Y X"], patch: Pair) -> Slots:
    """Return the pixels of each patch; -1 beyond the edge. All have an equal share of it, padding included."""
    y, x = images.shape[-2:]
    numbers = torch.arange(1, y * x + 1, device=images.device, dtype=torch.float64).view(1, 1, y, x)
    found = (patchify(numbers, patch).long() - 1).flatten(1, 2)[:, None]  # padding was 0 and is now -1
    each = numbers.new_full((), 1 / found.shape[-1]) if y % patch[0] or x % patch[1] else None
    return Slots(found, (y, x), None if each is None else each.expand(found.shape))


def check_images(images: Tensor, channels: int, clips: bool = False) -> None:
    """Raise `BadInput` unless this is a batch of float images (clips) with so many channels and at least one pixel."""
    if images.ndim != 4 + clips or images.shape[1] != channels:
        axes = "clips B C T Y X" if clips else "B C Y X"
        raise BadInput(f"images must be {axes} with {channels} channels, got shape {tuple(images.shape)}")
    if 0 in images.shape[2:]:
        raise BadInput(f"images of {' x '.join(map(str, images.shape[2:]))} have no pixel; at least one is needed")
    if not images.is_floating_point():
        kind = str(images.dtype).removeprefix("torch.")
        raise BadInput(f"images must be normalised floats, got {kind}")
