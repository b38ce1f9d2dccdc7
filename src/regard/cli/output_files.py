"""Files that commands write: names that can be drawn to, and the line that says what was written.

No command replaces a file without a word: a name that was not given is one that is free, and the line about a file that
took the place of another says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from pathlib import Path

from regard.core.errors import BadInput


def free_name(file: Path) -> Path:
    """Return the file, or with a number in its name the first that does not exist: attention-2.png."""
    names = (file if n == 1 else file.with_stem(f"{file.stem}-{n}") for n in count(1))
    return next(name for name in names if not name.exists())


def replacement_note(path: Path) -> str:
    """Return what to add to the name of a file or folder that will be written: that it takes the place of another."""
    return f" (in place of the {'folder' if path.is_dir() else 'file'} that was there)" if path.exists() else ""


def describe_write(file: Path, verb: str = "drawn") -> str:
    """Return the line to print once a file is written; call it before, while the other is still there."""
    return f"{verb}: {file}{replacement_note(file)}"


def check_output_files(files: Iterable[Path], page: bool = True) -> None:
    """Refuse file names that cannot be drawn to before any work is done; `page`: whether .html is possible."""
    kinds = (".png", ".svg", *((".html", ".htm") if page else ()))
    check_writable(files, kinds, ".png, .svg or .html" if page else ".png or .svg", "draw to")


def check_writable(files: Iterable[Path], kinds: Iterable[str] = (), known: str = "", verb: str = "write") -> None:
    """Refuse files in no folder, folders, and endings other than `kinds` (none: any will do), named `known`."""
    kinds = [*kinds]
    for file in files:
        if kinds and file.suffix.lower() not in kinds:
            raise BadInput(f"cannot {verb} {file}; end the name in {known}")
        if not file.parent.is_dir():
            raise BadInput(f"cannot {verb} {file}: there is no folder {file.parent}")
        if file.is_dir():
            raise BadInput(f"cannot {verb} {file}: it is a folder")
