"""The dtype of matrix products: autocast's where it is on, else the tensor's own."""

from __future__ import annotations

import torch

from regard.core.shapes import Tensor


def compute_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype in which a matrix product with x is computed here."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
