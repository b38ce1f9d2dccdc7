"""Content addressing: the cells that look like a key.

    content     w_n = exp(β cos(k, M_n)) / Σ_n' exp(β cos(k, M_n'))      β = 1 + softplus      O(H N W)
    softmax     w_n = exp(q · k_n / √D) / Σ_n' exp(q · k_n' / √D)        the Transformer's: the length of keys counts

The strength β sets how sharp the address is. Lengths are √(x · x + ε), so that an empty cell, or a key of zeros, has
similarity 0 and a finite gradient.

Graves, Wayne, Danihelka: Neural Turing Machines. 2014. arXiv:1410.5401 (section 3.3.1). There β > 0; β >= 1 is that of
Graves et al.: Hybrid computing using a neural network with dynamic external memory. Nature 538, 2016.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from regard.attention.addressing.base import Addressing
from regard.core.shapes import Float, Tensor

EPS = 1e-6  # of squared lengths


class ContentAddressing(Addressing):
    """Softmax over cosine similarities; raw is the key and its strength."""

    def raw_width(self, word: int) -> int:
        return word + 1

    def address(self, raw: Tensor, memory: Tensor, weights: Tensor, previous: Tensor) -> Float[Tensor, "*B H N"]:
        similarity = (unit(raw[..., :-1]) @ memory.mT) * inverse_length(memory)[..., None, :]  # memory is not copied
        return (strength(raw[..., -1:]) * similarity).softmax(-1)


def unit(x: Float[Tensor, "*rows W"]) -> Float[Tensor, "*rows W"]:
    """Return vectors of length one; those near zero stay short."""
    return x * inverse_length(x)[..., None]


def inverse_length(x: Float[Tensor, "*rows W"]) -> Float[Tensor, "*rows"]:
    """Return 1 / √(x · x + ε)."""
    return (torch.linalg.vecdot(x, x) + EPS).rsqrt()


def strength(raw: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """Return 1 + softplus: from 1 on."""
    return 1 + F.softplus(raw)
