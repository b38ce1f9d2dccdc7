"""Inspection of a language model: one axis, the tokens that it reads.

A row is the position of a token, where the next token is predicted; a column is a token that it attends to. The text is
the prompt and its continuation: greedy by default, or `target_text`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from regard.attention.capture.map_store import LazyMap
from regard.core.errors import BadInput
from regard.decoding.generation_config import ContinuationConfig
from regard.interpret.inspection import Inspection
from regard.interpret.inspections import text_axes
from regard.interpret.inspections.rollout import LayerPaths, TokenPaths
from regard.tasks.text.language_modeling import TextGenerator

MAX_TOKENS = 4096  # tokens that are written to be looked at
TOP_TOKENS = 5  # words that are told of what may come next


class LanguageModelInspection(TokenPaths, Inspection):
    """A prompt and its continuation."""

    task = "language_modeling"
    input_types: ClassVar[dict[str, Any]] = {
        "text": str, "target_text": str, "max_new_tokens": int, "temperature": (int, float), "top_k": int,
        "top_p": (int, float), "min_p": (int, float), "seed": int,
    }  # fmt: skip
    input_axis = output_axis = "text"
    predictor: TextGenerator

    def read(self) -> None:
        """Generate unless `target_text` is given, then run the model once on the whole text."""
        writer, text, options = self.predictor, self.predictor.text, dict(self.inputs)
        prompt, following = options.pop("text"), options.pop("target_text", None)
        if not 0 <= options.get("max_new_tokens", 0) <= MAX_TOKENS:
            raise BadInput(f"{options['max_new_tokens']} new tokens are too many; ask for up to {MAX_TOKENS}")
        (ids,) = writer._encoded([prompt])
        if following is None and options.get("max_new_tokens", 24) == 0:
            following = ""
        if following is None:
            (found,) = writer.write([ids], **{"max_new_tokens": 24, "temperature": 0.0} | options)[0]
            whole, line = [*ids, *found.tokens], prompt + found.text
            positions = text_axes.input_positions(text, ids, prompt) + [
                text_axes.shift_position(place, len(prompt))
                for place in text_axes.output_positions(text, found.tokens, found.text, ids)
            ]
            self.output = {"text": found.text, "reason": found.finish_reason, "score": found.score}
        else:
            line = prompt + following
            (whole,) = writer._encoded([line])
            positions = text_axes.input_positions(text, whole, line)
            self.output = {"text": following, "reason": "inputs", "score": None}
        if not whole:
            raise BadInput("there is no text to read; give at least a character")
        writer._check(0, whole, ContinuationConfig(max_new_tokens=1))
        self.axes = {"text": text_axes.text_axis("text", text, whole, positions, line)}
        answer = self._run(torch.tensor([whole], device=next(writer.model.parameters()).device))
        likely = answer[0, :, : text.size].float().softmax(-1)
        best = likely[-1].topk(min(TOP_TOKENS, text.size))
        self.chosen = [*whole[1:], int(best.indices[0])]
        self.output |= {
            "prompt": len(ids),
            "log_probabilities": likely[range(len(self.chosen)), self.chosen].log().tolist(),
            "next": list(zip(text.pieces(best.indices.tolist()), best.values.tolist(), strict=True)),
        }

    def axes_of(self, held: LazyMap) -> tuple[str, str]:
        return "text", "text"

    def labels_of(self, name: str) -> tuple[list[str], list[str]]:
        """A row is the token being written, a column a token that it could attend to."""
        tokens = self.axes["text"].tokens
        ended = [self.predictor.text.pieces(self.chosen)[-1]] if self.output["reason"] == "end" else []
        if len(tokens) + len(ended) < 2:
            raise BadInput("A text of one token has no attention to show; give a longer one.")
        return [*tokens[1:], *ended], tokens if ended else tokens[:-1]

    @property
    def paths(self) -> LayerPaths:
        """The layers as one."""
        return LayerPaths(self.store, dict.fromkeys(self.store, ("text", "text")), {"text": len(self.chosen)})

    @property
    def targets(self) -> list[str]:
        """The token that comes after each token."""
        return self.predictor.text.pieces(self.chosen)
