"""Where the datasets are: ``$REGARD_DATA``, else a ``shared/data`` folder beside (or in) the checkout.

Nothing is downloaded. A dataset that is not there is an error that says where it was looked for and how to point at it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, TypeVar

import regard
from regard.core.errors import BadInput

Reads = TypeVar("Reads", bound=Callable[..., Any])


def folder(name: str | Path) -> Path:
    """The folder of a dataset by name (``"multi30k"``), or a folder of the user's own by its path."""
    asked = Path(name).expanduser()
    if asked.is_dir() and (asked.is_absolute() or len(asked.parts) > 1 or str(name).startswith(".")):
        return asked
    looked = homes()
    for home in looked:
        if (home / asked).is_dir():
            return home / asked
    if asked.is_dir():
        return asked
    places = ", ".join(str(home) for home in looked)
    raise BadInput(
        f"no dataset '{name}' (looked in {places}); set REGARD_DATA to the folder that holds '{name}', "
        f"or give the path of a folder of your own"
    )


def homes() -> list[Path]:
    """The places that are looked in, in order; ``REGARD_DATA``, where set, is the only one."""
    if named := os.environ.get("REGARD_DATA"):
        return [Path(named).expanduser()]
    root = Path(regard.__file__).resolve().parents[2]  # the checkout, when run from one
    places = [base / up / "shared" / "data" for base in (Path.cwd(), root) for up in ("", "..")]
    return list(dict.fromkeys(Path(os.path.normpath(p)) for p in places))


def remembered(most: int) -> Callable[[Reads], Reads]:
    """Keep the last few things that a function has read, by what it was asked for and by where datasets were then."""

    def keeping(read: Reads) -> Reads:
        kept = lru_cache(maxsize=most)(lambda places, *asked: read(*asked))

        @wraps(read)
        def found(*asked: Any) -> Any:
            return kept((Path.cwd(), *homes()), *asked)

        return found  # type: ignore[return-value]

    return keeping
