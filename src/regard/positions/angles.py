"""The angles of sinusoidal and rotary positions, at geometrically spaced frequencies.

θ_i(n) = n · base^(-2i / width)        i = 0 ... ⌈width / 2⌉ - 1
"""

from __future__ import annotations

from math import log2, pi
from typing import no_type_check

import torch

from regard.core.shapes import Float, Int, Tensor


def angles(index: Int[Tensor, "#B N"], width: int, base: float) -> Float[Tensor, "#B N F"]:
    """Return the angle of every frequency at every index, in radians.

    In float64 (where the device has it): an angle in float32 loses a digit for each digit of n. Computed, not stored: a
    buffer would be rounded by `model.bfloat16()`, lost by meta-device construction, and limited in length.
    """
    exact = torch.float32 if index.device.type == "mps" else torch.float64
    i = torch.arange(0, width, 2, dtype=exact, device=index.device)
    return index.to(exact)[..., None] * torch.exp2(i * (-log2(base) / width))


def cos_sin(angle: Float[Tensor, "*shape"], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return cosine and sine of an angle in `dtype`.

    For float32 the angle is first reduced to one turn in float64: the functions themselves are slow in float64, and a
    compiled kernel computes them anew for every head.
    """
    if dtype != torch.float64:
        angle = (angle - 2 * pi * torch.floor(angle * (0.5 / pi))).to(dtype)
    return angle.cos(), angle.sin()


def rotation(
    index: Int[Tensor, "#B N"], width: int, base: float, dtype: torch.dtype
) -> tuple[Float[Tensor, "#B N F"], Float[Tensor, "#B N F"]]:
    """Return cosine and sine of `angles`.

    Compiled for a GPU they are an operator into which the compiler does not look: it would compute them anew, in
    float64, for every head of every layer, forwards and backwards. So they are computed once for a whole pass.
    """
    if index.is_cuda and torch.compiler.is_compiling() and not torch.compiler.is_exporting():
        return _rotation_table(index, width, base, dtype)
    return cos_sin(angles(index, width, base), dtype)


@torch.library.custom_op("regard::rotation", mutates_args=())
@no_type_check
def _rotation_table(index: Tensor, width: int, base: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    return cos_sin(angles(index, width, base), dtype)


@_rotation_table.register_fake
@no_type_check
def _(index: Tensor, width: int, base: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    shape = *index.shape, (width + 1) // 2
    return index.new_empty(shape, dtype=dtype), index.new_empty(shape, dtype=dtype)
