"""Baselines: what is taken off a reward before it teaches a choice (tasks.reinforce).

    none       nothing
    moving     the mean reward a token of past updates, for as many tokens as a choice is paid for
    others     what the other readings of the same input earned from then on, in the mean
    learned    what a linear map of the state before the choice expects, fitted as training goes

None of them depends on the choice it is taken off, so the mean of the gradient stays; it spreads less.
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
    """What is taken off a reward before it teaches: here nothing."""

    module: nn.Linear | None = None  # what of it is trained by gradients

    def __call__(
        self, returns: Float[Tensor, "B S T"], counts: Float[Tensor, "B S T"], states: Tensor | None = None
    ) -> Float[Tensor, "B S T"]:
        """For each choice."""
        return torch.zeros_like(returns)

    def error(self, returns: Float[Tensor, "B T"], expected: Float[Tensor, "B T"], counts: Tensor) -> Tensor:
        """Its own part of the loss."""
        return returns.new_zeros(())

    def fit(self, width: int) -> None:
        """The width of the states it will see."""

    def observe(self, total: Float[Tensor, ""], count: Int[Tensor, ""]) -> None:
        """What a batch earned, and for how many tokens."""

    def update(self) -> None:
        """After an update: learn from what was heard."""

    def state_dict(self) -> dict[str, Any]:
        """What lives on."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore it."""


class MovingAverageBaseline(Baseline):
    """A moving mean of the reward a token, times the tokens that a choice is paid for; zero before the first update."""

    def __init__(self, decay: float = 0.9) -> None:
        if not 0 <= decay < 1:
            raise RegardError(f"decay={decay} of the moving baseline must be at least 0 and below 1")
        self.decay = decay
        self.sums = torch.zeros(2, dtype=torch.float64)  # decayed sums of means and of ones
        self.pending: Tensor | None = None

    def __call__(
        self, returns: Float[Tensor, "B S T"], counts: Float[Tensor, "B S T"], states: Tensor | None = None
    ) -> Float[Tensor, "B S T"]:
        """The same for all readings of an input: it knows what is to be written, not where was looked."""
        self.sums = self.sums.to(returns.device)
        return counts * self.mean_reward().to(counts.dtype)

    def mean_reward(self) -> Float[Tensor, ""]:
        """The mean reward a token so far."""
        return self.sums[0] / self.sums[1].clamp(min=torch.finfo(torch.float64).tiny)

    def observe(self, total: Float[Tensor, ""], count: Int[Tensor, ""]) -> None:
        """Add up over the batches of an update."""
        now = torch.stack([total.double(), count.double()])
        self.pending = now if self.pending is None else self.pending + now

    def update(self) -> None:
        """Towards the mean of this update, the same on every process."""
        if self.pending is None:
            return
        if dist.is_available() and dist.is_initialized():
            dist.all_reduce(self.pending)
        mean = self.pending[0] / self.pending[1].clamp(min=1)
        self.sums = self.decay * self.sums + (1 - self.decay) * torch.stack([mean, torch.ones_like(mean)])
        self.pending = None

    def state_dict(self) -> dict[str, Any]:
        """The two sums."""
        return {"sums": self.sums.cpu().clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore them."""
        self.sums = state["sums"].to(torch.float64)


class LeaveOneOutBaseline(Baseline):
    """What the other readings of the same input earned in the mean: leave one out."""

    def __init__(self, num_samples: int) -> None:
        if num_samples < 2:
            raise RegardError(
                "the baseline 'leave_one_out' needs task.reinforce.num_samples of at least 2, or take 'moving_average'"
            )

    def __call__(
        self, returns: Float[Tensor, "B S T"], counts: Float[Tensor, "B S T"], states: Tensor | None = None
    ) -> Float[Tensor, "B S T"]:
        """For each reading the mean over the rest."""
        return (returns.sum(1, keepdim=True) - returns) / (returns.shape[1] - 1)


class LearnedBaseline(Baseline):
    """A linear map of the state before a choice says what a token will earn, and is paid for being near."""

    def fit(self, width: int) -> None:
        """Begins at zero."""
        self.module = nn.Linear(width, 1)
        nn.init.zeros_(self.module.weight)
        nn.init.zeros_(self.module.bias)

    def __call__(
        self, returns: Float[Tensor, "B S T"], counts: Float[Tensor, "B S T"], states: Tensor | None = None
    ) -> Float[Tensor, "B S T"]:
        """For each choice; no gradient reaches the state."""
        if states is None or self.module is None:
            raise RegardError("the baseline 'learned' needs the states before the choices; take 'moving_average' here")
        return counts * self.module(states.detach()).squeeze(-1).to(counts.dtype).view_as(counts)

    def error(self, returns: Float[Tensor, "B T"], expected: Float[Tensor, "B T"], counts: Tensor) -> Tensor:
        """Half the squared distance a token, summed."""
        return 0.5 * ((returns - expected) / counts.clamp(min=1)).square().sum()
