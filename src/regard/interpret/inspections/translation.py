"""Inspection of a translation: source tokens, target tokens, and the decoder's input.

    encoder     source × source
    decoder     target × written     a row is the token being written, a column what stood before it, <s> first
    cross       target × source

One pass over the finished translation (the best one found, or one that is given), so that every map has all its rows.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from regard.attention.capture.map_store import LazyMap
from regard.core.errors import BadInput
from regard.interpret.inspection import Inspection
from regard.interpret.inspections import text_axes
from regard.interpret.inspections.rollout import LayerPaths, TokenPaths
from regard.tasks.text.translation import Translator, clean_line


class TranslationInspection(TokenPaths, Inspection):
    """A line and its translation; `target_text` gives another translation."""

    task = "translation"
    input_types: ClassVar[dict[str, Any]] = {"text": str, "target_text": str, "beam_size": int}
    input_axis = reads = "source"
    writes = "target"
    predictor: Translator

    def read(self) -> None:
        """Translate unless `target_text` is given, then run the model once on both."""
        translator, text = self.predictor, self.predictor.text
        source = translator._one(self.inputs["text"], translator.source)
        line = self._shown(self.inputs["text"])
        if asked := self.inputs.get("target_text"):
            ids, score = translator._one(asked, translator.target), None
        else:
            beams = self.inputs.get("beam_size")
            if beams is not None and not 1 <= beams <= 64:
                raise BadInput(f"{beams} beams cannot be searched with here; give 1 to 64")
            best = translator.best(source, beams)
            ids, score = list(best.tokens), best.score
        (shown,) = text.decode([ids])
        self.output = {"text": translator._decode([ids])[0], "score": score}
        positions, end = text_axes.output_positions(text, ids, shown), text.eos
        self.axes = {
            "source": text_axes.text_axis("source", text, [*source, end], self._places(source, line), line, (0, 1)),
            "target": text_axes.text_axis("target", text, [*ids, end], positions, shown, (0, 1)),
            "written": text_axes.text_axis("written", text, [translator.bos, *ids], positions, shown, (1, 0)),
        }
        device = translator._device()
        rows = [[*source, end], [translator.bos, *ids]]
        answer = self._run(*(torch.tensor([row], device=device) for row in rows))
        likely = answer[0].float().log_softmax(-1)
        self.chosen = [*ids, end]
        self.output["log_probabilities"] = likely[range(len(self.chosen)), self.chosen].tolist()
        if self.paths.whole:
            self.output_axis = "target"

    def _shown(self, line: str) -> str:
        """The line as it was cut into tokens."""
        from regard.data.text import moses

        line = clean_line(line, 1)
        return moses.tokenize([line], self.predictor.source)[0] if self.predictor.style == "moses" else line

    def _places(self, ids: list[int], line: str) -> list[Any]:
        return text_axes.input_positions(self.predictor.text, ids, line)

    def axes_of(self, held: LazyMap) -> tuple[str, str]:
        if held.kind in ("cross", "align"):
            return "target", "source"
        return ("target", "written") if held.name.startswith("decoder") else ("source", "source")

    # -- through all layers --------------------------------------------------------------------------------------------

    @property
    def paths(self) -> LayerPaths:
        """The layers as one."""
        streams = {name: self._streams(held) for name, held in self.store.items()}
        return LayerPaths(self.store, streams, {"source": len(self.axes["source"].tokens), "target": len(self.chosen)})

    def _streams(self, held: LazyMap) -> tuple[str, str]:
        writes, reads = self.axes_of(held)
        return writes, "target" if reads == "written" else reads

    @property
    def targets(self) -> list[str]:
        """Every token of the translation."""
        return self.axes["target"].tokens if self.paths.whole else []
