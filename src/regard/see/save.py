"""Pictures and pages to disk, whole or not at all (core.files).

The suffix decides: .png and .svg for figures, .html for pages. A full disk, a missing or a locked folder is one line
of `BadInput`, and an older file of that name is left as it was.
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
    return atomic_write(_drawn(picture, path.suffix.lower().lstrip(".")), path)


def _check(path: Path, what: str, known: tuple[str, ...]) -> None:
    if path.suffix.lower() not in known:
        got = f"'{path.suffix}'" if path.suffix else "a name without a suffix"
        raise BadInput(f"cannot save {what} as {got}; end the name in {' or '.join(known)}")


def _drawn(figure: Figure, format: str) -> bytes:
    """The figure's file in memory; no date inside, so that the same picture is the same file."""
    buffer = BytesIO()
    metadata = {"Date": None} if format == "svg" else {"Software": None}
    figure.savefig(buffer, format=format, metadata=metadata)
    return buffer.getvalue()
