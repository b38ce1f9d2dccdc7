"""Pictures and pages to disk, whole or not at all: written under another name, flushed, then put in place.

The suffix decides: .png and .svg for figures, .html for pages. A full disk, a missing or a locked folder is one line
of `BadInput`, and an older file of that name is left as it was.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from regard.core.errors import BadInput

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save(picture: Figure | str, path: str | os.PathLike[str]) -> Path:
    """Write a figure (.png, .svg) or a page (.html); returns the path."""
    path = Path(path)
    if isinstance(picture, str):
        _check(path, "a page", (".html", ".htm"))
        return write(picture.encode("utf-8"), path)
    _check(path, "a picture", (".png", ".svg"))
    return write(_drawn(picture, path.suffix.lower().lstrip(".")), path)


def write(content: bytes, path: str | os.PathLike[str]) -> Path:
    """Put bytes at a path atomically."""
    path = Path(path)
    part = None
    try:
        place = Path(os.path.realpath(path))  # through a link, to what it names
        part = place.with_name(f".{secrets.token_hex(8)}.part")
        with open(part, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, place)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise BadInput(f"cannot write {str(path)!r}: {why.lower()}") from error
    finally:
        if part is not None:
            with suppress(OSError):  # in place by now, unless something went wrong
                part.unlink()
    return path


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
