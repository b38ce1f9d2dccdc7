"""Lines in and out: numbered, in constant memory, nothing lost, nothing half-written."""

import os
import sys
import threading
import time
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given as over
from hypothesis import strategies as st

from regard.cli import lines
from regard.core.errors import BadInput


def read(content, tmp_path):
    (tmp_path / "in.txt").write_bytes(content)
    with lines.open_lines(tmp_path / "in.txt") as file:
        return list(lines.read_batches(file))


def flat(content, tmp_path):
    return [line for window in read(content, tmp_path) for line in window]


def test_lines_are_numbered_and_keep_their_text(tmp_path):
    found = flat("\ufeffone\r\n\ntwo 🐕\u2028half\nlast".encode(), tmp_path)
    assert [(line.number, line.text) for line in found] == [(1, "one"), (2, ""), (3, "two 🐕\u2028half"), (4, "last")]
    assert not any(line.problem for line in found)
    assert flat(b"", tmp_path) == []
    assert [line.text for line in flat(b"\n", tmp_path)] == [""]


@over(st.lists(st.binary(max_size=40).map(lambda b: b.replace(b"\n", b"")), max_size=8), st.integers(1, 7))
def test_lines_do_not_depend_on_how_they_arrive(rows, chunk):
    content = b"".join(row + b"\n" for row in rows)
    handle, writer = os.pipe()
    os.write(writer, content)
    os.close(writer)
    before, lines.CHUNK = lines.CHUNK, chunk
    try:
        assert [raw for raw in lines._raw_lines(handle) if raw is not None] == rows
    finally:
        lines.CHUNK = before
        os.close(handle)


def test_windows_grow_from_few_to_many(tmp_path):
    sizes = [len(window) for window in read(b"a\n" * 5000, tmp_path)]
    assert sizes[:7] == [32, 64, 128, 256, 512, 1024, 1024]
    assert sum(sizes) == 5000
    wide = [len(window) for window in read((b"a" * 19_000 + b"\n") * 100, tmp_path)]
    assert max(wide) * 19_000 < lines.BATCH_CHARACTERS + 19_001  # a window is bounded in characters too
    assert sum(wide) == 100


def test_a_line_without_end_takes_no_memory(tmp_path):
    with open(tmp_path / "in.txt", "wb") as file:
        for _ in range(64):
            file.write(b"x" * 1_000_000)
        file.write(b"\nafter\n")
    tracemalloc.start()
    with lines.open_lines(tmp_path / "in.txt") as file:
        found = [line for window in lines.read_batches(file) for line in window]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000
    assert [line.text for line in found] == ["", "after"]
    assert "more than 20,000 characters" in found[0].problem


def test_a_writer_who_pauses_is_answered():
    handle, writer = os.pipe()
    answered = threading.Event()

    def write():
        os.write(writer, b"first\n")
        answered.wait(10)
        os.write(writer, b"second\n")
        os.close(writer)

    thread = threading.Thread(target=write)
    thread.start()
    with open(handle, "rb", buffering=0) as file:
        came = lines.read_batches(file)
        began = time.monotonic()
        assert [line.text for line in next(came)] == ["first"]
        assert time.monotonic() - began < 5
        answered.set()
        assert [line.text for line in next(came)] == ["second"]
    thread.join(20)
    assert not thread.is_alive()


def test_white_space_is_no_control_character(tmp_path):
    found = flat(b"a\tb\x0bc\nd\x1be\n\x7f\n", tmp_path)
    assert [bool(line.problem) for line in found] == [False, True, True]
    assert "U+001B" in found[1].problem
    assert found[1].text == "d\x1be"


def test_a_file_appears_when_it_is_whole(tmp_path):
    place = tmp_path / "out.txt"
    place.write_text("old\n")
    with lines.OutputFile(place) as out:
        out.write(["eins", "zwei ☃"])
        assert place.read_text() == "old\n"
    assert place.read_text("utf-8") == "eins\nzwei ☃\n"
    with suppress(ZeroDivisionError), lines.OutputFile(place) as out:
        out.write(["half"])
        raise ZeroDivisionError
    assert place.read_text("utf-8") == "eins\nzwei ☃\n"
    assert [file.name for file in tmp_path.iterdir()] == ["out.txt"]


def test_a_device_is_written_to_and_never_replaced(tmp_path):
    link = tmp_path / "null"
    link.symlink_to(os.devnull)
    with lines.OutputFile(link) as out:
        out.write(["x"])
    assert link.is_symlink()
    assert not os.path.isfile(os.devnull)
    with lines.OutputFile("/dev/full") as out, pytest.raises(BadInput, match="no space left"):
        out.write(["x"])


def test_a_closed_stdin_is_one_line(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(BadInput, match="there are no texts, and no stdin to read them from"):
        lines.stdin("texts")


def test_the_name_of_a_file_is_not_taken_for_a_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.today").write_text("Two dogs.\n")
    with pytest.raises(BadInput, match=r"notes\.today is a file, and a text is expected; .* < notes\.today"):
        next(lines.read_lines(["notes.today"], "texts"))
    with pytest.raises(BadInput, match=r"there is no file notes\.txt"):
        next(lines.read_lines(["notes.txt"], "texts"))
    for text in ("Read notes.txt.", "dog", "Hello.", ""):
        assert next(lines.read_lines([text], "texts"))[0].text == text


def test_a_file_that_holds_no_text_is_refused_in_one_sentence(tmp_path, monkeypatch):
    noise = bytes(range(256)) * 20
    for content in (
        noise,
        b"\xff\xd8\xff\xe0" + noise,
        b"%PDF-1.7 plain at first",
        b"PK\x03\x04" + b"word/document.xml",
    ):
        (tmp_path / "in.txt").write_bytes(content)
        with pytest.raises(BadInput, match=r"in\.txt holds no plain text; give a text file"):
            lines.open_lines(tmp_path / "in.txt")
        with open(tmp_path / "in.txt") as stream:
            monkeypatch.setattr(sys, "stdin", stream)
            with pytest.raises(BadInput, match="stdin holds no plain text"):
                lines.stdin("text")
    (tmp_path / "in.txt").write_bytes("two dogs".encode("utf-16"))
    with pytest.raises(BadInput, match=r"in\.txt is UTF-16; save it as UTF-8"):
        lines.open_lines(tmp_path / "in.txt")


def test_a_text_with_a_few_odd_bytes_is_a_text(tmp_path):
    content = "Grüße\n".encode("latin-1") * 100 + b"two\x00 dogs\n" * 8
    assert len(flat(content, tmp_path)) == 108
    assert len(flat("Привет\n".encode("cp1251") * 100, tmp_path)) == 100
