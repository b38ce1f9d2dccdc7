"""Writing shards so that an interrupted packing can be continued and ends with the same bytes.

    packing.json           what is packed and how, and how much of it is on disk; updated now and then
    train-00003.bin.part   the open shard of a split; truncated to what packing.json records before it is continued
    train-00003.bin        a finished shard: full, flushed to disk, and then renamed
    index.json             written at the end; packing.json is then removed

So a .bin file is always complete, and so is a folder with index.json. A folder with other content is never written to.
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
JOURNAL_SECONDS = 30.0  # seconds between updates of packing.json
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


class ShardWriter:
    """A folder that shards are packed into, locked by this process.

    `facts` are the sources and settings, as plain values. If the folder has an interrupted packing of the same facts,
    `pieces_done` is the number of its pieces, and `notes` its notes.
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
            _check_output_folder(self.folder)  # again: another process may just have finished
            self._resume()
        except BaseException:
            self._unlock()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for part in self.parts.values():
            part.close_files()
        if not self.whole and not self.pieces_done:  # nothing to continue from
            names = [JOURNAL_FILE, *TOKENIZER_FILES, *(name for part in self.parts.values() for name in part.names())]
            _remove_files(self.folder, names)
        self._unlock()
        if self.made:
            with suppress(OSError):  # not empty
                self.folder.rmdir()

    def _unlock(self) -> None:
        _remove_files(self.folder, [LOCK])
        self.lock.close()

    def _resume(self) -> None:
        try:
            journal = json.loads((self.folder / JOURNAL_FILE).read_bytes())
            facts, notes, upto, parts = (journal[key] for key in ("facts", "notes", "upto", "parts"))
        except FileNotFoundError:
            return self.save(0)  # marks the folder as ours
        except (OSError, ValueError, KeyError, TypeError):
            raise BadInput(f"{self.folder / JOURNAL_FILE} is damaged; delete the folder and pack again") from None
        if facts != self.facts:
            other = ", ".join(key for key in facts if facts.get(key) != self.facts.get(key)) or "something"
            raise BadInput(
                f"{self.folder} has an interrupted packing with other settings (different: {other}); run its command "
                f"again to finish it, or delete the folder"
            )
        self.notes, self.pieces_done = notes, upto
        self.width = int(journal["width"])
        for name, state in parts.items():
            self.parts[name] = _SplitWriter(self.folder, name, self.width, self.limit, state)

    def begin(self, dtype: str, **notes: Any) -> None:
        """Set the dtype of the values, and notes for continuing the packing."""
        self.width, self.notes = np.dtype(DTYPES[dtype]).itemsize, self.notes | notes
        self.save(self.pieces_done)

    def add(self, part: str, content: bytes, end: bool) -> None:
        """Add values to a split; `end`: a document or record ends with them."""
        if part not in self.parts:
            self.parts[part] = _SplitWriter(self.folder, part, self.width, self.limit, None)
        self.parts[part].add(content, end)

    def mark_done(self, piece: int) -> None:
        """Record that everything up to this piece was added, if the last record is old enough."""
        if time.monotonic() - self.saved >= self.every:
            self.save(piece)

    def save(self, piece: int) -> None:
        """Record the progress in packing.json."""
        parts = {name: part.state() for name, part in self.parts.items()}
        journal = {"facts": self.facts, "notes": self.notes, "upto": piece, "width": self.width, "parts": parts}
        _sync_folder(self.folder)  # finished shards, before the journal names them
        atomic_write(json.dumps(journal).encode(), self.folder / JOURNAL_FILE)
        self.pieces_done, self.saved = piece, time.monotonic()

    def finish(self, index: ShardIndex) -> ShardIndex:
        """Close all shards, write the index and remove the journal."""
        shards = {name: tuple(part.finish()) for name, part in sorted(self.parts.items())}
        index = ShardIndex(index.kind, index.dtype, shards, index.vocabulary, index.classes, index.created)
        _sync_folder(self.folder)
        index.write(self.folder)
        _sync_folder(self.folder)
        self.whole = True
        _remove_files(self.folder, [JOURNAL_FILE, *(path.name for path in self.folder.glob(".*.part"))])
        return index


