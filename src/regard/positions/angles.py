"""The angles of sinusoidal and rotary positions, at geometrically spaced frequencies.

θ_i(n) = n · base^(-2i / width)        i = 0 ... ⌈width / 2⌉ - 1
"""

from __future__ import annotations

import torch

from regard.core.shapes import Float, Int, Tensor


def angles(index: Int[Tensor, "#B N"], width: int, base: float) -> Float[Tensor, "#B N F"]:
    """Return the angle of every frequency at every index, in radians.

    In float64 (where the device has it): an angle in float32 loses a digit for each digit of n. Computed, not stored: a
    buffer would be rounded by `model.bfloat16()`, lost by meta-device construction, and limited in length.
    """
    exact = torch.float32 if index.device.type == "mps" else torch.float64
    i = torch.arange(0, width, 2, dtype=exact, device=index.device)
    return index.to(exact)[..., None] * torch.pow(base, -i / width)
