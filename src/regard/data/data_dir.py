"""Where the datasets are: ``$REGARD_DATA``, else a ``shared/data`` folder beside (or in) the checkout.

The name of a dataset that has a reader (``NAMES``) means the one there; any other name means a folder where one stands,
if there is one. Where both exist, a line says which was taken.

Nothing is downloaded. A dataset that is not there is an error that says where it was looked for and how to point at it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, TypeVar

import regard
from regard.core.errors import BadInput

Reader = TypeVar("Reader", bound=Callable[..., Any])


log = logging.getLogger("regard")

KNOWN_DATASETS = frozenset({  # of datasets that some reader asks for
    "an4", "babi", "bbc_news_summary", "brown", "cifar10", "cmudict", "fashion_mnist", "fsdd", "mnist", "multi30k",
    "pen_strokes", "ptb", "tatoeba", "text_classification", "tinyshakespeare",
})  # fmt: skip


def find_dataset(name: str | Path) -> Path:
    """The folder of a dataset by name (``"multi30k"``), or a folder of the user's own by its path."""
    asked = Path(name).expanduser()
    if asked.is_dir() and (asked.is_absolute() or len(asked.parts) > 1 or str(name).startswith(".")):
        return asked
    looked = data_dirs()
    known = next((home / asked for home in looked if (home / asked).is_dir()), None)
    if known and asked.is_dir() and not known.samefile(asked):
        _warn_ambiguous(asked.name, asked.resolve(), known)
    if known and (asked.name in KNOWN_DATASETS or not asked.is_dir()):
        return known
    if asked.is_dir():
        return asked
    places = ", ".join(str(home) for home in looked)
    raise BadInput(
        f"no dataset '{name}' (looked in {places}); set REGARD_DATA to the folder that holds '{name}', "
        f"or give the path of a folder of your own"
    )


def data_dirs() -> list[Path]:
    """The places that are looked in, in order; ``REGARD_DATA``, where set, is the only one."""
    if named := os.environ.get("REGARD_DATA"):
        return [Path(named).expanduser()]
    root = Path(regard.__file__).resolve().parents[2]  # the checkout, when run from one
    places = [base / up / "shared" / "data" for base in (Path.cwd(), root) for up in ("", "..")]
    return list(dict.fromkeys(Path(os.path.normpath(p)) for p in places))


@lru_cache(maxsize=64)  # once is enough
def _warn_ambiguous(name: str, here: Path, known: Path) -> None:
    if name in KNOWN_DATASETS:
        log.warning(f"'{name}' is the dataset {known}; for the folder {here} write ./{name}")
    else:
        log.warning(f"'{name}' is the folder {here}; for the one among the datasets write {known}")


def cached_by_data_dir(most: int) -> Callable[[Reader], Reader]:
    """Keep the last few things that a function has read, by what it was asked for and by where datasets were then."""

    def keeping(read: Reader) -> Reader:
        kept = lru_cache(maxsize=most)(lambda places, *asked: read(*asked))

        @wraps(read)
        def found(*asked: Any) -> Any:
            return kept((Path.cwd(), *data_dirs()), *asked)

        return found  # type: ignore[return-value]

    return keeping
