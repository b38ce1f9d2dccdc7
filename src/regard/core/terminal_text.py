"""Fit text to a terminal: tables whose cells are wrapped, and documents written for wider lines.

fit_table(rows, ("name", "description", "size"), 80)
reflow(card, 80)
"""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TextIO

GAP = "  "  # between columns
MAX_FIRST, MAX_CELL = 22, 18  # the widest first column and other cell
MIN_TEXT, MIN_CELL = 24, 8  # the narrowest description and other cell
MIN_COLUMNS = 4  # of lines that are a table
SENTENCE = 30  # characters of a first cell that is no name
NARROW, NARROW_CELL = 100, 14  # a terminal of fewer characters has narrower cells
WRITTEN_WIDTH = 120  # of the lines of docstrings and cards


def terminal_width(stream: TextIO | None = None) -> int | None:
    """Return the width of the terminal that a stream (stdout) goes to; None where that is a file or another program."""
    return shutil.get_terminal_size((80, 24)).columns if (stream or sys.stdout).isatty() else None


def fit_table(
    rows: Sequence[Mapping[str, str]],
    columns: Sequence[str],
    width: int,
    text: str = "description",
    first: int = MAX_FIRST,
) -> str:
    """Return rows as a table of at most `width` characters a line; the column `text` takes what the others leave.

    A name that is too long for the first column, of at most `first` characters, has a line to itself.
    """
    if not rows:
        return ""
    cells = [{column: row.get(column, "") for column in columns} for row in [{c: c for c in columns}, *rows]]
    widths = {column: _cell_width(cells, column, first if column == columns[0] else 0, width) for column in columns}
    if text in columns:
        widths[text] = max(MIN_TEXT, text_width(rows, columns, width, text, first))
    while sum(widths.values()) + len(GAP) * (len(columns) - 1) > width and max(widths.values()) > MIN_CELL:
        widths[max(widths, key=lambda column: widths[column])] -= 1
    lines: list[str] = []
    for cell in cells:
        name = cell[columns[0]]
        if len(name) > widths[columns[0]] and " " not in name:
            lines.append(name)
            cell[columns[0]] = ""
        wrapped = {column: wrap(cell[column], widths[column]) for column in columns}
        for n in range(max(len(part) for part in wrapped.values())):
            parts = (f"{wrapped[c][n] if n < len(wrapped[c]) else '':{widths[c]}}" for c in columns)
            lines.append(GAP.join(parts).rstrip())
    return "\n".join(lines)


def text_width(
    rows: Sequence[Mapping[str, str]],
    columns: Sequence[str],
    width: int,
    text: str = "description",
    first: int = MAX_FIRST,
) -> int:
    """Return what the other columns leave of a width for the column `text`."""
    others = (
        _cell_width(rows, column, first if column == columns[0] else 0, width) for column in columns if column != text
    )
    return width - sum(others) - len(GAP) * (len(columns) - 1)


def _cell_width(rows: Sequence[Mapping[str, str]], column: str, most: int, width: int) -> int:
    longest = max(len(column), *(len(row.get(column, "")) for row in rows))
    return min(longest, most or (NARROW_CELL if width < NARROW else MAX_CELL))


def wrap(text: str, width: int, hanging: int = 0) -> list[str]:
    """Return a text as lines of at most `width` characters, at least one; words stay whole where they fit, and a number
    keeps its percent sign. `hanging`: spaces before all lines but the first, of a message, whose paths stay whole."""
    joined = re.sub(r"(?<=\d) %", "\N{NO-BREAK SPACE}%", text)
    lines = textwrap.wrap(
        joined,
        max(width, MIN_CELL),
        subsequent_indent=" " * hanging,
        break_on_hyphens=False,
        break_long_words=not hanging,
    )
    return [line.replace("\N{NO-BREAK SPACE}%", " %") for line in lines] or [""]


def reflow(text: str, width: int) -> str:
    """Return a document with lines of at most `width` characters: paragraphs, columns and tables stay what they are."""
    if width >= WRITTEN_WIDTH and max(map(len, text.splitlines()), default=0) <= width:
        return text
    return "\n".join(line for part in _paragraphs(text.splitlines()) for line in _fit(part, width))


def _paragraphs(lines: Sequence[str]) -> Iterator[list[str]]:
    """Yield the lines of a table together, and lines that were broken for want of room as one."""
    start = 0
    while start < len(lines):
        end, line = start + 1, lines[start]
        belongs = _is_markdown_row if _is_markdown_row(line) else _same_columns if _columns(line) else _continues
        while end < len(lines) and belongs(lines[end - 1], lines[end]):
            end += 1
        if belongs is _continues:
            yield [" ".join([line, *(each.strip() for each in lines[start + 1 : end])])]
        elif belongs is _same_columns and " = " in line:  # formulas below each other: no row has the columns' names
            yield from ([row] for row in lines[start:end])
        else:
            yield [*lines[start:end]]
        start = end


