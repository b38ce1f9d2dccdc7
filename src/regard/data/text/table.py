"""Tables of text: .tsv, .csv, .jsonl and .parquet, the first three also as .gz.

    rows.tsv       cells between tabs; a first line that names the columns is recognised, but not needed
    rows.csv       commas (or semicolons, or tabs) and quotes; the first row names the columns
    rows.jsonl     an object a line
    rows.parquet   needs pyarrow: pip install pyarrow

A table is read whole, as UTF-8, or UTF-16 as spreadsheets write it. Blank lines are left out, and so are a few lines
with another number of columns, which are named; what is missing, null or NaN is an empty cell. The columns of a .tsv
without a first line of names are called "1", "2", ...
"""

from __future__ import annotations

import codecs
import csv
import gzip
import json
import logging
import math
import shlex
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from regard.core.errors import BadInput

log = logging.getLogger("regard")

SUFFIXES = (".tsv", ".csv", ".jsonl", ".parquet")
MOST_RAGGED = 0.05  # share of lines with another number of columns, above which a table is refused
HOW_TO_CONVERT = {
    ".json": "; write one object a line, and name the file .jsonl",
    ".xlsx": "; save the sheet as CSV (UTF-8)",
    ".xls": "; save the sheet as CSV (UTF-8)",
    ".ods": "; save the sheet as CSV (UTF-8)",
    ".zip": "; unpack it",
}


@dataclass(frozen=True)
class Table:
    """Rows of cells, all texts, with the number of the line that each row ends on."""

    file: Path
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    lines: tuple[int, ...]

    def column(self, name: str) -> list[str]:
        """Return the cells of a column."""
        at = self.columns.index(name)
        return [row[at] for row in self.rows]

    def text_columns(self) -> list[str]:
        """Return the columns that are not numbers, as ids are; all where fewer than two are left."""
        found = [name for name in self.columns if not all(cell.isdecimal() for cell in self.column(name))]
        return found if len(found) > 1 else [*self.columns]


def is_table(file: Path) -> bool:
    """Whether a file is a table by its name; hidden files are none."""
    return suffix(file) in SUFFIXES and not file.name.startswith(".")


def suffix(file: Path) -> str:
    """Return the ending of a file in lower case, without .gz."""
    return Path(file.name.lower().removesuffix(".gz")).suffix


def read_table(file: Path, known: Sequence[str] = ()) -> Table:
    """Read a table; the first line of a .tsv names the columns if it consists of names in `known`."""
    kind = suffix(file)
    if kind == ".tsv":
        columns, found = _read_tsv(file, known)
    elif kind == ".csv":
        columns, found = _read_csv(file)
    elif kind == ".jsonl":
        columns, found = _read_jsonl(file)
    elif kind == ".parquet":
        columns, found = _read_parquet(file)
    else:
        how = HOW_TO_CONVERT.get(kind, "")
        raise BadInput(f"{file} is not a table that can be read; expected {', '.join(SUFFIXES)}{how}")
    if not found:
        raise BadInput(f"{file} has no rows{' but the names of its columns' if columns else ''}")
    return Table(file, columns, tuple(row for _, row in found), tuple(number for number, _ in found))


Rows = list[tuple[int, tuple[str, ...]]]


def _read_tsv(file: Path, known: Sequence[str]) -> tuple[tuple[str, ...], Rows]:
    found: Rows = []
    for number, line in enumerate(read_lines(file), 1):
        if not line.strip():
            continue
        found.append((number, tuple(cell.strip() for cell in line.removesuffix("\r").split("\t"))))
    if not found:
        return (), found
    found = _without_ragged(file, found, len(found[0][1]), "line")
    first = found[0][1]
    named = [cell.lower() for cell in first]
    if known and all(named) and len({*named}) == len(named) and {*named} <= {*known}:
        return tuple(named), found[1:]
    return tuple(str(n) for n in range(1, len(first) + 1)), found


