"""Where the datasets are: ``$REGARD_DATA``, else a ``shared/data`` folder next to (or in) the checkout.

A known dataset name (`datasets.DATASETS`) means the dataset; any other name means a folder of that name, if there is
one. Where both exist, a warning says which was used. Nothing is downloaded: a missing dataset is an error that says
where it was searched, and where it comes from.
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
from regard.data.datasets import DATASETS, describe_missing

Reader = TypeVar("Reader", bound=Callable[..., Any])


log = logging.getLogger("regard")


def find_dataset(name: str | Path) -> Path:
    """Return the folder of a dataset by name (``"multi30k"``), or a folder by its path."""
    path = Path(name).expanduser()
    if path.is_dir() and (path.is_absolute() or len(path.parts) > 1 or str(name).startswith(".")):
        return path
    folders = data_dirs()
    known = next((folder / path for folder in folders if (folder / path).is_dir()), None)
    if known and path.is_dir() and not known.samefile(path):
        _warn_ambiguous(path.name, path.resolve(), known)
    if known and (path.name in DATASETS or not path.is_dir()):
        return known
    if path.is_dir():
        return path
    if path.is_file():
        raise BadInput(f"{name} is a file; expected the folder of a dataset, or its name")
    searched = ", ".join(str(folder) for folder in folders)
    raise BadInput(
        f"no dataset '{name}' (searched in {searched}){describe_missing(str(name))}; set REGARD_DATA to the folder "
        f"that contains '{name}', or give the path of a folder"
    )


def data_dirs() -> list[Path]:
    """Return the folders that are searched, in order; ``REGARD_DATA``, if set, is the only one."""
    if folder := os.environ.get("REGARD_DATA"):
        return [Path(folder).expanduser()]
    root = Path(regard.__file__).resolve().parents[2]  # the checkout, when run from one
    candidates = [base / parent / "shared" / "data" for base in (Path.cwd(), root) for parent in ("", "..")]
    return list(dict.fromkeys(Path(os.path.normpath(p)) for p in candidates))


@lru_cache(maxsize=64)  # warn once
def _warn_ambiguous(name: str, here: Path, known: Path) -> None:
    if name in DATASETS:
        log.warning(f"'{name}' is the dataset {known}; for the folder {here} write ./{name}")
    else:
        log.warning(f"'{name}' is the folder {here}; for the one among the datasets write {known}")


def cached_by_data_dir(size: int) -> Callable[[Reader], Reader]:
    """Cache the last `size` results of a reader, by its arguments and the current dataset folders."""

    def decorate(read: Reader) -> Reader:
        cached = lru_cache(maxsize=size)(lambda folders, *arguments: read(*arguments))

        @wraps(read)
        def read_cached(*arguments: Any) -> Any:
            return cached((Path.cwd(), *data_dirs()), *arguments)

        return read_cached  # type: ignore[return-value]

    return decorate
