"""Tables of text: .tsv, .csv, .jsonl and .parquet, the first three also as .gz.

    rows.tsv       cells between tabs; a first line that names the columns is recognised, but not needed
    rows.csv       commas and quotes; the first row names the columns
    rows.jsonl     an object a line
    rows.parquet   needs pyarrow: pip install ".[parquet]"

A table is read whole. The columns of a .tsv without a first line of names are called "1", "2", ...
"""

from __future__ import annotations

import csv
import gzip
import json
import logging
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.core.errors import BadInput

log = logging.getLogger("regard")

SUFFIXES = (".tsv", ".csv", ".jsonl", ".parquet")


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


def is_table(file: Path) -> bool:
    """Whether a file is a table by its name."""
    return suffix(file) in SUFFIXES


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
        raise BadInput(f"{file} is not a table that can be read; expected {', '.join(SUFFIXES)}")
    return Table(file, columns, tuple(row for _, row in found), tuple(number for number, _ in found))


Rows = list[tuple[int, tuple[str, ...]]]


def _read_tsv(file: Path, known: Sequence[str]) -> tuple[tuple[str, ...], Rows]:
    found: Rows = []
    for number, line in enumerate(read_lines(file), 1):
        if not line.strip():
            continue
        cells = tuple(cell.strip() for cell in line.removesuffix("\r").split("\t"))
        if found and len(cells) != len(found[0][1]):
            raise BadInput(f"{file}, line {number}: {len(cells)} columns; its first line has {len(found[0][1])}")
        found.append((number, cells))
    if not found:
        return (), found
    first = found[0][1]
    named = [cell.lower().removeprefix("\ufeff") for cell in first]
    if known and all(named) and len({*named}) == len(named) and {*named} <= {*known}:
        return tuple(named), found[1:]
    return tuple(str(n) for n in range(1, len(first) + 1)), found


def _read_csv(file: Path) -> tuple[tuple[str, ...], Rows]:
    reader = csv.reader((f"{line}\n" for line in read_lines(file)), strict=True)
    found: Rows = []
    try:
        columns = tuple(name.removeprefix("\ufeff").strip().lower() for name in next(reader, []))
        _check_columns(file, columns)
        for cells in reader:
            if not cells:  # a blank line
                continue
            if len(cells) != len(columns):
                raise BadInput(
                    f"{file}, line {reader.line_num}: {len(cells)} columns; its first row has {len(columns)}"
                )
            found.append((reader.line_num, tuple(_one_line(cell) for cell in cells)))
    except csv.Error as error:
        raise BadInput(f"{file}, line {reader.line_num}: {error}") from None
    return columns, found


def _read_jsonl(file: Path) -> tuple[tuple[str, ...], Rows]:
    columns: tuple[str, ...] = ()
    found: Rows = []
    for number, line in enumerate(read_lines(file), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise BadInput(f"{file}, line {number}: not a JSON object")
        row = {name.lower(): cell for name, cell in value.items() if isinstance(cell, (str, int, float))}
        columns = columns or tuple(row)
        if missing := [name for name in columns if name not in row]:
            raise BadInput(f"{file}, line {number}: no text or number under '{missing[0]}', which line 1 has")
        found.append((number, tuple(_one_line(str(row[name])) for name in columns)))
    return columns, found


def _read_parquet(file: Path) -> tuple[tuple[str, ...], Rows]:
    try:
        import pyarrow.parquet
    except ImportError:
        raise BadInput(f"reading {file} needs the package pyarrow: pip install pyarrow") from None
    try:
        table: Any = pyarrow.parquet.read_table(file)
    except (pyarrow.ArrowException, OSError) as error:
        raise BadInput(f"cannot read {file}: {str(error).splitlines()[0]}") from None
    data = {name.lower(): table.column(name).to_pylist() for name in table.column_names}
    usable = {name: cells for name, cells in data.items() if all(isinstance(cell, (str, int, float)) for cell in cells)}
    columns = tuple(usable)
    _check_columns(file, columns)
    rows = zip(*usable.values(), strict=True)
    return columns, [(number, tuple(_one_line(str(cell)) for cell in row)) for number, row in enumerate(rows, 1)]


def _check_columns(file: Path, columns: Sequence[str]) -> None:
    if twice := next((name for name in columns if columns.count(name) > 1), None):
        raise BadInput(f"{file}: {columns.count(twice)} columns are called '{twice}' in its first row")


def _one_line(cell: str) -> str:
    """Return a cell without line breaks: quoted cells may have some."""
    return " ".join(cell.splitlines()).strip()


def pick_columns(table: Table, wanted: Sequence[str], given: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield line numbers and the cells of some columns; `given` says which they are.

    ``"text label"`` names the columns of a file without names in order, or those of a file with names;
    ``"text=review label=stars"`` says how columns are called in the file.
    """
    names = dict(part.split("=", 1) if "=" in part else (part, part) for part in given.split())
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
            found = ", ".join(f"'{column}'" for column in table.columns) or "nothing"
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
        log.warning(f"left out line {number} of {file}: {name} is empty{more}")
    return [(number, cells) for number, cells in rows if all(cells)]


def read_lines(path: Path) -> list[str]:
    """Return the lines of a text file; only a line feed ends one (not other Unicode line breaks)."""
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
        text = content.decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read {path}: {error}") from None
    return text.removesuffix("\n").split("\n") if text else []