def _read_csv(file: Path) -> tuple[tuple[str, ...], Rows]:
    lines = read_lines(file)
    first = next((line for line in lines if line.strip()), "")
    delimiter = max(",;\t", key=first.count)  # spreadsheets write semicolons where the comma is in numbers
    if first.startswith("sep=") and len(first) == 5:  # a note to Excel
        delimiter, lines[lines.index(first)] = first[4], ""
    reader = csv.reader((f"{line}\n" for line in lines), delimiter=delimiter, strict=True)
    columns: tuple[str, ...] = ()
    found: Rows = []
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells):  # a blank line
                continue
            if not columns:
                columns = tuple(name.strip().lower() for name in cells)
                _check_columns(file, columns)
                continue
            found.append((reader.line_num, tuple(_one_line(cell) for cell in cells)))
    except csv.Error as error:
        raise BadInput(f"{file}, line {reader.line_num}: {error}") from None
    quotes = f" (a text with {'a tab' if delimiter == chr(9) else delimiter} in it needs quotes)"
    return columns, _without_ragged(file, found, len(columns), "row", quotes)


def _without_ragged(file: Path, rows: Rows, columns: int, what: str, hint: str = "") -> Rows:
    """Return the rows with as many columns as the first; a few others are left out, and a line is logged about them."""
    ragged = [(number, len(cells)) for number, cells in rows if len(cells) != columns]
    if not ragged:
        return rows
    number, count = ragged[0]
    why = f"line {number}{{}}: {count} column{'s' if count > 1 else ''}; its first {what} has {columns}{hint}"
    if len(ragged) > MOST_RAGGED * len(rows):
        raise BadInput(f"{file}, {why.format('')}")
    more = f" (and {len(ragged) - 1:,} more like it)" if len(ragged) > 1 else ""
    _warn_once(f"left out {why.format(f' of {file}')}{more}")
    return [(number, cells) for number, cells in rows if len(cells) == columns]


