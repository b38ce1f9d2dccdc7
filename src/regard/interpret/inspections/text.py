"""Inspection of a predictor that reads a text: its tokens, with their positions in the text, along the maps.

The numbers that the model read are taken from its call. Those that are the text's own, as the predictor's tokenizer
encodes it, have a place; marks around them have none. Maps of another length get numbered tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from regard.core.shapes import Tensor
from regard.interpret.inspection import NO_POSITION, Axis, Position
from regard.interpret.inspections import text_axes
from regard.interpret.inspections.declared import DeclaredInspection


class TextInspection(DeclaredInspection):
    """A text and the output of a predictor."""

    input_axis = "text"

    def show(self) -> None:
        self.ids: list[int] = []

    def _capture(self, work: Callable[[], Any]) -> Any:
        def remember(module: Any, arguments: tuple[Any, ...]) -> None:
            numbers = [x for x in arguments if isinstance(x, Tensor) and x.ndim == 2 and not x.is_floating_point()]
            self.ids = numbers[0][0].tolist() if numbers else []

        handle = self.predictor.model.register_forward_pre_hook(remember)
        try:
            return super()._capture(work)
        finally:
            handle.remove()

    def lay_out(self) -> None:
        text = getattr(self.predictor, "text", None)
        if text is not None and self.ids:
            line = str(next(iter(self.item.values())) if isinstance(self.item, dict) else self.item)
            own = text.encode([line])[0]
            positions = _aligned(self.ids, own, text_axes.input_positions(text, own, line))
            special = {text.pad, text.bos, text.eos, text.unk, text.mask} - {None}
            marks = [place == NO_POSITION or i in special for i, place in zip(self.ids, positions, strict=True)]
            self.axes["text"] = Axis("text", text.pieces(self.ids), positions, marks, line)
        for held in self.store.values():
            self._axes_of[held.name] = self._side(held.rows), self._side(held.columns)
        if "text" not in self.axes:
            self.input_axis = next(iter(self.axes))

    def _side(self, many: int) -> str:
        has_text = "text" in self.axes and len(self.axes["text"].tokens) == many
        return "text" if has_text else self._numbered(many)


def _aligned(ids: Sequence[int], own: Sequence[int], positions: Sequence[Position]) -> list[Position]:
    """Return the positions of the numbers that a model read, where those of the text stand among them in one piece."""
    for begin in range(len(ids) - len(own) + 1):
        if own and list(ids[begin : begin + len(own)]) == list(own):
            return [NO_POSITION] * begin + list(positions) + [NO_POSITION] * (len(ids) - begin - len(own))
    return [NO_POSITION] * len(ids)
