"""Shards under way: a packing that is broken off, by whatever, can be taken up again and ends as if nothing had been.

    packing.json           what is packed and how, and how far everything is on the disk; renewed now and then
    train-00003.bin.part   the open shard of a part; cut back to what packing.json knows before it is gone on with
    train-00003.bin        a finished one: filled, flushed to the disk, and only then called that
    index.json             written when all is there; packing.json goes

So a name that ends in .bin is a whole shard, and a folder with index.json is a whole set. A folder that holds anything
else is never written into.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np

from regard.core.errors import BadInput
from regard.core.files import atomic_write
from regard.data.shards.index import DTYPES, INDEX_FILE, JOURNAL_FILE, READ_BYTES, Shard, ShardIndex

LOCK = ".lock"
JOURNAL_SECONDS = 30.0  # seconds after which what has been written is put on record
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


class ShardWriter:
    """A folder that shards are being packed into; nobody else writes there meanwhile.

    `facts` are the sources and settings, as plain values. Where the folder holds a packing of the same that was broken
    off, `upto` is how many pieces of it are there, and `notes` what it had noted down.
    """

    def __init__(self, folder: Path, facts: Mapping[str, Any], limit: int, every: float = JOURNAL_SECONDS) -> None:
        self.folder, self.facts, self.limit, self.every = folder, json.loads(json.dumps(facts)), limit, every
        self.parts: dict[str, _SplitWriter] = {}
        self.notes: dict[str, Any] = {}
        self.pieces_done, self.width, self.saved, self.whole = 0, 0, time.monotonic(), False

    def __enter__(self) -> ShardWriter:
        self.made = _check_output_folder(self.folder)
        self.lock = _lock_folder(self.folder)
        try:
            _check_output_folder(self.folder)  # still: another process may just have finished
            self._take_up()
        except BaseException:
            self._let_go()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for part in self.parts.values():
            part.let_go()
        if not self.whole and not self.pieces_done:  # nothing worth keeping
            names = [JOURNAL_FILE, *TOKENIZER_FILES, *(name for part in self.parts.values() for name in part.names())]
            _remove_files(self.folder, names)
        self._let_go()
        if self.made:
            with suppress(OSError):  # not empty: something worth keeping
                self.folder.rmdir()

    def _let_go(self) -> None:
        _remove_files(self.folder, [LOCK])
        self.lock.close()

    def _take_up(self) -> None:
        try:
            journal = json.loads((self.folder / JOURNAL_FILE).read_bytes())
            facts, notes, upto, parts = (journal[key] for key in ("facts", "notes", "upto", "parts"))
        except FileNotFoundError:
            return self.save(0)  # from now on this folder is known as ours
        except (OSError, ValueError, KeyError, TypeError):
            raise BadInput(f"{self.folder / JOURNAL_FILE} is damaged; delete the folder and pack anew") from None
        if facts != self.facts:
            other = ", ".join(key for key in facts if facts.get(key) != self.facts.get(key)) or "something"
            raise BadInput(
                f"a packing into {self.folder} was broken off, and it is not this one (other: {other}); "
                f"give that command again to finish it, or delete the folder"
            )
        self.notes, self.pieces_done = notes, upto
        self.width = int(journal["width"])
        for name, state in parts.items():
            self.parts[name] = _SplitWriter(self.folder, name, self.width, self.limit, state)

    def begin(self, dtype: str, **notes: Any) -> None:
        """What the values are, and what is to be known when the packing is taken up again."""
        self.width, self.notes = np.dtype(DTYPES[dtype]).itemsize, self.notes | notes
        self.save(self.pieces_done)

    def add(self, part: str, content: bytes, end: bool) -> None:
        """More values for a part; `end`: a document or record ends with them."""
        if part not in self.parts:
            self.parts[part] = _SplitWriter(self.folder, part, self.width, self.limit, None)
        self.parts[part].add(content, end)

    def reached(self, piece: int) -> None:
        """All up to this piece has been added; every now and then that is put on record."""
        if time.monotonic() - self.saved >= self.every:
            self.save(piece)

    def save(self, piece: int) -> None:
        """Put on record how far everything is."""
        parts = {name: part.state() for name, part in self.parts.items()}
        journal = {"facts": self.facts, "notes": self.notes, "upto": piece, "width": self.width, "parts": parts}
        _sync_folder(self.folder)  # the names of finished shards, before anything says that they are there
        atomic_write(json.dumps(journal).encode(), self.folder / JOURNAL_FILE)
        self.pieces_done, self.saved = piece, time.monotonic()

    def finish(self, index: ShardIndex) -> ShardIndex:
        """Close all shards, write the index with them in it, and forget the rest."""
        shards = {name: tuple(part.finish()) for name, part in sorted(self.parts.items())}
        index = ShardIndex(index.kind, index.dtype, shards, index.vocabulary, index.classes, index.created)
        _sync_folder(self.folder)
        index.write(self.folder)
        _sync_folder(self.folder)
        self.whole = True
        _remove_files(self.folder, [JOURNAL_FILE, *(path.name for path in self.folder.glob(".*.part"))])
        return index


class _SplitWriter:
    """The shards of one part, the last of them still open."""

    def __init__(self, folder: Path, name: str, width: int, limit: int, state: dict[str, Any] | None) -> None:
        self.folder, self.name, self.width, self.limit = folder, name, width, limit
        self.shards = [Shard(**shard) for shard in state["shards"]] if state else []
        self.files: tuple[BinaryIO, BinaryIO] | None = None
        self.values, self.items = 0, 0
        if state and state["values"]:
            self._open(state["values"], state["items"])

    def names(self) -> list[str]:
        """Every file that may be there."""
        finished = [name for shard in self.shards for name in (shard.file, shard.ends)]
        return [*finished, *(path.name for path in self._paths(True))]

    def add(self, content: bytes, end: bool) -> None:
        """More values; a shard that is full is finished."""
        if not self.files:
            self._open(0, 0)
        assert self.files is not None
        self.values += len(content) // self.width
        self._write(0, content)
        if end:
            self.items += 1
            self._write(1, self.values.to_bytes(8, "little"))
        if self.values * self.width >= self.limit:
            self._close()

    def state(self) -> dict[str, Any]:
        """What has been written, all of it now on the disk."""
        if self.files:
            for file, path in zip(self.files, self._paths(True), strict=True):
                with _disk_errors(path):
                    file.flush()
                    os.fsync(file.fileno())
        return {"shards": [asdict(s) for s in self.shards], "values": self.values, "items": self.items}

    def finish(self) -> list[Shard]:
        """All shards, none of them open."""
        if self.files:
            self._close()
        return self.shards

    def let_go(self) -> None:
        """Close the files as they are."""
        for file in self.files or ():
            with suppress(OSError):  # a full disk again
                file.close()
        self.files = None

    def _open(self, values: int, items: int) -> None:
        """Begin a shard, or go on with one that has so much on record."""
        self.values, self.items = values, items
        self.hashes = [blake2b(digest_size=16), blake2b(digest_size=16)]
        opened = []
        for path, size, found in zip(self._paths(True), (values * self.width, items * 8), self.hashes, strict=True):
            with _disk_errors(path):
                final = path.with_suffix("")
                if size and final.exists():  # finished, but that was not put on record
                    os.replace(final, path)
                file = open(path, "r+b" if size else "wb")  # noqa: SIM115
                opened.append(file)
                left = size
                while left and (block := file.read(min(READ_BYTES, left))):
                    found.update(block)
                    left -= len(block)
                if left:
                    raise BadInput(f"{path} is shorter than {JOURNAL_FILE} says; delete the folder and pack anew")
                file.truncate(size)
        self.files = opened[0], opened[1]

    def _close(self) -> None:
        self.state()
        self.let_go()
        for path, final in zip(self._paths(True), self._paths(False), strict=True):
            with _disk_errors(path):
                os.replace(path, final)
        checksums = [found.hexdigest() for found in self.hashes]
        self.shards.append(Shard(self._paths(False)[0].name, self.values, self.items, *checksums))
        self.values, self.items = 0, 0

    def _write(self, which: int, content: bytes) -> None:
        assert self.files is not None
        try:  # a million times: nothing is made here that is not needed
            self.files[which].write(content)
        except OSError as error:
            raise _write_error(self._paths(True)[which], error) from None
        self.hashes[which].update(content)

    def _paths(self, open: bool) -> tuple[Path, Path]:
        stem = f"{self.name}-{len(self.shards):05d}"
        more = ".part" if open else ""
        return self.folder / f"{stem}.bin{more}", self.folder / f"{stem}.ends{more}"


@contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    """What the disk has to say, as one line."""
    try:
        yield
    except OSError as error:
        raise _write_error(path, error) from None


def _write_error(path: Path, error: OSError) -> BadInput:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    hint = "; make room and give the same command again: it goes on from there" if full else ""
    return BadInput(f"cannot write {path}: {(error.strerror or str(error)).lower()}{hint}")


def _check_output_folder(folder: Path) -> bool:
    """See that a folder may be packed into; whether it was made for that."""
    if (folder / INDEX_FILE).exists():
        raise BadInput(f"{folder} already holds shards; choose another folder, or delete it first")
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{folder} is a file, not a folder")
    if folder.is_dir():
        if not (folder / JOURNAL_FILE).exists() and any(path.name != LOCK for path in folder.iterdir()):
            raise BadInput(f"{folder} is not empty; choose another folder")
        return False
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise BadInput(f"cannot make the folder {folder}: {(error.strerror or str(error)).lower()}") from None
    return True


def _lock_folder(folder: Path) -> BinaryIO:
    """Hold the folder; the lock goes with the process, however it ends."""
    try:
        file = open(folder / LOCK, "wb")  # noqa: SIM115
    except OSError as error:
        raise BadInput(f"cannot write in {folder}: {(error.strerror or str(error)).lower()}") from None
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:  # not a POSIX system
        pass
    except BlockingIOError:
        file.close()
        raise BadInput(f"another process is packing into {folder} right now") from None
    except OSError:  # a file system without locks
        pass
    return file


def _sync_folder(folder: Path) -> None:
    """Names on the disk, and not only files."""
    with suppress(OSError):  # not every system opens folders
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _remove_files(folder: Path, names: list[str]) -> None:
    for name in names:
        with suppress(OSError):
            (folder / name).unlink()