class _SplitWriter:
    """The shards of one split, the last of them open."""

    def __init__(self, folder: Path, name: str, width: int, limit: int, state: dict[str, Any] | None) -> None:
        self.folder, self.name, self.width, self.limit = folder, name, width, limit
        self.shards = [Shard(**shard) for shard in state["shards"]] if state else []
        self.files: tuple[BinaryIO, BinaryIO] | None = None
        self.values, self.items = 0, 0
        if state and state["values"]:
            self._open(state["values"], state["items"])

    def names(self) -> list[str]:
        """Return the names of all files that may exist."""
        finished = [name for shard in self.shards for name in (shard.file, shard.ends)]
        return [*finished, *(path.name for path in self._paths(True))]

    def add(self, content: bytes, end: bool) -> None:
        """Add values; a full shard is finished."""
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
        """Flush to disk and return the state."""
        if self.files:
            for file, path in zip(self.files, self._paths(True), strict=True):
                with _disk_errors(path):
                    file.flush()
                    os.fsync(file.fileno())
        return {"shards": [asdict(s) for s in self.shards], "values": self.values, "items": self.items}

    def finish(self) -> list[Shard]:
        """Close the last shard and return all."""
        if self.files:
            self._close()
        return self.shards

    def close_files(self) -> None:
        """Close the files as they are."""
        for file in self.files or ():
            with suppress(OSError):  # the disk is full
                file.close()
        self.files = None

    def _open(self, values: int, items: int) -> None:
        """Open a new shard, or continue one with this much on record."""
        self.values, self.items = values, items
        self.hashes = [blake2b(digest_size=16), blake2b(digest_size=16)]
        opened = []
        for path, size, found in zip(self._paths(True), (values * self.width, items * 8), self.hashes, strict=True):
            with _disk_errors(path):
                final = path.with_suffix("")
                if size and final.exists():  # finished, but not recorded
                    os.replace(final, path)
                file = open(path, "r+b" if size else "wb")  # noqa: SIM115
                opened.append(file)
                left = size
                while left and (block := file.read(min(READ_BYTES, left))):
                    found.update(block)
                    left -= len(block)
                if left:
                    raise BadInput(f"{path} is shorter than {JOURNAL_FILE} records; delete the folder and pack again")
                file.truncate(size)
        self.files = opened[0], opened[1]

    def _close(self) -> None:
        self.state()
        self.close_files()
        for path, final in zip(self._paths(True), self._paths(False), strict=True):
            with _disk_errors(path):
                os.replace(path, final)
        checksums = [found.hexdigest() for found in self.hashes]
        self.shards.append(Shard(self._paths(False)[0].name, self.values, self.items, *checksums))
        self.values, self.items = 0, 0

    def _write(self, which: int, content: bytes) -> None:
        assert self.files is not None
        try:  # called millions of times, so without a context manager
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
    """Turn disk errors into a one-line `BadInput`."""
    try:
        yield
    except OSError as error:
        raise _write_error(path, error) from None


def _write_error(path: Path, error: OSError) -> BadInput:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    hint = "; free some space and run the same command again to continue" if full else ""
    return BadInput(f"cannot write {path}: {(error.strerror or str(error)).lower()}{hint}")


def _check_output_folder(folder: Path) -> bool:
    """Check that a folder may be packed into, and create it; return whether it is new."""
    if (folder / INDEX_FILE).exists():
        raise BadInput(f"{folder} already has shards; use another folder, or delete it first")
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{folder} is a file, not a folder")
    if folder.is_dir():
        if not (folder / JOURNAL_FILE).exists() and any(path.name != LOCK for path in folder.iterdir()):
            raise BadInput(f"{folder} is not empty; use another folder")
        return False
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise BadInput(f"cannot create the folder {folder}: {(error.strerror or str(error)).lower()}") from None
    return True


def _lock_folder(folder: Path) -> BinaryIO:
    """Lock the folder; the lock ends with the process."""
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
    """Flush a folder's entries to disk."""
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
