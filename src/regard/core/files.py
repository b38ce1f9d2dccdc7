"""Reads of a limited size, and atomic writes: write to a temporary file, flush it to disk, rename it.

A full disk or a missing or read-only folder raises `BadInput` and leaves an existing file unchanged.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from regard.core.errors import BadInput


def atomic_write(content: bytes, path: str | os.PathLike[str], mode: int = 0o666) -> Path:
    """Write bytes to a path atomically; the new file has this mode, less the umask."""
    path = Path(path)
    part = None
    try:
        target = Path(os.path.realpath(path))  # a symbolic link stays one
        part = target.with_name(f".{secrets.token_hex(8)}.part")
        with open(part, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise BadInput(f"cannot write {str(path)!r}: {why.lower()}") from error
    finally:
        if part is not None:
            with suppress(OSError):  # renamed already, unless something failed
                part.unlink()
    return path


def read_within(path: Path, most: int) -> bytes:
    """Return the bytes of a file of at most `most` bytes; raise `BadInput` for any other, and where it is missing."""
    if not path.is_file():
        raise BadInput(f"there is no file {path}" if not path.exists() else f"{path} is not a file")
    try:
        if (size := path.stat().st_size) > most:
            raise BadInput(f"{path} has {size / 2**20:,.0f} MiB; at most {most / 2**20:,.0f} are read")
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({str(error.strerror).lower()})") from None
