"""Weights stored in int8, with one scale for each row of a matrix.

    s_r = max_c |w_rc| / 127        q_rc = round(w_rc / s_r)        w_rc ≈ s_r q_rc, error at most s_r / 2

A matrix w is stored as q under its own name and s as "w.scale"; vectors (norms, biases) as float16. A quarter of the
size of float32. Only storage is int8: loaded weights are float32 (int8 products are runtime.inference.quantize_int8).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from regard.core.errors import BadInput
from regard.core.shapes import Float, Int, Tensor

SCALE_SUFFIX = ".scale"
MAX_INT8 = 127  # symmetric: -128 is not used


def quantize_int8(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the stored tensors: matrices as q and s, vectors in float16, others unchanged."""
    stored: dict[str, Tensor] = {}
    for name, x in tensors.items():
        if not x.is_floating_point():
            stored[name] = x
            continue
        if not torch.isfinite(x).all():
            raise BadInput(f"'{name}' has values that are not finite, which int8 cannot store; use float16")
        if x.ndim < 2:
            stored[name] = _to_float16(name, x)
            continue
        if f"{name}{SCALE_SUFFIX}" in tensors:
            raise BadInput(
                f"the model has a tensor '{name}{SCALE_SUFFIX}', which is the name of the scales of '{name}'; rename it"
            )
        stored[name], stored[f"{name}{SCALE_SUFFIX}"] = _quantize_rows(x)
    return stored


def dequantize_int8(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return stored tensors as float32."""
    found: dict[str, Tensor] = {}
    for name, x in stored.items():
        base = name.removesuffix(SCALE_SUFFIX)
        if name != base and base in stored and stored[base].dtype == torch.int8:
            continue
        scale = stored.get(f"{name}{SCALE_SUFFIX}")
        if x.dtype == torch.int8 and scale is not None:
            if scale.shape != x.shape[:1]:
                raise BadInput(f"'{name}' has {len(x)} rows, but {tuple(scale.shape)} scales: the file is damaged")
            found[name] = x.float() * scale.float().view(-1, *[1] * (x.ndim - 1))
        else:
            found[name] = x.float() if x.is_floating_point() else x
    return found


def _quantize_rows(x: Float[Tensor, "R *C"]) -> tuple[Int[Tensor, "R *C"], Float[Tensor, " R"]]:
    rows = x.float().flatten(1)
    scale = rows.abs().amax(1) / MAX_INT8 if rows.numel() else rows.new_zeros(len(rows))
    whole = (rows / scale.clamp(min=torch.finfo(torch.float32).tiny)[:, None]).round().clamp(-MAX_INT8, MAX_INT8)
    return whole.to(torch.int8).view(x.shape), scale


def _to_float16(name: str, x: Tensor) -> Tensor:
    half = x.half()
    if not torch.isfinite(half).all():
        raise BadInput(f"'{name}' has values too large for float16; store it as bfloat16 or float32")
    return half
