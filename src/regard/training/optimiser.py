"""AdamW, fused where the device has a fused form; an update whose gradient is not finite is left out.

Matrices decay, vectors (norms, biases) do not. The norm of the gradient and whether it is finite stay on the device:
nothing here waits for it.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from regard.core.shapes import Float, Tensor


class Optimiser:
    """AdamW and the clipping before it."""

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        betas: tuple[float, float],
        eps: float,
        decay: float,
        clip: float,
    ) -> None:
        every = list(dict.fromkeys(p for p in parameters if p.requires_grad))
        self.parameters, self.clip = every, clip
        groups = [
            {"params": [p for p in every if p.ndim >= 2], "weight_decay": decay},
            {"params": [p for p in every if p.ndim < 2], "weight_decay": 0.0},
        ]
        groups = [group for group in groups if group["params"]]
        try:
            self.adam = torch.optim.AdamW(groups, lr=0.0, betas=betas, eps=eps, fused=True)
            self.fused = True
        except (RuntimeError, ValueError):  # this device has no fused form
            self.adam = torch.optim.AdamW(groups, lr=0.0, betas=betas, eps=eps)
            self.fused = False

    def step(self, rate: float) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """One update at this rate from the gradients at hand, which are then let go.

        Gives their norm, and 1 where it was not finite and the update was left out, else 0.
        """
        for group in self.adam.param_groups:
            group["lr"] = rate
        if self.clip:
            norm = nn.utils.clip_grad_norm_(self.parameters, self.clip)
        else:
            norm = nn.utils.get_total_norm([p.grad for p in self.parameters if p.grad is not None])
        lost = (~torch.isfinite(norm)).float()
        if self.fused:  # the fused kernel skips the update itself, without asking the host
            self.adam.grad_scale, self.adam.found_inf = None, lost  # type: ignore[attr-defined]
        self.adam.step()
        self.adam.zero_grad(set_to_none=True)
        return norm, lost

    def state_dict(self) -> dict[str, object]:
        """The moments and step counts."""
        return self.adam.state_dict()

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Go on from there."""
        self.adam.load_state_dict(state)
