"""Deep Sets: a network for each element, a sum, a network for the sum.

    DeepSets           f(X) = ρ(pool_n φ(x_n))                                        O(N C²)
    Set Transformer    the elements attend to one another before they are pooled

Every continuous function of a set can be written in this form; what elements have to say about one another must pass
through the sum. The baseline of the Set Transformer: four linear layers with ReLU between them for φ, and four for ρ.

Zaheer, Kottur, Ravanbakhsh, Póczos, Salakhutdinov, Smola: Deep Sets. NeurIPS 2017. arXiv:1703.06114
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import nn

from regard.attention.mask import PaddingMask
from regard.core.shapes import Float, Int, Tensor
from regard.core.validation import validate
from regard.models.contract import ModelContract


@dataclass(frozen=True)
class Config:
    """Hyperparameters of Deep Sets; the defaults are those of the Set Transformer's baseline."""

    input_dim: int = 2  # numbers of an element
    output_dim: int = 10  # numbers of an output
    num_outputs: int = 1
    width: int = 128
    layers: int = 4  # of each of the two networks
    pool: Literal["mean", "sum", "max"] = "mean"


SIZES: dict[str, dict[str, Any]] = {"tiny": {"width": 32, "layers": 2}, "base": {}}


class DeepSets(ModelContract):
    """Sets of vectors to a fixed number of vectors."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config = config
        hidden = [config.width] * config.layers
        self.encoder = _network([config.input_dim, *hidden])
        self.decoder = _network([*hidden, config.num_outputs * config.output_dim])

    def forward(
        self, elements: Float[Tensor, "B N F"], lengths: Int[Tensor, " B"] | None = None
    ) -> Float[Tensor, "B S K"]:
        """Return the outputs of every set; elements beyond `lengths` are padding."""
        x: Tensor = self.encoder(elements)
        mask = PaddingMask.from_lengths(elements, lengths)
        real = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device) if mask is None else mask.real(x.shape[1])
        pooled = POOLS[self.config.pool](x, real[..., None])
        out: Tensor = self.decoder(pooled).unflatten(-1, (self.config.num_outputs, self.config.output_dim))
        return out


def _network(sizes: list[int]) -> nn.Sequential:
    layers = [nn.Linear(a, b) for a, b in pairwise(sizes)]
    return nn.Sequential(*(part for layer in layers for part in (layer, nn.ReLU())))[:-1]


def _sum(x: Float[Tensor, "B N C"], real: Tensor) -> Float[Tensor, "B C"]:
    return (x * real).sum(1)


def _mean(x: Float[Tensor, "B N C"], real: Tensor) -> Float[Tensor, "B C"]:
    return _sum(x, real) / real.sum(1).clamp(min=1).to(x.dtype)


def _max(x: Float[Tensor, "B N C"], real: Tensor) -> Float[Tensor, "B C"]:
    largest = x.masked_fill(~real, torch.finfo(x.dtype).min).amax(1)
    return torch.where(real.any(1), largest, 0.0)  # of an empty set


POOLS = {"sum": _sum, "mean": _mean, "max": _max}
