"""Continuous positions: the bias of a step is not looked up but computed, by a small network that knows any step.

    window        s_nm = q_n · k_m + r_h[Δy, Δx]
    continuous    s_nm = q_n · k_m + 16 σ( W ReLU(V (l(Δy), l(Δx)) + b) )_h
                  l(Δ) = sign(Δ) log₂(1 + 8 |Δ| / (w - 1)) / 3

Steps are measured in widths of the window that was trained with, and by their logarithm, so that a window twice as wide
lies only a little outside of what the network has seen: a model trained with small windows can be given larger ones
(`trained` keeps the measure). Between 0 and 16, a bias cannot drown the scores.

Liu et al.: Swin Transformer V2: Scaling Up Capacity and Resolution. CVPR 2022. arXiv:2111.09883
"""

from __future__ import annotations

from math import log2
from typing import Annotated

import torch
from torch import nn

from regard.core.shapes import Float, Size, Tensor, pair
from regard.core.validation import Range
from regard.positions.bias.window import WindowBias


class ContinuousWindowBias(WindowBias):
    """Computes the bias of every step; `trained` is the window whose width is the unit (None: this one)."""

    no_weight_decay = ("up", "down")  # from weight decay

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
        """Between 0 and 16."""
        found: Tensor = self.down(self.up(self.log_offsets.to(self.up.weight.dtype)).relu())
        return 16 * found.sigmoid().T

    def _log_offsets(self) -> Float[Tensor, "S 2"]:
        """Every step, in logarithms of trained windows."""
        axes = []
        for here, there in zip(self.window, self.pretrained_window, strict=True):
            step = torch.arange(1 - here, here, dtype=torch.float32) / max(there - 1, 1) * 8
            axes.append(step.sign() * torch.log2(step.abs() + 1) / log2(8))
        return torch.cartesian_prod(*axes)

    def extra_repr(self) -> str:
        """How it was made."""
        return f"window={self.window}, pretrained_window={self.pretrained_window}"
