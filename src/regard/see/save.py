"""Save figures (.png, .svg) and pages (.html) atomically (core.files).

A full disk, or a missing or read-only folder, raises `BadInput` and leaves an existing file unchanged.
"""

from __future__ import annotations

import os
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from regard.core.errors import BadInput
from regard.core.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save(picture: Figure | str, path: str | os.PathLike[str]) -> Path:
    """Write a figure (.png, .svg) or a page (.html); returns the path."""
    path = Path(path)
    if isinstance(picture, str):
        _check(path, "a page", (".html", ".htm"))
        return atomic_write(picture.encode("utf-8"), path)
    _check(path, "a picture", (".png", ".svg"))
    return atomic_write(_render(picture, path.suffix.lower().lstrip(".")), path)


def _check(path: Path, what: str, known: tuple[str, ...]) -> None:
    if path.suffix.lower() not in known:
        got = f"'{path.suffix}'" if path.suffix else "a name without a suffix"
        raise BadInput(f"Cannot save {what} as {got}; expected {' or '.join(known)}.")


def _render(figure: Figure, format: str) -> bytes:
    """Return the figure as bytes, without a date: equal figures give equal files."""
    buffer = BytesIO()
    metadata = {"Date": None} if format == "svg" else {"Software": None}
    figure.savefig(buffer, format=format, metadata=metadata)
    return buffer.getvalue()
