"""In which type products are taken: autocast's where it is on, else the tensor's own."""

from __future__ import annotations

import torch

from regard.core.shapes import Tensor


def compute_dtype(x: Tensor) -> torch.dtype:
    """The type in which x would be multiplied here and now."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
