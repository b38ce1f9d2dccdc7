"""Rows that take long to make: made once, on all cores, and kept in the cache folder.

    def maker(settings, part):                      # of a module, so that another process finds it
        composer = SceneComposer(settings, part)
        return lambda i: (pixels, classes)          # row i: arrays of one shape and dtype for all rows

    pixels, classes = stored_rows("scenes", 20_000, maker, settings, "train")       # N ..., mapped from their files

Every process of a run, and every run with the same settings, reads the same files ($REGARD_CACHE). Three rows are made
anew and compared each time, so that files of older code or other data are replaced. Runs that begin together wait for
the first of them.
"""

from __future__ import annotations

import errno
import logging
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from regard.core.errors import BadInput, RegardError
from regard.runtime.hardware import cache_dir

log = logging.getLogger("regard")

Row = tuple[np.ndarray, ...]
ROWS_PER_PROCESS = 200  # at least


def stored_rows(name: str, count: int, make: Callable[..., Callable[[int], Row]], *arguments: Any) -> list[np.ndarray]:
    """Return the arrays of all rows, read-only; row i is ``make(*arguments)(i)``."""
    digest = blake2b(repr((count, arguments)).encode(), digest_size=8).hexdigest()
    folder = cache_dir()
    folder.mkdir(parents=True, exist_ok=True)
    maker = make(*arguments)
    sample = {i: maker(i) for i in sorted({0, count // 2, count - 1})}
    paths = [folder / f"{name}-{digest}-{number}.npy" for number in range(len(sample[0]))]
    with locked(folder / f"{name}-{digest}.lock") as is_alone:
        if is_alone:  # files of processes that were killed
            for part in folder.glob(f"{name}-{digest}-*.part*"):
                part.unlink(missing_ok=True)
        if not _are_current(paths, count, sample):
            log.warning(f"making {count:,} rows of {name}, once: {paths[0]}")
            _make_all(paths, count, sample[0], (make, arguments))
    return [np.load(path, mmap_mode="r") for path in paths]


def _are_current(paths: Sequence[Path], count: int, sample: dict[int, Row]) -> bool:
    """Whether the files have these rows."""
    try:
        arrays = [np.load(path, mmap_mode="r") for path in paths]
    except (OSError, ValueError):
        return False
    return all(len(array) == count for array in arrays) and all(
        array.dtype == own.dtype and np.array_equal(array[i], own)
        for i, row in sample.items()
        for array, own in zip(arrays, row, strict=True)
    )


def _make_all(paths: Sequence[Path], count: int, first: Row, work: tuple[Any, Any]) -> None:
    parts = [path.with_suffix(f".part{os.getpid()}") for path in paths]
    processes = max(1, min(available_cores(), count // ROWS_PER_PROCESS))
    try:
        for part, own in zip(parts, first, strict=True):
            np.lib.format.open_memmap(part, "w+", own.dtype, (count, *own.shape)).flush()
            _reserve(part)
        if processes == 1:
            fill(parts, work, range(count))
        else:
            _run([pickle.dumps((parts, work, range(k, count, processes))) for k in range(processes)])
        for part, path in zip(parts, paths, strict=True):
            part.replace(path)
    finally:
        for part in parts:
            part.unlink(missing_ok=True)


def _reserve(file: Path) -> None:
    """Take the space of a file on the disk: one that is full would end the process when a row is written."""
    if hasattr(os, "posix_fallocate"):
        try:
            with file.open("r+b") as opened:
                os.posix_fallocate(opened.fileno(), 0, file.stat().st_size)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                size = file.stat().st_size
                raise BadInput(
                    f"{size / 2**20:,.0f} MiB of rows do not fit into {file.parent}: {(error.strerror or '').lower()}; "
                    "free space, choose another folder by $REGARD_CACHE, or train with data.store=false"
                ) from None


def _run(jobs: Sequence[bytes]) -> None:
    """Run processes of our own, each with its job; a process started anew, since a fork would copy threads' locks."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", "from regard.data.stored_rows import run_job; run_job()"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
    started = [subprocess.Popen(command, env=environment, **pipes) for _ in jobs]
    try:
        for process, job in zip(started, jobs, strict=True):
            assert process.stdin is not None
            process.stdin.write(job)
            process.stdin.close()
        for process in started:
            assert process.stderr is not None
            said = process.stderr.read().decode(errors="replace").strip()
            if process.wait():
                raise RegardError(
                    f"a process that makes rows failed: {said.splitlines()[-1] if said else 'no message'}"
                )
    finally:
        for process in started:
            process.kill()
            process.wait()


def run_job() -> None:
    """Make the rows that standard input asks for: the work of one process, which `stored_rows` started."""
    fill(*pickle.load(sys.stdin.buffer))


def fill(parts: Sequence[Path], work: tuple[Any, Any], rows: range) -> None:
    """Make these rows and write them into the files."""
    make, arguments = work
    maker, arrays = make(*arguments), [np.load(part, mmap_mode="r+") for part in parts]
    for i in rows:
        for array, own in zip(arrays, maker(i), strict=True):
            array[i] = own
    for array in arrays:
        array.flush()


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Hold the lock of a file, which one process at a time has; it ends with the process. Gives whether it is held."""
    with open(path, "w") as file:
        is_held = False
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
            is_held = True
        except (ImportError, OSError):  # no such locks here: each process makes the rows
            pass
        yield is_held
