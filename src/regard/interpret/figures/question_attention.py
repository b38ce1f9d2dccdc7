"""Where the words of a question looked: one map over the picture for each word, or for each head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from regard import see
from regard.core.errors import BadInput
from regard.interpret.figures.base import last_or
from regard.interpret.figures.output import OutputFigure


class QuestionAttentionFigure(OutputFigure):
    """The picture, and maps of the words; `heads` shows the token that the answer is read from."""

    views: ClassVar[Mapping[str, Sequence[str]]] = {
        "cross": ("layer", "head"),
        "heads": ("layer",),
        "layers": ("head",),
    }

    @property
    def title(self) -> str:
        answer = self.inspection.prediction
        return f"{self.inspection.item['question'].strip()} {answer.label} ({100 * answer.probability:.0f} %)"

    def text(self, width: int = 100) -> str:
        return str(self.inspection.prediction.top(3))

    def save(self, file: Path) -> None:
        inspection = self.inspection
        if not inspection.store:
            raise BadInput(f"There is nothing to draw: {inspection.prediction.label}.")
        see.overlay_grid(inspection.photo, *self._maps(), path=file)

    def _maps(self) -> tuple[list[tuple[str, dict[str, np.ndarray | None]]] | dict[str, np.ndarray | None], str, str]:
        """Return the maps, the title and the caption."""
        inspection, options = self.inspection, self.options
        names, words = inspection.layer_names(), inspection.words
        if options.view == "layers":
            rows = [(f"layer {n}", self._of_words(name)) for n, name in enumerate(names)]
            return rows, self.title, f"cross-attention of every word, all layers, {self._which_head()}"
        layer = last_or("layer", options.layer, len(names))
        if options.view == "heads":
            heads = {f"head {h}": each[0] for h, each in enumerate(inspection.word_maps(names[layer]))}
            return {"picture": None, **heads}, self.title, f"cross-attention of {words[0]}, layer {layer}"
        caption = f"cross-attention of every word, layer {layer}, {self._which_head()}"
        return {"picture": None, **self._of_words(names[layer])}, self.title, caption

    def _of_words(self, name: str) -> dict[str, np.ndarray | None]:
        """Return the maps of words, of one head or the mean of all; a word that occurs twice is numbered."""
        heads, head, words = self.inspection.word_maps(name), self.options.head, self.inspection.words
        chosen = heads.mean(0) if head is None else heads[last_or("head", head, len(heads))]
        names = [word if words.count(word) == 1 else f"{word} ({words[: n + 1].count(word)})" for n, word in enumerate(words)]  # fmt: skip  # noqa: E501
        return dict(zip(names, chosen, strict=True))

    def _which_head(self) -> str:
        return "mean of the heads" if self.options.head is None else f"head {self.options.head}"
