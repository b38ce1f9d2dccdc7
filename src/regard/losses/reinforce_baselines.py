"""Baselines subtracted from the reward in REINFORCE (tasks.reinforce).

    none             zero
    moving_average   mean reward per token of past updates, times the tokens a choice is credited with
    leave_one_out    mean return of the other samples of the same input
    learned          linear prediction from the state before the choice, fitted during training

No baseline depends on the choice it is subtracted from, so the gradient stays unbiased while its variance drops.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from regard.core.errors import RegardError
from regard.core.shapes import Float, Int, Tensor
from regard.core.spec import Registry

BASELINES: Registry = {
    "none": ("regard.losses.reinforce_baselines", "Baseline"),
    "moving_average": ("regard.losses.reinforce_baselines", "MovingAverageBaseline"),
    "leave_one_out": ("regard.losses.reinforce_baselines", "LeaveOneOutBaseline"),
    "learned": ("regard.losses.reinforce_baselines", "LearnedBaseline"),
}


class Baseline:
    """No baseline: zero for every choice."""

    module: nn.Linear | None = None  # parameters trained by gradient descent

    def __call__(
        self, returns: Float[Tensor, "B S T"], counts: Float[Tensor, "B S T"], states: Tensor | None = None
    ) -> Float[Tensor, "B S T"]:
        """Return the value to subtract for each choice."""
        return torch.zeros_like(returns)

    def error(self, returns: Float[Tensor, "B T"], expected: Float[Tensor, "B T"], counts: Tensor) -> Tensor:
        """Return the baseline's own term of the loss."""
        return returns.new_zeros(())

    def fit(self, width: int) -> None:
        """Set the width of the states it will see."""

    def observe(self, total: Float[Tensor, ""], count: Int[Tensor, ""]) -> None:
        """Record a batch's total reward and number of tokens."""

    def update(self) -> None:
        """Learn from the observed rewards, after an optimizer update."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


class MovingAverageBaseline(Baseline):
    """Moving mean of the reward per token, times the tokens a choice is credited with; 0 before the first update."""

    def __init__(self, decay: float = 0.9) -> None:
        if not 0 <= decay < 1:
            raise RegardError(f"decay={decay} of the moving_average baseline must be at least 0 and below 1")
        self.decay = decay
        self.sums = torch.zeros(
            2, dtype=torch.float64
        )  # decayed sums of means and of ones: their ratio is the debiased mean
        self.pending: Tensor | None = None

    def __call__(
        self, returns: Float[Tensor, "B S T"], counts: Float[Tensor, "B S T"], states: Tensor | None = None
    ) -> Float[Tensor, "B S T"]:
        self.sums = self.sums.to(returns.device)
        return counts * self.mean_reward().to(counts.dtype)

    def mean_reward(self) -> Float[Tensor, ""]:
        """Return the mean reward per token so far."""
        return self.sums[0] / self.sums[1].clamp(min=torch.finfo(torch.float64).tiny)

    def observe(self, total: Float[Tensor, ""], count: Int[Tensor, ""]) -> None:
        batch = torch.stack([total.double(), count.double()])
        self.pending = batch if self.pending is None else self.pending + batch

    def update(self) -> None:
        """Average with the mean of this update, over all processes."""
        if self.pending is None:
            return
        if dist.is_available() and dist.is_initialized():
            dist.all_reduce(self.pending)
        mean = self.pending[0] / self.pending[1].clamp(min=1)
        self.sums.mul_(self.decay).add_(torch.stack([mean, torch.ones_like(mean)]), alpha=1 - self.decay)
        self.pending = None

    def state_dict(self) -> dict[str, Any]:
        return {"sums": self.sums.cpu().clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.sums = state["sums"].to(torch.float64)


class LeaveOneOutBaseline(Baseline):
    """Mean return of the other samples of the same input."""

    def __init__(self, num_samples: int) -> None:
        if num_samples < 2:
            raise RegardError(
                f"the baseline 'leave_one_out' needs task.reinforce.num_samples of at least 2, got {num_samples}; "
                "or use 'moving_average'"
            )

    def __call__(
        self, returns: Float[Tensor, "B S T"], counts: Float[Tensor, "B S T"], states: Tensor | None = None
    ) -> Float[Tensor, "B S T"]:
        return (returns.sum(1, keepdim=True) - returns) / (returns.shape[1] - 1)


class LearnedBaseline(Baseline):
    """Linear prediction of the reward per token from the state before a choice, trained by squared error."""

    def fit(self, width: int) -> None:
        self.module = nn.Linear(width, 1)
        nn.init.zeros_(self.module.weight)
        nn.init.zeros_(self.module.bias)

    def __call__(
        self, returns: Float[Tensor, "B S T"], counts: Float[Tensor, "B S T"], states: Tensor | None = None
    ) -> Float[Tensor, "B S T"]:
        """Return the prediction for each choice; no gradient reaches the state."""
        if states is None or self.module is None:
            raise RegardError("the baseline 'learned' needs the states before the choices; use 'moving_average' here")
        return counts * self.module(states.detach()).squeeze(-1).to(counts.dtype).view_as(counts)

    def error(self, returns: Float[Tensor, "B T"], expected: Float[Tensor, "B T"], counts: Tensor) -> Tensor:
        """Return half the squared error per token, summed."""
        return 0.5 * ((returns - expected) / counts.clamp(min=1)).square().sum()
