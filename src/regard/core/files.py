"""Files written whole or not at all: under another name first, flushed to the disk, then put in place.

A full disk, a missing or a locked folder is one line of `BadInput`, and an older file of that name stays as it was.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from regard.core.errors import BadInput


def atomic_write(content: bytes, path: str | os.PathLike[str]) -> Path:
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
