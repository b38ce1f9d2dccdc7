"""Looking at a text that is written on: one side, the tokens that the model has read.

A row is where the model stood after it had read a token, a column what it looked at from there; what it wrote there is
the next token. The text is what is given and what follows: what greedy search writes, or what was asked for.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch

from regard.attention.capture.map_store import LazyMap
from regard.core.errors import BadInput
from regard.decoding.generation_config import ContinuationConfig
from regard.interpret.inspection import Inspection
from regard.interpret.inspections import text_axes
from regard.interpret.inspections.rollout import LayerPaths
from regard.tasks.text.language_modeling import TextGenerator

MAX_TOKENS = 4096  # tokens that are written to be looked at
TOP_TOKENS = 5  # words that are told of what may come next


class LanguageModelInspection(Inspection):
    """A prompt and what follows it."""

    task = "language_modeling"
    input_types: ClassVar[dict[str, Any]] = {
        "text": str, "following": str, "max_new_tokens": int, "temperature": (int, float), "top_k": int,
        "top_p": (int, float), "min_p": (int, float), "seed": int,
    }  # fmt: skip
    input = output_side = "text"
    predictor: TextGenerator

    def read(self) -> None:
        """Write on where nothing is given to follow, then read all of it once."""
        writer, text, given = self.predictor, self.predictor.text, dict(self.given)
        prompt, following = given.pop("text"), given.pop("following", None)
        if not 0 <= given.get("max_new_tokens", 0) <= MAX_TOKENS:
            raise BadInput(f"{given['max_new_tokens']} tokens cannot be looked at; ask for up to {MAX_TOKENS}")
        (ids,) = writer._encoded([prompt])
        if following is None and given.get("max_new_tokens", 24) == 0:
            following = ""
        if following is None:
            (found,) = writer.write([ids], **{"max_new_tokens": 24, "temperature": 0.0} | given)[0]
            whole, line = [*ids, *found.tokens], prompt + found.text
            places = text_axes.input_places(text, ids, prompt) + [
                text_axes.shift_place(place, len(prompt))
                for place in text_axes.output_places(text, found.tokens, found.text, ids)
            ]
            self.output = {"text": found.text, "why": found.finish_reason, "score": found.score}
        else:
            line = prompt + following
            (whole,) = writer._encoded([line])
            places = text_axes.input_places(text, whole, line)
            self.output = {"text": following, "why": "given", "score": None}
        if not whole:
            raise BadInput("there is no text to read; give at least a character")
        writer._check(0, whole, ContinuationConfig(max_new_tokens=1))
        self.sides = {"text": text_axes.text_axis("text", text, whole, places, line)}
        answer = self._run(torch.tensor([whole], device=next(writer.model.parameters()).device))
        likely = answer[0, :, : text.size].float().softmax(-1)
        best = likely[-1].topk(min(TOP_TOKENS, text.size))
        self.chosen = [*whole[1:], int(best.indices[0])]
        self.output |= {
            "prompt": len(ids),
            "log_probabilities": likely[range(len(self.chosen)), self.chosen].log().tolist(),
            "next": list(zip(text.pieces(best.indices.tolist()), best.values.tolist(), strict=True)),
        }

    def sides_of(self, held: LazyMap) -> tuple[str, str]:
        """Tokens look at those before them."""
        return "text", "text"

    @property
    def paths(self) -> LayerPaths:
        """The layers as one."""
        return LayerPaths(self.store, dict.fromkeys(self.store, ("text", "text")), {"text": len(self.chosen)})

    @property
    def targets(self) -> list[str]:
        """The token that comes after each token."""
        return self.predictor.text.pieces(self.chosen)

    def rollout(self, query: int) -> np.ndarray:
        """How much of each token is in what the model knows after a token."""
        self._asked(query)
        return self.paths.rollout("text", query)["text"]

    def relevance(self, target: int) -> np.ndarray:
        """How much each token spoke for the one that comes after token `target`."""
        self._asked(target)
        with self._with_interventions():
            found = self.paths.relevance(
                self.predictor.model, self.inputs, lambda answer: answer[0, target, self.chosen[target]], "text", target
            )
        return found["text"]

    def _asked(self, target: int) -> None:
        if not 0 <= target < len(self.chosen):
            raise BadInput(f"there is no token {target} in the text; there are 0 to {len(self.chosen) - 1}")