def _read_jsonl(file: Path) -> tuple[tuple[str, ...], Rows]:
    numbers, rows = list[int](), list[dict[str, str]]()
    for number, line in enumerate(read_lines(file), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise BadInput(f"{file}, line {number}: not a JSON object")
        value = _flatten(value)
        names = [name.strip().lower() for name in value]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise BadInput(f"{file}, line {number}: two values are called '{twice}'")
        numbers.append(number)
        rows.append({name: _cell(cell) for name, cell in zip(names, value.values(), strict=True) if _is_cell(cell)})
    columns = tuple(dict.fromkeys(name for row in rows for name in row))
    return columns, [
        (number, tuple(row.get(name, "") for name in columns)) for number, row in zip(numbers, rows, strict=True)
    ]


def _flatten(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row whose sentences by language, in a dict as Hugging Face's translation sets have them, are cells."""
    inner = row.get("translation")
    return {**inner, **row} if isinstance(inner, dict) else row


def _is_cell(value: Any) -> bool:
    """Whether a value is a text, a number, or missing; not a list or the like."""
    return value is None or isinstance(value, (str, int, float))


def _cell(value: str | float | None) -> str:
    """Return a value as text in one line; "" where it is missing."""
    return "" if value is None or (isinstance(value, float) and math.isnan(value)) else _one_line(str(value))


def _read_parquet(file: Path) -> tuple[tuple[str, ...], Rows]:
    try:
        import pyarrow.parquet
    except ImportError:
        raise BadInput(f"reading {file} needs the package pyarrow: pip install pyarrow") from None
    try:
        table: Any = pyarrow.parquet.read_table(file)
    except (pyarrow.ArrowException, OSError) as error:
        raise BadInput(f"cannot read {file}: {str(error).splitlines()[0]}") from None
    names = [name.strip().lower() for name in table.column_names]
    _check_columns(file, names)
    data = {name: table.column(own).to_pylist() for name, own in zip(names, table.column_names, strict=True)}
    if "translation" in data and any(isinstance(cell, dict) for cell in data["translation"]):
        inner = [_flatten({"translation": cell or {}}) for cell in data["translation"]]
        data = {name: [row.get(name) for row in inner] for name in dict.fromkeys(chain(*inner))} | data
    usable = {name: cells for name, cells in data.items() if all(map(_is_cell, cells))}
    columns = tuple(usable)
    rows = zip(*usable.values(), strict=True)
    return columns, [(number, tuple(map(_cell, row))) for number, row in enumerate(rows, 1)]


def _check_columns(file: Path, columns: Sequence[str]) -> None:
    if twice := next((name for name in columns if columns.count(name) > 1), None):
        raise BadInput(f"{file}: {columns.count(twice)} columns are called '{twice}' in its first row")


def _one_line(cell: str) -> str:
    """Return a cell without line breaks: quoted cells may have some."""
    return " ".join(cell.splitlines()).strip()


def parse_columns(given: str) -> dict[str, str]:
    """Return what is called how in a file: ``"text='the review' label"`` is text: the review, label: label."""
    try:
        parts = [part.partition("=") for part in shlex.split(given)]
    except ValueError as error:
        raise BadInput(f"data.columns={given!r}: {str(error).lower()}") from None
    return {name: own or name for name, _, own in parts}


def pick_columns(table: Table, wanted: Sequence[str], given: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield line numbers and the cells of some columns; `given` says which they are.

    ``"text label"`` names the columns of a file without names in order, or those of a file with names;
    ``"text=review label='star rating'"`` says how columns are called in the file.
    """
    names = parse_columns(given)
    numbered = bool(table.columns) and table.columns == tuple(str(n) for n in range(1, len(table.columns) + 1))
    places = {}
    for place, (name, own) in enumerate(names.items()):
        if numbered and own not in table.columns:
            if len(table.columns) != len(names):
                raise BadInput(
                    f"{table.file} has {len(table.columns)} columns; expected {len(names)}: {'<TAB>'.join(names)}"
                )
            places[name] = place
        elif own.lower() in table.columns:
            places[name] = table.columns.index(own.lower())
        else:
            found = ", ".join(f"'{column}'" for column in table.columns)
            raise BadInput(f"{table.file}: no column is called '{own}' in its first row, which has {found}")
    chosen = [tuple(row[places[name]] for name in wanted) for row in table.rows]
    yield from full_rows(table.file, list(zip(table.lines, chosen, strict=True)), wanted)


def full_rows(file: Path, rows: Rows, names: Sequence[str], quiet: bool = False) -> Rows:
    """Return the rows without an empty cell; unless `quiet`, a line is logged about those that are left out."""
    empty = [(number, names[cells.index("")]) for number, cells in rows if not all(cells)]
    if not empty:
        return rows
    number, name = empty[0]
    if len(empty) == len(rows):
        raise BadInput(f"{file}, line {number}: {name} is empty")
    more = f", and {len(empty) - 1:,} more like it" if len(empty) > 1 else ""
    if not quiet:
        _warn_once(f"left out line {number} of {file}: {name} is empty{more}")
    return [(number, cells) for number, cells in rows if all(cells)]


@cache
def _warn_once(line: str) -> None:
    log.warning(line)  # a run reads its table several times


def read_text(file: Path) -> str:
    """Return a text file (.gz too), UTF-8, or UTF-16 with its mark; a line feed ends its lines, whatever did."""
    try:
        content = file.read_bytes()
        if file.name.lower().endswith(".gz"):
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(f"cannot read {file}: {error}") from None
    # as Excel writes "Unicode text"
    is_utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and b"\0" in content
    try:
        text = content.decode("utf-16" if is_utf16 else "utf-8-sig")  # without the mark, which some editors write too
    except UnicodeDecodeError as error:
        if is_utf16:
            raise BadInput(f"cannot read {file}: it begins as UTF-16 and is not; save it as UTF-8") from None
        line = content.count(b"\n", 0, error.start) + 1
        raise BadInput(
            f"cannot read {file}: byte {error.object[error.start]:#04x} in line {line} is not UTF-8; save it as UTF-8"
        ) from None
    text = text.replace("\r\n", "\n")
    return text if "\n" in text else text.replace("\r", "\n")


def read_lines(file: Path) -> list[str]:
    """Return the lines of a text file; only a line feed ends one (not other Unicode line breaks)."""
    text = read_text(file)
    return text.removesuffix("\n").split("\n") if text else []
