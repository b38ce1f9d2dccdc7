"""Patches: an image cut into squares, each square's pixels laid out in a row and mapped to a vector: a token.

    cut       B C (Y P) (X P) -> B Y X (C P P)        every pixel in exactly one patch
    embed     z = W pixels + b                        W: width × C P², the same for every patch

The two together are a convolution whose stride is its kernel: `PatchEmbedding` computes it so, `unfolded_lengths` in two steps; they
are equal. Where the patch does not divide the image, zeros (the mean colour, once normalised) stand below and at the
right. `NormalizedPatchEmbedding` norms the pixels of a patch before W and the token after it, as vit-pytorch does.

A stem is whatever turns images into tokens in their places, B C Y X -> B Y X C: it knows its `stride`, the pixels from
one token to the next. A part of one's own does as well as those in `STEMS`.

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
    """How many tokens stand below and beside one another; what is left of an image at its edge has one of its own."""
    (y, x), (down, right) = pair(image), pair(stride)
    return -(-y // down), -(-x // right)


def pad_to_stride(images: Float[Tensor, "B C Y X"], stride: Pair) -> Float[Tensor, "B C Y2 X2"]:
    """The images with zeros below and at the right, so that the stride divides their sides."""
    (y, x), (down, right) = images.shape[-2:], stride
    return F.pad(images, (0, -x % right, 0, -y % down)) if y % down or x % right else images


def patchify(images: Float[Tensor, "B C Y X"], patch: Pair) -> Float[Tensor, "B y x CP"]:
    """The pixels of every patch in a row: channel by channel, and in each from the upper left to the lower right."""
    images = pad_to_stride(images, patch)
    rows = images.unflatten(3, (-1, patch[1])).unflatten(2, (-1, patch[0]))  # B C y P x P
    return rows.permute(0, 2, 4, 1, 3, 5).flatten(3)


class PatchEmbedding(nn.Module):
    """Images in, a grid of tokens out: a convolution whose stride is its kernel."""

    def __init__(self, channels: int, width: int, patch: Size, bias: bool = True) -> None:
        super().__init__()
        self.channels, self.stride = channels, pair(patch)
        self.embed = nn.Conv2d(channels, width, self.stride, self.stride, bias=bias)

    def forward(self, images: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B y x D"]:
        """One token a patch, in its place."""
        check_images(images, self.channels)
        tokens: Tensor = self.embed(pad_to_stride(images, self.stride))
        return tokens.permute(0, 2, 3, 1)

    def forward_unfolded(self, images: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B y x D"]:
        """The same in two steps, cut and embed: what the convolution does, written out."""
        return F.linear(patchify(images, self.stride), self.embed.weight.flatten(1), self.embed.bias)

    def slots(self, images: Float[Tensor, "B C Y X"]) -> Slots:
        """The pixels that every token stands for."""
        return pixel_slots(images, self.stride)


class NormalizedPatchEmbedding(nn.Module):
    """Pixels of a patch, normed; embedded; and the token normed again."""

    def __init__(self, channels: int, width: int, patch: Size) -> None:
        super().__init__()
        self.channels, self.stride = channels, pair(patch)
        inside = channels * self.stride[0] * self.stride[1]
        self.pixel_norm = nn.LayerNorm(inside)
        self.embed = nn.Linear(inside, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, images: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B y x D"]:
        """One token a patch, in its place."""
        check_images(images, self.channels)
        tokens: Tensor = self.norm(self.embed(self.pixel_norm(patchify(images, self.stride))))
        return tokens

    def slots(self, images: Float[Tensor, "B C Y X"]) -> Slots:
        """The pixels that every token stands for."""
        return pixel_slots(images, self.stride)


def pixel_slots(images: Float[Tensor, "B C Y X"], patch: Pair) -> Slots:
    """Which pixels each patch is made of: their numbers, cut by the code that cuts the images; -1 beyond the edge.

    All have an equal share of their patch, whether it is whole or not: zeros stand for what is not there.
    """
    y, x = images.shape[-2:]
    numbers = torch.arange(1, y * x + 1, device=images.device, dtype=torch.float64).view(1, 1, y, x)
    found = (patchify(numbers, patch).long() - 1).flatten(1, 2)[:, None]  # what was filled up with zeros is now -1
    each = numbers.new_full((), 1 / found.shape[-1]) if y % patch[0] or x % patch[1] else None
    return Slots(found, (y, x), None if each is None else each.expand(found.shape))


def check_images(images: Tensor, channels: int) -> None:
    """Refuse what is no batch of images of so many channels."""
    if images.ndim != 4 or images.shape[1] != channels:
        raise BadInput(f"images are B C Y X with {channels} channels here, not {tuple(images.shape)}")
    if not images.shape[2] or not images.shape[3]:
        raise BadInput(f"images of {images.shape[2]} x {images.shape[3]} have no pixel; at least one is needed")
    if not images.is_floating_point():
        kind = str(images.dtype).removeprefix("torch.")
        raise BadInput(f"images are given to a model as normalised floats, not as {kind}")
