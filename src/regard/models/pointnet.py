"""PointNet: a network for each point, the maximum over the points, a network for the maximum.

    tokens      points B N 3 (further numbers of a point are features)
    positions   none besides the coordinates
    attention   none: max_n φ(x_n), so points meet only in the maximum                                      O(N C²)
    head        an MLP of the maximum (a class for the cloud), or of a point beside the maximum (one for each point)

The baseline of Point Transformer: the same input, padding and heads. Batch norm takes its statistics from real points
only. What differs from the paper: no networks that align the input and the features (T-Nets).

Qi, Su, Mo, Guibas: PointNet: Deep Learning on Point Sets for 3D Classification and Segmentation. CVPR 2017.
arXiv:1612.00593
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import nn

from regard.blocks.points import PointLinear, padding_mask
from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.shapes import Bool, Float, Int, Tensor
from regard.core.validation import validate
from regard.models.contract import ModelContract


@dataclass(frozen=True)
class Config:
    """Hyperparameters of PointNet; the defaults are the paper's classifier."""

    num_classes: int = 40
    input_dim: int = field(3, low=3)  # numbers of a point: three coordinates, then features
    widths: tuple[int, ...] = (64, 64, 64, 128, 1024)  # of the network of each point
    head_widths: tuple[int, ...] = (512, 256)  # of the network after the maximum
    head: Literal["cloud", "points"] = "cloud"  # one row of logits for the cloud, or one for every point
    dropout: float = field(0.3, low=0, below=1)  # before the last layer


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"num_classes": 5, "widths": (8, 16), "head_widths": (12,), "dropout": 0.0},
    "small": {"widths": (64, 64, 128, 256), "head_widths": (192, 128)},
    "base": {},
}


class PointNet(ModelContract):
    """Clouds of points to logits, of the cloud or of every point."""

    forward_methods = ("pooled",)

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        if not config.widths:
            raise BadInput("widths needs at least one number")
        self.config = config
        self.points = _network([config.input_dim, *config.widths])
        wide = config.widths[-1] * (2 if config.head == "points" else 1)
        self.rest = _network([wide, *config.head_widths])
        self.dropout = nn.Dropout(config.dropout)
        self.head = nn.Linear([wide, *config.head_widths][-1], config.num_classes)

    def forward(self, elements: Float[Tensor, "B N F"], lengths: Int[Tensor, " B"] | None = None) -> Tensor:
        """Return logits: B K of every cloud, or B N K of every point. Points beyond `lengths` are padding."""
        real = padding_mask(elements, lengths)
        x = _apply(self.points, elements, real)
        cloud = _maximum(x, real)[:, None]
        if self.config.head == "points":
            logits: Tensor = self.head(self.dropout(_apply(self.rest, torch.cat([x, cloud.expand_as(x)], -1), real)))
            return logits
        logits = self.head(self.dropout(_apply(self.rest, cloud)))[:, 0]
        return logits

    def pooled(self, elements: Float[Tensor, "B N F"], lengths: Int[Tensor, " B"] | None = None) -> Tensor:
        """Return the maximum over the points, B C."""
        real = padding_mask(elements, lengths)
        return _maximum(_apply(self.points, elements, real), real)


def _maximum(x: Float[Tensor, "B N C"], real: Bool[Tensor, "B N"] | None) -> Float[Tensor, "B C"]:
    if real is not None:
        x = x.masked_fill(~real[..., None], 0)  # after a ReLU nothing is below zero
    return x.amax(1)


def _network(sizes: list[int]) -> nn.ModuleList:
    return nn.ModuleList(PointLinear(a, b) for a, b in pairwise(sizes))


def _apply(layers: nn.ModuleList, x: Float[Tensor, "B N C"], real: Bool[Tensor, "B N"] | None = None) -> Tensor:
    for layer in layers:
        x = layer(x, real)
    return x
