"""What every figure of an inspection offers: a text for the terminal, a picture for a file, traces for a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from regard.core.errors import BadInput
from regard.core.trace import Trace
from regard.modalities.classes import Classes

TOP = 3  # labels that are printed


@dataclass(frozen=True)
class FigureOptions:
    """What of an inspection is drawn; every view of a figure follows some of these."""

    view: str | None = None  # None: the usual one
    layer: int | None = None
    head: int | None = None  # None: the mean of the heads
    special_tokens: bool = True
    words: bool = False  # merge subwords
    query: str | None = None  # "Y,X" in pixels
    label: str | None = None

    @property
    def given(self) -> list[str]:
        """The names of the options that differ from their defaults."""
        return [field.name for field in fields(self) if getattr(self, field.name) != field.default]


USUAL = FigureOptions()


class InspectionFigure:
    """A figure of one inspection."""

    views: ClassVar[Mapping[str, Sequence[str]]] = {}  # name -> the options that it follows; the first is the usual one
    note = ""  # a sentence for stderr

    def __init__(self, inspection: Any, options: FigureOptions = USUAL, source: str = "") -> None:
        self.inspection, self.options, self.source = inspection, options, source

    @property
    def title(self) -> str:
        """One line above the picture and the page."""
        return "  →  ".join(self.inspection.summary())

    def text(self, width: int = 100) -> str:
        """Return what is printed: the output and, where there is one, a small drawing."""
        return "\n".join(self.inspection.summary())

    def save(self, file: Path) -> None:
        """Write the picture: .png or .svg."""
        raise NotImplementedError

    @property
    def page_traces(self) -> list[Trace] | None:
        """The maps of a page that shows nothing else; None: the page shows the whole inspection."""
        return None


class ClassesFigure(InspectionFigure):
    """A figure of an item of which a model says classes, or something else that prints itself."""

    @property
    def item(self) -> Any:
        """What the model was given."""
        return self.inspection.item

    @property
    def title(self) -> str:
        found = self.inspection.prediction
        if isinstance(found, Classes):
            return f"{self.source}: {found.label} ({100 * found.probability:.0f} %)"
        return f"{self.inspection.model}: {self.source}"

    def text(self, width: int = 100) -> str:
        found = self.inspection.prediction
        if not isinstance(found, Classes):
            return f"{self.item}\n{found}"
        best = list(found.probabilities.items())[:TOP]
        return "   ".join(f"{label} {100 * probability:.1f} %" for label, probability in best) + f"\n\n{self.item}"


def last_or(what: str, asked: int | None, many: int) -> int:
    """Return the number of the layer or head that was asked for, by default the last of them."""
    if asked is not None and asked >= many:
        raise BadInput(f"There is no {what} {asked}; there are 0 to {many - 1}.")
    return many - 1 if asked is None else asked
