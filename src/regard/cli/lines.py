"""Lines in and lines out, any number of them in constant memory.

In: bytes become numbered lines. A line that is not text, or too long, keeps its place and says what is wrong with it.
Lines come in batches that grow from 32 to 1024, so that the first output is early and later ones are fast; a slow
writer (a person, ``tail -f``) gets its output as soon as it pauses.

Out: to stdout as they come, or to a file that appears under its name only when it is complete.
"""

from __future__ import annotations

import codecs
import os
import re
import secrets
import select
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from regard.core.errors import BadInput

MAX_CHARACTERS = 20_000  # characters of a line
MAX_BYTES = 4 * MAX_CHARACTERS + 8  # bytes that may still be such a line
CHUNK = 1 << 16  # bytes read at a time
FIRST_BATCH, LARGEST_BATCH = 32, 1024  # lines in the first window, and in the largest
BATCH_CHARACTERS = 500_000  # characters after which a window is full
PAUSE = 0.05  # seconds of silence after which a window is answered as it is

SNIFF_BYTES = 4096  # bytes of a file that are asked whether it is a text
MOST_ODD = 16  # bytes that are not UTF-8, and control characters, with which it is none
DOCUMENTS = (b"%PDF", b"PK\x03\x04")  # how PDF and Word files begin

MAX_NAME = 1024  # characters of the name of a file

_TEXT_FILE = re.compile(r"\S+\.(txt|csv|tsv|jsonl|md)")
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f]")  # without those that are white space


@dataclass(frozen=True)
class Line:
    """One line: its number from 1, its text (empty where it cannot be used), and what is wrong with it."""

    number: int
    text: str
    problem: str = ""


def replace_control_characters(text: str) -> str:
    """Return the text with a space for each control character; all others keep their places."""
    return _CONTROL.sub(" ", text)


def open_lines(path: str | Path) -> BinaryIO:
    """Open a file to read lines from."""
    try:
        if Path(path).is_dir():
            raise BadInput(f"{path} is a folder, not a file")
        file = open(path, "rb", buffering=0)  # noqa: SIM115 -- whoever asked for it reads it
    except FileNotFoundError:
        raise BadInput(f"there is no file {path}") from None
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot read {path}: {(getattr(error, 'strerror', None) or str(error)).lower()}") from None
    _check_text(file, str(path))
    return file


def _check_text(file: BinaryIO, name: str) -> None:
    """Refuse a file that holds no text, by its beginning; a pipe is read as it comes."""
    try:
        begins = os.pread(file.fileno(), SNIFF_BYTES, os.lseek(file.fileno(), 0, os.SEEK_CUR))
    except (OSError, ValueError):  # a pipe has no beginning
        return
    if begins.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and b"\0" in begins:
        raise BadInput(f"{name} is UTF-16; save it as UTF-8")
    text = begins.decode("utf-8", "replace")
    odd = min(text.count("\ufffd"), len(_CONTROL.findall(text)))  # a damaged text has a few of either
    if begins.startswith(DOCUMENTS) or odd >= MOST_ODD:
        raise BadInput(f"{name} holds no plain text; give a text file, a sentence a line")


def stdin(what: str) -> BinaryIO:
    """Return the stream that lines are read from when none were given."""
    from regard.cli import print_status

    if sys.stdin is None:
        raise BadInput(f"there are no {what}, and no stdin to read them from")
    if sys.stdin.isatty():
        print_status(f"reading {what} from the terminal, line by line; Ctrl-D ends it")
    else:
        _check_text(sys.stdin.buffer, "stdin")
    return sys.stdin.buffer


def lines_from_arguments(texts: Iterable[str]) -> Iterator[list[Line]]:
    """Yield the lines of texts of the command line, as one batch."""
    rows = [row for text in texts for row in text.removesuffix("\n").split("\n")]
    yield [_decode_line(number, os.fsencode(row)) for number, row in enumerate(rows, 1)]


def check_no_file(text: str, how: str = "; to read its lines write: < {}") -> None:
    """Refuse a text that is the name of a file, or was meant to be; `how` its lines are given instead."""
    is_file = "." in text and len(text) < MAX_NAME and "\n" not in text and os.path.isfile(text)
    if is_file:
        raise BadInput(f"{text} is a file, and a text is expected{how.format(text)}")
    if _TEXT_FILE.fullmatch(text):
        raise BadInput(
            f"there is no file {text}; give a text in quotes{', or the lines of a file: < FILE' if how else ''}"
        )


def read_lines(texts: Iterable[str] | None, what: str) -> Iterator[list[Line]]:
    """Yield the lines of texts of the command line, or of stdin where there are none, or "-" alone; the name of a file
    is refused."""
    texts = [] if (given := [*(texts or ())]) == ["-"] else given
    for text in texts:
        check_no_file(text)
    return lines_from_arguments(texts) if texts else read_batches(stdin(what))


