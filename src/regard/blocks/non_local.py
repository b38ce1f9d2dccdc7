"""Non-local block: every cell of a convolutional network's grid attends to all cells.

    convolution   y_n = Σ_m W_(m - n) x_m                                     m: the k x k cells around n     O(N k² C²)
    non-local     y_n = x_n + W Σ_m softmax_m(θ(x_n)·φ(x_m)) g(x_m)           m: all N cells                  O(N² C)

The paper's embedded Gaussian: θ, φ and g are 1 x 1 convolutions to half the channels, and scores are not scaled. A
batch norm follows W; its factors are 0 at first, so that the block begins as the identity and can be inserted into a
trained network. The convolutions begin with a standard deviation of 0.01, as in the authors' code: attention is even at
first.

Wang, Girshick, Gupta, He: Non-local Neural Networks. CVPR 2018. arXiv:1711.07971
"""

from __future__ import annotations

import torch
from torch import nn

from regard.attention.mechanisms.softmax import SoftmaxAttention
from regard.blocks.downsampling import ObservedDownsampling
from regard.core.shapes import Float, Tensor


class NonLocalBlock(nn.Module):
    """Softmax attention over the cells of a grid B C Y X, added to it."""

    kind = "self"

    def __init__(self, channels: int, stride: int) -> None:
        super().__init__()
        self.moved = ObservedDownsampling(stride)
        self.qkv = nn.Conv2d(channels, 3 * (channels // 2), 1)  # θ, φ and g
        self.attend = SoftmaxAttention(scale=1.0)
        self.out = nn.Conv2d(channels // 2, channels, 1)
        self.norm = nn.BatchNorm2d(channels)
        self.reset()

    @torch.no_grad()
    def reset(self) -> None:
        """Initialise the weights; the block is then the identity."""
        for conv in (self.qkv, self.out):
            nn.init.normal_(conv.weight, std=0.01)
            nn.init.zeros_(conv.bias)  # type: ignore[arg-type]
        nn.init.zeros_(self.norm.weight)

    def forward(self, x: Float[Tensor, "B C Y X"], before: Float[Tensor, "B E Z W"]) -> Float[Tensor, "B C Y X"]:
        """Return the grid after attention; `before` is the grid of the last such block, or the image."""
        x = self.moved(before, x)
        q, k, v = self.qkv(x).flatten(2).mT[:, None].chunk(3, -1)  # B 1 N C/2
        mixed = self.attend(q, k, v)[:, 0].mT.unflatten(2, x.shape[2:])
        out: Tensor = x + self.norm(self.out(mixed))
        return out
