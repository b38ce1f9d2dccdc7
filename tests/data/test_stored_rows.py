"""Rows that are made once: by several processes, found again by the next run, and made anew when they differ."""

import errno
import os

import numpy as np
import pytest

from regard.core.errors import BadInput, RegardError
from regard.data import stored_rows as module
from regard.data.stored_rows import stored_rows


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def squares(factor):
    return lambda i: (np.full((2, 3), factor * i * i, np.int32), np.array(i % 7, np.uint8))


def fails(factor):
    def make(i):
        if i == 3:
            raise ValueError(f"no row {i}")
        return (np.array(factor),)

    return make


def test_rows_equal_those_that_are_made_one_by_one(cache):
    found = stored_rows("squares", 9, squares, 3)
    for i in range(9):
        for array, own in zip(found, squares(3)(i), strict=True):
            assert array.dtype == own.dtype
            np.testing.assert_array_equal(array[i], own)
    assert {path.suffix for path in cache.iterdir()} == {".npy", ".lock"}


def test_several_processes_make_the_same_rows(monkeypatch):
    alone = [np.array(each) for each in stored_rows("alone", 9, squares, 3)]
    monkeypatch.setattr(module, "ROWS_PER_PROCESS", 3)
    for array, own in zip(stored_rows("together", 9, squares, 3), alone, strict=True):
        np.testing.assert_array_equal(array, own)


def test_a_second_run_makes_no_rows(monkeypatch):
    first = stored_rows("squares", 9, squares, 3)
    monkeypatch.setattr(module, "_make_all", lambda *_: pytest.fail("made again"))
    np.testing.assert_array_equal(stored_rows("squares", 9, squares, 3)[0], first[0])


def test_rows_of_other_code_are_made_anew():
    stored_rows("squares", 9, squares, 3)
    changed = stored_rows("squares", 9, lambda factor: lambda i: squares(factor)(i + 1), 3)
    assert changed[0][8, 0, 0] == 3 * 81


def test_a_process_that_fails_is_one_sentence_and_leaves_no_file(monkeypatch, cache):
    monkeypatch.setattr(module, "ROWS_PER_PROCESS", 3)
    with pytest.raises(RegardError, match="makes rows failed: ValueError: no row 3"):
        stored_rows("fails", 9, fails, 3)
    assert {path.suffix for path in cache.iterdir()} == {".lock"}


def test_a_full_disk_is_one_sentence_before_rows_are_made(monkeypatch, cache):
    def reserve(file, start, size):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", reserve)
    with pytest.raises(BadInput, match=r"do not fit into .*no space left on device; free space"):
        stored_rows("squares", 9, squares, 3)
    assert {path.suffix for path in cache.iterdir()} == {".lock"}


def test_space_is_taken_before_rows_are_written(monkeypatch):
    monkeypatch.setattr(module, "ROWS_PER_PROCESS", 1000)
    sizes, fill = [], module.fill
    monkeypatch.setattr(
        module, "fill", lambda parts, *rest: sizes.extend(part.stat() for part in parts) or fill(parts, *rest)
    )
    stored_rows("large", 600, lambda: lambda i: (np.full(1000, i, np.int32),))
    assert [size.st_blocks * 512 >= size.st_size > 2_400_000 for size in sizes] == [True]


def test_files_of_a_process_that_was_killed_are_removed(cache):
    stored_rows("squares", 9, squares, 3)
    (file, _) = sorted(cache.glob("*.npy"))
    left = file.with_suffix(".part123")
    left.write_bytes(b"left")
    stored_rows("squares", 9, squares, 3)
    assert not left.exists()
