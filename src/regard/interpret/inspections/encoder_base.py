"""Shared by inspections of encoders: one axis, the tokens with special tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from regard.attention.capture.map_store import LazyMap
from regard.core.errors import BadInput, Unsupported
from regard.core.shapes import Tensor
from regard.interpret.inspection import Inspection, Position
from regard.interpret.inspections import text_axes
from regard.interpret.inspections.rollout import LayerPaths


class EncoderInspection(Inspection):
    """A text in an encoder. Subclasses write `read`, and `_answer` where relevance is available."""

    input_axis = output_axis = "text"

    def _through(self, ids: list[int], positions: Sequence[Position], line: str, *more: Any) -> Any:
        """Run the model on the text and return its output."""
        room = self.predictor.room
        if len(ids) > room:
            raise BadInput(
                f"the text has {len(ids)} tokens with special tokens; the limit of this model is {room}: shorten it"
            )
        text = self.predictor.text
        self.axes = {"text": text_axes.text_axis("text", text, ids, positions, line, (1, 1))}
        return self._run(torch.tensor([ids], device=self._device()), *more)

    def _device(self) -> torch.device:
        found: torch.device = next(self.predictor.model.parameters()).device
        return found

    def axes_of(self, held: LazyMap) -> tuple[str, str]:
        return "text", "text"

    @property
    def paths(self) -> LayerPaths:
        """The layers as one."""
        return LayerPaths(
            self.store, dict.fromkeys(self.store, ("text", "text")), {"text": len(self.axes["text"].tokens)}
        )

    def rollout(self, query: int) -> np.ndarray:
        """Return the rollout of one token of the last layer."""
        if not 0 <= query < (many := len(self.axes["text"].tokens)):
            raise BadInput(f"there is no token {query} in the text; there are 0 to {many - 1}")
        return self.paths.rollout("text", query)["text"]

    def relevance(self, target: int) -> np.ndarray:
        """Return the relevance of each token for one of the `targets`."""
        if not self.targets:
            raise Unsupported("This output has no targets to compute relevance for.")
        if not 0 <= target < len(self.targets):
            raise BadInput(f"there is no answer {target}; there are 0 to {len(self.targets) - 1}")
        at, answer = self._answer(target)
        with self._with_interventions():
            return self.paths.relevance(self.predictor.model, self.model_inputs, answer, "text", at)["text"]

    def _answer(self, target: int) -> tuple[int, Callable[[Any], Tensor]]:
        """Return the token that a target is read off, and the function that takes its logit from the model's output."""
        raise NotImplementedError
