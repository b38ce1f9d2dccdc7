"""What looks at encoders share: one text between its marks, every token looking at every one."""

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
    """A text that was read. What is to be done: `read`, and `_answer` where relevance can be asked for."""

    input_axis = output_axis = "text"

    def _through(self, ids: list[int], positions: Sequence[Position], line: str, *more: Any) -> Any:
        """The text through the model; gives its answer."""
        room = self.predictor.room
        if len(ids) > room:
            raise BadInput(f"the text has {len(ids)} tokens with its marks, this model reads {room}: shorten it")
        text = self.predictor.text
        self.axes = {"text": text_axes.text_axis("text", text, ids, positions, line, (1, 1))}
        return self._run(torch.tensor([ids], device=self._device()), *more)

    def _device(self) -> torch.device:
        found: torch.device = next(self.predictor.model.parameters()).device
        return found

    def axes_of(self, held: LazyMap) -> tuple[str, str]:
        """Tokens look at one another."""
        return "text", "text"

    @property
    def paths(self) -> LayerPaths:
        """The layers as one."""
        return LayerPaths(
            self.store, dict.fromkeys(self.store, ("text", "text")), {"text": len(self.axes["text"].tokens)}
        )

    def rollout(self, query: int) -> np.ndarray:
        """How much of each token is in one token at the top."""
        if not 0 <= query < (many := len(self.axes["text"].tokens)):
            raise BadInput(f"there is no token {query} in the text; there are 0 to {many - 1}")
        return self.paths.rollout("text", query)["text"]

    def relevance(self, target: int) -> np.ndarray:
        """How much each token spoke for one of the `targets`."""
        if not self.targets:
            raise Unsupported("there is nothing here for which a token could speak")
        if not 0 <= target < len(self.targets):
            raise BadInput(f"there is no answer {target}; there are 0 to {len(self.targets) - 1}")
        at, answer = self._answer(target)
        with self._with_interventions():
            return self.paths.relevance(self.predictor.model, self.model_inputs, answer, "text", at)["text"]

    def _answer(self, target: int) -> tuple[int, Callable[[Any], Tensor]]:
        """The token off which an answer is read, and how it is read off what the model says."""
        raise NotImplementedError