def _is_markdown_row(line: str, following: str = "|") -> bool:
    return line.startswith("|") and following.startswith("|")


def _columns(line: str) -> list[int]:
    """Return where the columns of a line of a table begin; none where they are too few to be sure."""
    found = [match.end() for match in re.finditer(r"(?<=\S) {2,}(?=\S)", line)]
    return found if len(found) >= MIN_COLUMNS - 1 else []


def _same_columns(line: str, following: str) -> bool:
    return _columns(line) == _columns(following)


def _continues(line: str, following: str) -> bool:
    """Whether a line was broken because the first word of the following one had no more room."""
    word = following.strip().split(" ")[0]
    return (
        bool(line.strip() and word)
        and len(re.findall(r"(?<=\S) {2,}(?=\S)", line)) < 2  # a name, a formula and its cost
        and not following.startswith("|")
        and not re.match(r" *\S+( \S+)? {2,}\S", following)  # a word, and what it means
        and len(following) - len(following.lstrip()) >= len(line) - len(line.lstrip())
        and len(line) + 1 + len(word) > WRITTEN_WIDTH - 1
    )


def _fit(lines: list[str], width: int) -> list[str]:
    if lines[0].startswith("|"):
        return _fit_markdown_table(lines, width)
    if len(lines) > 1:
        return lines if max(map(len, lines)) <= width else _fit_columns(lines, width)
    (part,) = lines
    if len(part) <= width:
        return [part]
    indent = len(part) - len(part.lstrip())
    columns = [found.end() for found in re.finditer(r"(?<=\S) {2,}(?=\S)", part)]
    hanging = max((at for at in columns if at <= width // 2), default=indent)
    if hanging > indent:  # the gap before the last column stays; textwrap would keep it too, but not break in it
        head, body = part[:hanging], part[hanging:]
    else:
        head, body = " " * min(indent, width // 3), part[indent:]
        hanging = len(head) + 2 if body.startswith(("- ", "* ", "$ ", "regard ")) else len(head)
    first, *rest = _wrap_cells(re.split(r" {2,}", body), width - hanging)
    return [head + first, *(" " * hanging + line for line in rest)]


def _wrap_cells(cells: Sequence[str], width: int) -> list[str]:
    """Return cells beside each other while they fit, each wrapped by itself."""
    lines: list[str] = []
    for cell in cells:
        if lines and len(lines[-1]) + len(GAP) + len(cell) <= width:
            lines[-1] += GAP + cell
        else:
            lines += wrap(cell, width)
    return lines


_CELL_END = r"(?<!\\)\|(?=(?:[^`]*`[^`]*`)*[^`]*$)"  # a bar outside of code


def _fit_markdown_table(lines: Sequence[str], width: int) -> list[str]:
    rows = [[cell.strip() for cell in re.split(_CELL_END, line.strip()[1:].removesuffix("|"))] for line in lines]
    rows = [row for row in rows if any(row) and not all(re.fullmatch(r":?-+:?", cell) for cell in row)]
    count = max(map(len, rows), default=0)
    if count < 2:
        return [line for row in rows for line in wrap(row[0], width)]
    names = [str(n) for n in range(count)]
    cells = [dict(zip(names, row + [""] * (count - len(row)), strict=True)) for row in rows]
    longest = max(names[1:], key=lambda name: max(len(cell[name]) for cell in cells))
    widest = max(len(cell["0"]) for cell in cells)
    first = MAX_FIRST if widest <= SENTENCE else width // (2 if count == 2 else count + 1) - len(GAP)
    table = fit_table(cells, names, width, longest, first).splitlines()
    return table[1:]  # without the numbers of the columns


def _fit_columns(lines: Sequence[str], width: int) -> list[str]:
    """Return a table whose lines are too long as one entry for each row: its name, then column and value in turn."""
    cells = [re.split(r" {2,}", line.strip()) for line in lines]
    indent = " " * (len(lines[0]) - len(lines[0].lstrip()))
    longest = max(len(row[0]) for row in cells)
    fitted = []
    for name, *values in cells[1:]:
        pairs = ", ".join(f"{column} {value}" for column, value in zip(cells[0][1:], values, strict=True))
        room = width - len(indent) - longest - len(GAP)
        first, *rest = wrap(pairs, room)
        fitted.append(f"{indent}{name:{longest}}{GAP}{first}")
        fitted += [f"{indent}{'':{longest}}{GAP}{line}" for line in rest]
    return fitted


def printable(text: str, kept: str = "") -> str:
    """Return a text whose characters that cannot be printed are spelled out, but for those that are `kept`: a name in a
    stranger's file may have some that drive the terminal."""
    return "".join(c if c.isprintable() or c in kept else repr(c)[1:-1] for c in text)
