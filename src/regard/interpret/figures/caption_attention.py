"""Where a captioner looked at each word: one map over the picture for each word, or for each head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from regard import see
from regard.core.errors import BadInput
from regard.interpret.figures.base import last_or
from regard.interpret.figures.output import OutputFigure


class CaptionAttentionFigure(OutputFigure):
    """The picture, and maps of the words that were written, in order."""

    views: ClassVar[Mapping[str, Sequence[str]]] = {"cross": ("layer", "head")}

    @property
    def title(self) -> str:
        return str(self.inspection.prediction)

    def text(self, width: int = 100) -> str:
        return str(self.inspection.prediction)

    def save(self, file: Path) -> None:
        inspection, options = self.inspection, self.options
        names = inspection.layer_names() if inspection.store else []
        if not names:
            raise BadInput("This captioner has no attention to the picture, so there is no map to draw.")
        layer = last_or("layer", options.layer, len(names))
        heads = inspection.word_maps(names[layer])
        chosen = heads.mean(0) if options.head is None else heads[last_or("head", options.head, len(heads))]
        words = [f"{n}. {word}" for n, word in enumerate(inspection.words, 1)]
        maps = {"picture": None, **dict(zip(words, chosen, strict=True))}
        which = f"layer {layer}, " if len(names) > 1 else ""
        which += ("mean of the heads" if options.head is None else f"head {options.head}") if len(heads) > 1 else ""
        caption = ", ".join(part for part in ("where it looked before it wrote each word", which.rstrip(", ")) if part)
        see.overlay_grid(inspection.photo, maps, self.title, caption, path=file)