def read_batches(file: BinaryIO) -> Iterator[list[Line]]:
    """Yield the lines of a file or a pipe in batches."""
    window: list[Line] = []
    number, room, characters = 0, FIRST_BATCH, 0
    for raw in _raw_lines(file.fileno()):
        if raw is not None:
            number += 1
            window.append(_decode_line(number, raw))
            characters += len(window[-1].text)
        if window and (raw is None or len(window) == room or characters >= BATCH_CHARACTERS):
            yield window
            room = min(LARGEST_BATCH, 2 * room) if raw is not None else FIRST_BATCH
            window, characters = [], 0
    if window:
        yield window


def _raw_lines(handle: int) -> Iterator[bytes | None]:
    """Yield lines as bytes without their end, None when the writer pauses; of a far too long line only the beginning"""
    line = bytearray()
    while True:
        if not _has_input(handle):
            yield None
        chunk = os.read(handle, CHUNK)
        if not chunk:
            break
        first, *others = chunk.split(b"\n")
        line += first[: MAX_BYTES + 1 - len(line)]
        for other in others:
            yield bytes(line)
            line[:] = other[: MAX_BYTES + 1]
    if line:
        yield bytes(line)


def _has_input(handle: int) -> bool:
    """Return whether there is something to read within the pause; True where that cannot be asked."""
    try:
        return bool(select.select([handle], [], [], PAUSE)[0])
    except (OSError, ValueError):  # not every system can ask a pipe
        return True


def _decode_line(number: int, raw: bytes) -> Line:
    """Return bytes as a line, with what is wrong with it and what was done about that."""
    raw = raw.removesuffix(b"\r")
    if number == 1:
        raw = raw.removeprefix(b"\xef\xbb\xbf")
    if len(raw) > MAX_BYTES:
        return Line(number, "", f"has more than {MAX_CHARACTERS:,} characters: left empty; break it into sentences")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        return Line(number, "", f"is not UTF-8 (byte 0x{raw[error.start]:02X} at place {error.start + 1}): left empty")
    if len(text) > MAX_CHARACTERS:
        what = f"has {len(text):,} characters, more than {MAX_CHARACTERS:,}: left empty; break it into sentences"
        return Line(number, "", what)
    if found := _CONTROL.search(text):
        return Line(number, text, f"holds control characters (U+{ord(found[0]):04X}): read as spaces")
    return Line(number, text)


class OutputFile:
    """Output lines: to stdout as they come, or to a file that appears when it is complete.

    After an interruption the finished lines are in a file of the same name with ".part" after it.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.part: Path | None = None  # None: written straight to where it goes
        self.file: BinaryIO | None = None

    def __enter__(self) -> OutputFile:
        if self.path is None:
            return self
        place = Path(os.path.realpath(self.path))  # through a link, to what it names
        try:
            if place.is_dir():
                raise BadInput(f"cannot write {self.path}: it is a folder")
            if not place.parent.is_dir():
                raise BadInput(f"cannot write {self.path}: there is no folder {self.path.parent}")
            if place.exists() and not stat.S_ISREG(place.stat().st_mode):  # a device or a pipe cannot be replaced
                self.file = open(place, "wb")
            else:
                self.part = place.with_name(f".{secrets.token_hex(8)}.part")
                self.file = open(self.part, "xb")
        except OSError as error:
            raise BadInput(f"cannot write {self.path}: {(error.strerror or str(error)).lower()}") from None
        return self

    def write(self, lines: Iterable[str]) -> None:
        """Write lines and flush them."""
        text = "".join(f"{line}\n" for line in lines)
        if self.file is None:
            sys.stdout.write(text)
            sys.stdout.flush()
            return
        try:
            self.file.write(text.encode("utf-8", "replace"))
            self.file.flush()
        except OSError as error:
            raise self._cannot(error) from None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.file is None or self.path is None:
            return
        from regard.cli import print_status
        from regard.cli.output_files import describe_write

        place = Path(os.path.realpath(self.path))
        try:
            if self.part is not None and kind is None:
                line = describe_write(self.path, "written")
                os.fsync(self.file.fileno())
                os.replace(self.part, place)
                print_status(line)
            elif self.part is not None and kind is KeyboardInterrupt:
                os.replace(self.part, f"{place}.part")
                print_status(f"what was finished is in {self.path}.part")
        except OSError as failure:
            raise self._cannot(failure) from None
        finally:
            with suppress(OSError):  # a full disk may complain once more
                self.file.close()
            if self.part is not None:
                self.part.unlink(missing_ok=True)

    def _cannot(self, error: OSError) -> BadInput:
        return BadInput(f"cannot write {self.path}: {(error.strerror or str(error)).lower()}")
