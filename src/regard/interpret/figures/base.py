"""What every figure of an inspection offers: a text for the terminal, a picture for a file, traces for a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from regard.core.errors import BadInput
from regard.core.trace import Trace


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
        raise NotImplementedError

    def text(self, width: int = 100) -> str:
        """Return what is printed: the output and, where there is one, a small drawing."""
        raise NotImplementedError

    def save(self, file: Path) -> None:
        """Write the picture: .png or .svg."""
        raise NotImplementedError

    @property
    def page_traces(self) -> list[Trace] | None:
        """The maps of a page that shows nothing else; None: the page shows the whole inspection."""
        return None


def last_or(what: str, asked: int | None, many: int) -> int:
    """Return the number of the layer or head that was asked for, by default the last of them."""
    if asked is not None and asked >= many:
        raise BadInput(f"There is no {what} {asked}; there are 0 to {many - 1}.")
    return many - 1 if asked is None else asked
