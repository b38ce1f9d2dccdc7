"""The index of a folder of shards.

    index.json         format, kind, dtype, the vocabulary or the classes; counts and checksums of every shard
    train-00000.bin    tokens end to end, or image records end to end
    train-00000.ends   where each document or record ends, counted from the shard's beginning (uint64)
    tokenizer.json     the vocabulary of the tokens

The index is written last: a folder without it is incomplete. All numbers are little-endian. Opening a folder compares
file sizes with the index; only `check` reads all files and compares checksums.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from regard.core.errors import BadInput, UnknownName, did_you_mean
from regard.core.files import atomic_write

FORMAT = 1
INDEX_FILE, JOURNAL_FILE = "index.json", "packing.json"
DTYPES = {"uint8": "<u1", "uint16": "<u2", "uint32": "<u4"}
READ_BYTES = 1 << 20  # bytes read at a time

_SHARD_FILE = re.compile(r"[A-Za-z0-9_]+-\d{5,}\.bin")  # no path outside the folder


@dataclass(frozen=True)
class Shard:
    """One file of values, with its file of ends."""

    file: str
    values: int  # tokens, or bytes of records
    items: int  # documents that end here, or images
    checksum: str
    ends_checksum: str

    @property
    def ends(self) -> str:
        """The name of the file of ends."""
        return self.file.removesuffix(".bin") + ".ends"


@dataclass(frozen=True)
class ShardIndex:
    """Everything known about a folder without reading its shards."""

    kind: str  # "tokens" or "images"
    dtype: str
    splits: dict[str, tuple[Shard, ...]]  # "train", "val", ...
    vocabulary: dict[str, Any] = field(default_factory=dict)  # size, kind, eos, fingerprint
    classes: tuple[str, ...] = ()
    created: dict[str, Any] = field(default_factory=dict)  # version and settings

    def write(self, folder: Path) -> None:
        """Write the index, which makes the folder complete."""
        atomic_write((json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n").encode(), folder / INDEX_FILE)

    @classmethod
    def read(cls, folder: Path, sizes: bool = True) -> ShardIndex:
        """Read the index of a folder, and compare the sizes of its files."""
        try:
            written = json.loads((folder / INDEX_FILE).read_bytes())
        except FileNotFoundError:
            raise BadInput(_missing_index_error(folder)) from None
        except OSError as error:
            raise BadInput(f"cannot read {folder / INDEX_FILE}: {(error.strerror or str(error)).lower()}") from None
        except ValueError:
            raise BadInput(f"{folder / INDEX_FILE} is damaged: it is not JSON; {_REPACK_HINT}") from None
        index = _parse_index(written, folder / INDEX_FILE)
        for _, file, size in index._files(folder) if sizes else ():
            if problem := _size_error(file, size):
                raise BadInput(problem)
        return index

    def part(self, name: str) -> tuple[Shard, ...]:
        """Return the shards of a split."""
        if name not in self.splits:
            raise UnknownName(f"the shards have no split '{name}'; {did_you_mean(name, self.splits)}")
        return self.splits[name]

    def count(self, name: str) -> tuple[int, int]:
        """Return the number of values (tokens, bytes) and items (documents, images) of a split."""
        shards = self.part(name)
        return sum(s.values for s in shards), sum(s.items for s in shards)

    def fingerprint(self, name: str) -> str:
        """Return a hash of a split and its vocabulary, from the checksums alone."""
        found = blake2b(digest_size=8)
        settings = [self.kind, self.dtype, self.vocabulary.get("fingerprint"), self.classes]
        found.update(
            json.dumps([settings, [[s.values, s.checksum, s.ends_checksum] for s in self.part(name)]]).encode()
        )
        return found.hexdigest()

    def check(self, folder: Path, progress: Callable[[int, int], None] = lambda done, total: None) -> list[str]:
        """Read everything and return the problems, one line per file; `progress` gets (bytes read, total bytes)."""
        wrong, done = [], 0
        files = list(self._files(folder))
        total = sum(size for _, _, size in files)
        for shard, file, size in files:
            if problem := _size_error(file, size):
                wrong.append(problem)
                continue
            ends, found, top = file.suffix == ".ends", blake2b(digest_size=16), -1
            try:
                with open(file, "rb") as opened:
                    while block := opened.read(READ_BYTES):
                        found.update(block)
                        done += len(block)
                        progress(done, total)
                        if not ends and self.kind == "tokens":
                            top = max(top, int(np.frombuffer(block, DTYPES[self.dtype]).max()))
            except OSError as error:
                wrong.append(f"cannot read {file}: {(error.strerror or str(error)).lower()}")
                continue
            if found.hexdigest() != (shard.ends_checksum if ends else shard.checksum):
                wrong.append(f"{file} is damaged: its checksum does not match the index; {_REPACK_HINT}")
            elif top >= self.vocabulary.get("size", top + 1):
                wrong.append(f"{file} has the token {top}, but the vocabulary has {self.vocabulary['size']}")
            elif ends and not _is_increasing(np.fromfile(file, "<u8"), shard.values):
                wrong.append(f"{file} is damaged: its ends are not increasing up to {shard.values}; {_REPACK_HINT}")
        if self.kind == "tokens" and (problem := self.tokenizer_error(folder)):
            wrong.append(problem)
        return wrong

    def tokenizer_error(self, folder: Path) -> str:
        """Return what is wrong with the tokenizer of the shards; empty if nothing."""
        file = folder / "tokenizer.json"
        try:
            same = fingerprint(file.read_bytes()) == self.vocabulary["fingerprint"]
        except OSError as error:
            return f"cannot read {file}: {(error.strerror or str(error)).lower()}; {_REPACK_HINT}"
        return "" if same else f"{file} is not the tokenizer the shards were made with; {_REPACK_HINT}"

    def _files(self, folder: Path) -> list[tuple[Shard, Path, int]]:
        """Return every file with its expected size."""
        wide = np.dtype(DTYPES[self.dtype]).itemsize
        shards = [shard for part in self.splits.values() for shard in part]
        pairs = [[(s, folder / s.file, s.values * wide), (s, folder / s.ends, s.items * 8)] for s in shards]
        return [file for pair in pairs for file in pair]


def fingerprint(content: bytes) -> str:
    """Return a hash of some bytes."""
    return blake2b(content, digest_size=8).hexdigest()


_REPACK_HINT = "copy it again, or pack the data again (regard data pack); regard data check verifies every file"


def _missing_index_error(folder: Path) -> str:
    if (folder / JOURNAL_FILE).is_file():
        return f"{folder} is incomplete: run the same regard data pack command again to continue it"
    return f"{folder} has no shards (no {INDEX_FILE}); make some with regard data pack"


def _size_error(file: Path, expected: int) -> str:
    """Return what is wrong with the size of a file; empty if nothing."""
    try:
        size = file.stat().st_size
    except OSError:
        return f"{file} is missing, but the index names it; {_REPACK_HINT}"
    how = "truncated" if size < expected else "too long"
    return "" if size == expected else f"{file} is {how}: {size:,} bytes, the index says {expected:,}; {_REPACK_HINT}"


def _parse_index(written: Any, file: Path) -> ShardIndex:
    """Build an index from plain values, all of them checked."""
    if not isinstance(written, dict) or not isinstance(written.get("format"), int):
        raise BadInput(f"{file} is not an index of shards (it has no format); make some with regard data pack")
    if written["format"] != FORMAT:
        newer = "a newer version of regard made it" if written["format"] > FORMAT else "it is of an older format"
        raise BadInput(f"{file} has format {written['format']}, this version reads {FORMAT}: {newer}; pack it again")
    try:
        index = ShardIndex(
            kind=str(written["kind"]),
            dtype=str(written["dtype"]),
            splits={name: tuple(Shard(**shard) for shard in part) for name, part in written["splits"].items()},
            vocabulary=dict(written["vocabulary"]),
            classes=tuple(written["classes"]),
            created=dict(written["created"]),
        )
        valid = index.kind in ("tokens", "images") and index.dtype in DTYPES
        valid &= index.kind != "tokens" or int(index.vocabulary["size"]) > 0 < len(index.vocabulary["fingerprint"])
        for part in index.splits.values():
            for shard in part:
                valid &= bool(_SHARD_FILE.fullmatch(shard.file)) and shard.values >= 0 and shard.items >= 0
    except (KeyError, TypeError, AttributeError, ValueError):
        valid = False
    if not valid:
        raise BadInput(f"{file} is damaged: its content is invalid; {_REPACK_HINT}")
    return index


def _is_increasing(ends: np.ndarray, values: int) -> bool:
    steps = np.diff(ends.astype(np.int64), prepend=0)
    return bool((steps > 0).all()) and (not len(ends) or int(ends[-1]) <= values)
