"""Masked content addressing: compare only the part of a cell that the key is about.

    masked      w = softmax(β cos(k ∘ m, M_n ∘ m))       m = σ, one number for each of the W places of a cell
    content     w = softmax(β cos(k, M_n))               a part of the cell that the key does not know is noise

A query knows the key of a pair and not its value; unmasked, the unknown value lowers the similarity of the right cell.
The masked lengths of all cells are one product of squares, m² · M_n², so nothing of size H N W is formed.

Csordás, Schmidhuber: Improving Differentiable Neural Computers Through Memory Masking, De-allocation, and Link
Distribution Sharpness Control. ICLR 2019. arXiv:1904.10278 (section 3.1)
"""

from __future__ import annotations

import torch

from regard.attention.addressing.base import Addressing
from regard.attention.addressing.content import EPS, strength, unit
from regard.core.shapes import Float, Tensor


class MaskedContentAddressing(Addressing):
    """Content addressing under a mask; raw is the key, the mask and the strength."""

    def raw_width(self, word: int) -> int:
        return 2 * word + 1

    def address(self, raw: Tensor, memory: Tensor, weights: Tensor, previous: Tensor) -> Float[Tensor, "*B H N"]:
        word = memory.shape[-1]
        key, mask = raw[..., :word], torch.sigmoid(raw[..., word : 2 * word])
        lengths = ((mask * mask) @ (memory * memory).mT + EPS).rsqrt()
        similarity = (unit(key * mask) * mask) @ memory.mT * lengths
        return (strength(raw[..., -1:]) * similarity).softmax(-1)
