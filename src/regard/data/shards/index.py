"""What a folder of shards holds: index.json, and the files it names.

    index.json         format, kind, dtype, the vocabulary or the classes; of every shard its counts and checksums
    train-00000.bin    tokens end to end, or image records end to end
    train-00000.ends   where each document or record ends, counted from the shard's beginning (uint64)
    tokenizer.json     the vocabulary the tokens are numbers of

The index is written last: a folder without it is not whole. All numbers are little-endian. Opening a folder compares
the sizes of its files with the index; only `check` reads all of them and compares the checksums too.
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

_SHARD_FILE = re.compile(r"[A-Za-z0-9_]+-\d{5,}\.bin")  # no way out of the folder


@dataclass(frozen=True)
class Shard:
    """One file of values, and the file of ends beside it."""

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
    """All that is known of a folder without reading its shards."""

    kind: str  # "tokens" or "images"
    dtype: str
    splits: dict[str, tuple[Shard, ...]]  # "train", "val", ...
    vocabulary: dict[str, Any] = field(default_factory=dict)  # size, kind, eos, fingerprint
    classes: tuple[str, ...] = ()
    created: dict[str, Any] = field(default_factory=dict)  # by what, and with which settings

    def write(self, folder: Path) -> None:
        """Put it into a folder, which is whole from then on."""
        atomic_write((json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n").encode(), folder / INDEX_FILE)

    @classmethod
    def read(cls, folder: Path, sizes: bool = True) -> ShardIndex:
        """The index of a folder; the sizes of its files are compared with those on the disk."""
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
            if said := _size_error(file, size):
                raise BadInput(said)
        return index

    def part(self, name: str) -> tuple[Shard, ...]:
        """The shards of a part."""
        if name not in self.splits:
            raise UnknownName(f"the shards have no part '{name}'; {did_you_mean(name, self.splits)}")
        return self.splits[name]

    def count(self, name: str) -> tuple[int, int]:
        """How many values (tokens, bytes) and items (documents, images) a part has."""
        shards = self.part(name)
        return sum(s.values for s in shards), sum(s.items for s in shards)

    def fingerprint(self, name: str) -> str:
        """A few letters that change when a part or the vocabulary does; made of the checksums, not of the data."""
        found = blake2b(digest_size=8)
        told = [self.kind, self.dtype, self.vocabulary.get("fingerprint"), self.classes]
        found.update(json.dumps([told, [[s.values, s.checksum, s.ends_checksum] for s in self.part(name)]]).encode())
        return found.hexdigest()

    def check(self, folder: Path, moved: Callable[[int, int], None] = lambda done, total: None) -> list[str]:
        """Read everything and say what is wrong, a line a file; `moved` is told (bytes read, bytes in all)."""
        wrong, done = [], 0
        files = list(self._files(folder))
        total = sum(size for _, _, size in files)
        for shard, file, size in files:
            if said := _size_error(file, size):
                wrong.append(said)
                continue
            ends, found, top = file.suffix == ".ends", blake2b(digest_size=16), -1
            try:
                with open(file, "rb") as opened:
                    while block := opened.read(READ_BYTES):
                        found.update(block)
                        done += len(block)
                        moved(done, total)
                        if not ends and self.kind == "tokens":
                            top = max(top, int(np.frombuffer(block, DTYPES[self.dtype]).max()))
            except OSError as error:
                wrong.append(f"cannot read {file}: {(error.strerror or str(error)).lower()}")
                continue
            if found.hexdigest() != (shard.ends_checksum if ends else shard.checksum):
                wrong.append(f"{file} is damaged: its checksum is not that of the index; {_REPACK_HINT}")
            elif top >= self.vocabulary.get("size", top + 1):
                wrong.append(f"{file} holds the token {top}, but the vocabulary has {self.vocabulary['size']}")
            elif ends and not _is_increasing(np.fromfile(file, "<u8"), shard.values):
                wrong.append(f"{file} is damaged: its ends do not rise up to {shard.values}; {_REPACK_HINT}")
        if self.kind == "tokens" and (said := self.tokenizer_error(folder)):
            wrong.append(said)
        return wrong

    def tokenizer_error(self, folder: Path) -> str:
        """What is wrong with the vocabulary beside the shards, if anything."""
        file = folder / "tokenizer.json"
        try:
            same = fingerprint(file.read_bytes()) == self.vocabulary["fingerprint"]
        except OSError as error:
            return f"cannot read {file}: {(error.strerror or str(error)).lower()}; {_REPACK_HINT}"
        return "" if same else f"{file} is not the vocabulary the shards were made with; {_REPACK_HINT}"

    def _files(self, folder: Path) -> list[tuple[Shard, Path, int]]:
        """Every file, with the size it should have."""
        wide = np.dtype(DTYPES[self.dtype]).itemsize
        shards = [shard for part in self.splits.values() for shard in part]
        pairs = [[(s, folder / s.file, s.values * wide), (s, folder / s.ends, s.items * 8)] for s in shards]
        return [file for pair in pairs for file in pair]


def fingerprint(content: bytes) -> str:
    """A few letters for some bytes."""
    return blake2b(content, digest_size=8).hexdigest()


_REPACK_HINT = "copy it again, or pack the data anew (regard data pack); regard data check looks at every file"


def _missing_index_error(folder: Path) -> str:
    if (folder / JOURNAL_FILE).is_file():
        return f"{folder} was not packed to its end: give the same regard data pack command again, and it goes on there"
    return f"{folder} holds no shards (no {INDEX_FILE}); make some with regard data pack"


def _size_error(file: Path, wanted: int) -> str:
    """What is wrong with the size of a file, if anything."""
    try:
        size = file.stat().st_size
    except OSError:
        return f"{file} is missing, but the index names it; {_REPACK_HINT}"
    how = "cut off" if size < wanted else "too long"
    return "" if size == wanted else f"{file} is {how}: {size:,} bytes, the index says {wanted:,}; {_REPACK_HINT}"


def _parse_index(written: Any, file: Path) -> ShardIndex:
    """An index out of plain values, all of them checked."""
    if not isinstance(written, dict) or not isinstance(written.get("format"), int):
        raise BadInput(f"{file} is not an index of shards (it names no format); make some with regard data pack")
    if written["format"] != FORMAT:
        newer = "a newer version of regard made it" if written["format"] > FORMAT else "it is of an older format"
        raise BadInput(f"{file} has format {written['format']}, this version reads {FORMAT}: {newer}; pack it anew")
    try:
        index = ShardIndex(
            kind=str(written["kind"]),
            dtype=str(written["dtype"]),
            splits={name: tuple(Shard(**shard) for shard in part) for name, part in written["splits"].items()},
            vocabulary=dict(written["vocabulary"]),
            classes=tuple(written["classes"]),
            created=dict(written["created"]),
        )
        sound = index.kind in ("tokens", "images") and index.dtype in DTYPES
        sound &= index.kind != "tokens" or int(index.vocabulary["size"]) > 0 < len(index.vocabulary["fingerprint"])
        for part in index.splits.values():
            for shard in part:
                sound &= bool(_SHARD_FILE.fullmatch(shard.file)) and shard.values >= 0 and shard.items >= 0
    except (KeyError, TypeError, AttributeError, ValueError):
        sound = False
    if not sound:
        raise BadInput(f"{file} is damaged: its contents make no sense; {_REPACK_HINT}")
    return index


def _is_increasing(ends: np.ndarray, values: int) -> bool:
    steps = np.diff(ends.astype(np.int64), prepend=0)
    return bool((steps > 0).all()) and (not len(ends) or int(ends[-1]) <= values)
