"""A decoding state of constant size: tensors with a slice for each beam, replaced at every step."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import torch

from regard.core.shapes import Int, Tensor


@dataclass(eq=False)
class RunningState:
    """Base of such states: a subclass declares its tensors, B K ..., as fields; None before the first token.

    Keyword-only fields are settings and are kept as they are.
    """

    frozen: bool = field(default=False, kw_only=True)

    def select(self, rows: Int[Tensor, " R"] | None, beams: Int[Tensor, "R K"]) -> Any:
        """Keep the inputs `rows` (None: all), of each the beams `beams`."""
        own = (torch.arange(beams.shape[0], device=beams.device) if rows is None else rows)[:, None]
        return self.replace(*(None if x is None else x[own, beams] for x in self._tensors().values()))

    def freeze(self) -> Any:
        """Return a state that steps write in place, so that a captured step reads what it wrote."""
        return dataclasses.replace(self, frozen=True)

    def replace(self, *tensors: Any) -> Any:
        """Return the state with these tensors in the order of the fields; written in place once frozen."""
        old = self._tensors()
        pairs = [pair for pair in zip(old.values(), tensors, strict=True) if pair[1] is not None]
        if not self.frozen or any(x is None or x.shape != y.shape for x, y in pairs):
            return dataclasses.replace(self, **dict(zip(old, tensors, strict=True)))
        for x, y in pairs:
            x.copy_(y)
        return self

    def _tensors(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in dataclasses.fields(self) if not each.kw_only}
