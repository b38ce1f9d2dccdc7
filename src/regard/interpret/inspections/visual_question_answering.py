"""Inspection of questions about a picture: what each word of the question attends to.

Rows of the decoder are the words of the question, after the token that the answer is read from; columns of its
cross-attention are the patches of the picture.
"""

from __future__ import annotations

import numpy as np

from regard.interpret.inspection import NO_POSITION, Axis
from regard.interpret.inspections.image import ImageInspection
from regard.tasks.image.visual_question_answering import VisualQuestionAnswerer
from regard.tokens.story_words import word_spans

ANSWER = "[answer]"  # the token that the answer is read from


class VisualQuestionInspection(ImageInspection):
    """A picture, a question about it, and the answer."""

    figure = "question_attention"
    predictor: VisualQuestionAnswerer

    def lay_out(self) -> None:
        """Place the patches and the words."""
        model, question = self.predictor.model, self.item["question"]
        self.grid: tuple[int, int] = model.grid_size(self.size)  # type: ignore[operator]
        (down, right), (rows, columns) = self.grid, self.size
        cells = [(y, x) for y in range(down) for x in range(right)]
        edges = [[round(n * side / many) for n in range(many + 1)] for side, many in ((rows, down), (columns, right))]
        boxes = [[edges[1][x], edges[0][y], edges[1][x + 1] - edges[1][x], edges[0][y + 1] - edges[0][y]] for y, x in cells]  # fmt: skip  # noqa: E501
        self.axes["patches"] = Axis(
            "patches", [f"{y + 1},{x + 1}" for y, x in cells], [{"box": box} for box in boxes], [False] * len(cells)
        )
        spans = word_spans(question)
        self.words = [ANSWER, *(question[begin:end] for begin, end in spans)]
        positions = [NO_POSITION, *({"text": list(span)} for span in spans)]
        self.axes["question"] = Axis("question", self.words, positions, [True] + [False] * len(spans), question)
        for held in self.store.values():
            is_of_words = held.name.startswith("decoder.")
            reads = "question" if is_of_words and held.kind != "cross" else "patches"
            self._axes_of[held.name] = "question" if is_of_words else "patches", reads

    def layer_names(self) -> list[str]:
        """Return the layers in which words attend to patches."""
        return [held.name for held in self.store.values() if held.kind == "cross"]

    def word_maps(self, name: str) -> np.ndarray:
        """Return what every word attends to in a layer, H words Y X on the patches, in multiples of uniform."""
        weights = self.store[name].rows_of(list(range(len(self.words))))[0].float().cpu().numpy()
        found: np.ndarray = weights.reshape(*weights.shape[:2], *self.grid) * weights.shape[-1]
        return found
