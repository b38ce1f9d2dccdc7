"""Continuous window bias: the bias of a relative position is computed by a small network instead of looked up.

    window        s_nm = q_n · k_m + r_h[Δy, Δx]
    continuous    s_nm = q_n · k_m + 16 σ( W ReLU(V (l(Δy), l(Δx)) + b) )_h
                  l(Δ) = sign(Δ) log₂(1 + 8 |Δ| / (w - 1)) / 3

Offsets are in units of the training window and on a log scale, so that a window twice as wide is only a little outside
of the training range: a model trained with small windows can use larger ones (`pretrained_window` keeps the unit). The
bias is between 0 and 16.

Liu et al.: Swin Transformer V2: Scaling Up Capacity and Resolution. CVPR 2022. arXiv:2111.09883
"""

from __future__ import annotations

from math import log2
from typing import Annotated, ClassVar

import torch
from torch import nn

from regard.core.shapes import Float, Size, Tensor, pair
from regard.core.validation import Range
from regard.positions.bias.window import WindowBias
from regard.positions.traits import PositionTraits


class ContinuousWindowBias(WindowBias):
    """Compute the bias of every relative position; `pretrained_window` is the unit of offsets (None: this window)."""

    traits: ClassVar = PositionTraits("window", learned="network", invariant=frozenset({"shift"}))
    no_weight_decay = ("up", "down")

    def __init__(
        self,
        heads: int,
        window: Size = 8,
        pretrained_window: Annotated[Size | None, Range(low=0)] = None,
        hidden: int = 512,
    ) -> None:
        super().__init__(window)
        self.pretrained_window = self.window if pretrained_window is None else pair(pretrained_window)
        self.up = nn.Linear(2, hidden)
        self.down = nn.Linear(hidden, heads, bias=False)
        self.register_buffer("log_offsets", self._log_offsets(), persistent=False)  # S 2

    def bias_table(self) -> Float[Tensor, "H S"]:
        out: Tensor = self.down(self.up(self.log_offsets.to(self.up.weight.dtype)).relu())
        return 16 * out.sigmoid().T

    def _log_offsets(self) -> Float[Tensor, "S 2"]:
        """Return l(Δ) of every relative position."""
        axes = []
        for side, unit in zip(self.window, self.pretrained_window, strict=True):
            offset = torch.arange(1 - side, side, dtype=torch.float32) / max(unit - 1, 1) * 8
            axes.append(offset.sign() * torch.log2(offset.abs() + 1) / log2(8))
        return torch.cartesian_prod(*axes)

    def extra_repr(self) -> str:
        return f"window={self.window}, pretrained_window={self.pretrained_window}"
