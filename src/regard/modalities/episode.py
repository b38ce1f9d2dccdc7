"""Episode: what an agent saw, did and was rewarded for, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import torch

from regard.core.shapes import Float, Tensor
from regard.modalities.base import NUMBER, Output, array_schema, object_schema


@dataclass(frozen=True, eq=False)
class Episode(Output):
    """One episode of T steps."""

    states: Float[Tensor, "T S"]
    actions: Tensor  # T A, or class numbers T
    rewards: Float[Tensor, " T"]
    returns: Float[Tensor, " T"]  # the return-to-go that the agent was conditioned on

    kind = "episode"

    def __str__(self) -> str:
        reached, target = float(self.rewards.sum()), float(self.returns[0])
        return f"{len(self.rewards)} steps, return {reached:.2f} (target {target:.2f})"

    @classmethod
    def from_json(cls, values: Any) -> Self:
        return cls(**{name: torch.tensor(each) for name, each in values.items()})

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        row, rows = array_schema(NUMBER), array_schema({})
        return object_schema({"states": rows, "actions": rows, "rewards": row, "returns": row})

    def difference(self, other: Episode) -> float:
        """Return the relative difference of the returns, at most 1."""
        a, b = float(self.rewards.sum()), float(other.rewards.sum())
        return min(1.0, abs(a - b) / max(abs(a), abs(b), 1e-9))
