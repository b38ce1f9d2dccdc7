"""The manifest of a checkpoint: size and checksum of every file, so that damage is detected.

    {"format": 1, "step": 540, "ranks": 2,                                          ranks: number of processes
     "recipe": {...},                                                               the run's recipe.json at that time
     "files": {"model.safetensors": {"size": 1024, "sha256": "..."}, ...},
     "seal": "..."}                                                                 sha256 of all the rest

It is written last, so a folder without one is not a checkpoint. A group "model" is the file model.safetensors, or all
files of model/.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from regard.core.errors import BadInput
from regard.training.checkpoint.safetensors_file import error_message, sha256

FORMAT = 1
MANIFEST = "manifest.json"


def read_manifest(checkpoint: Path) -> dict[str, Any]:
    """Read and verify the manifest of a checkpoint."""
    file = checkpoint / MANIFEST
    try:
        found = json.loads(file.read_bytes())
        if found["format"] > FORMAT:
            raise BadInput(f"it has format {found['format']}, and this version reads up to {FORMAT}: update regard")
        seal = found.pop("seal")
    except FileNotFoundError:
        raise BadInput(f"it has no {MANIFEST}: it is incomplete, or was written by an older version") from None
    except OSError as error:
        raise BadInput(f"cannot read {file}: {error_message(error)}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BadInput(f"{MANIFEST} is damaged") from None
    if seal != _seal(found):
        raise BadInput(f"{MANIFEST} is damaged")
    return dict(found)


def seal_manifest(manifest: Mapping[str, Any]) -> bytes:
    """Return the bytes of a manifest with its seal."""
    return (json.dumps({**manifest, "seal": _seal(manifest)}, indent=1) + "\n").encode()


def _seal(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def group_files(group: str, files: Iterable[str]) -> list[str]:
    """Return the names of a group's files."""
    return [name for name in files if name == f"{group}.safetensors" or name.startswith(f"{group}/")]


def find_damage(checkpoint: Path, groups: Iterable[str] | None = None) -> str | None:
    """Return what is wrong with a checkpoint (or some of its groups) in a few words; None if it is intact."""
    try:
        files = read_manifest(checkpoint)["files"]
    except BadInput as error:
        return str(error)
    if groups is not None:
        files = {name: files[name] for group in groups for name in group_files(group, files)}
    for name, entry in files.items():  # quick checks first
        file = checkpoint / name
        if not file.is_file():
            return f"{name} is missing"
        if (size := file.stat().st_size) != entry["size"]:
            return f"{name} has {size} bytes, and was written with {entry['size']}"
    try:
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as threads:
            sums = list(threads.map(sha256, [checkpoint / name for name in files]))
    except OSError as error:
        return f"it cannot be read: {error_message(error)}"
    damaged = [name for name, one in zip(files, sums, strict=True) if one != files[name]["sha256"]]
    return f"{damaged[0]} is damaged" if damaged else None
