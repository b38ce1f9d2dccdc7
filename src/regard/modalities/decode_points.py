"""Point clouds from files: coordinates of .ply (ASCII and binary), .off, .obj, .npy and .xyz.

The format is recognised by its contents. Of a mesh only the vertices are read; colours, normals and faces are left out.
A .npy file or a text of numbers has a point a row, its first three columns the coordinates.
"""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np

from regard.core.errors import BadInput
from regard.core.files import read_within

SUFFIXES = (".ply", ".off", ".obj", ".npy", ".xyz")
MAX_BYTES = 2**30  # of a file
MAX_HEADER = 2**16  # bytes of a .ply header
PLY_TYPES = {
    "char": "i1", "int8": "i1", "uchar": "u1", "uint8": "u1", "short": "i2", "int16": "i2", "ushort": "u2",
    "uint16": "u2", "int": "i4", "int32": "i4", "uint": "u4", "uint32": "u4", "float": "f4", "float32": "f4",
    "double": "f8", "float64": "f8",
}  # fmt: skip
PLY_FORMATS = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}


def decode_points(source: str | Path | bytes, limit: int) -> np.ndarray:
    """Return the coordinates in a file (its path or its bytes), N 3 float64; more than `limit` points are refused."""
    named = "the file" if isinstance(source, bytes) else str(source)
    content = source if isinstance(source, bytes) else read_within(Path(source), MAX_BYTES)
    try:
        if content.startswith(b"ply"):
            return _ply(content, limit)
        if content.startswith(b"\x93NUMPY"):
            return _npy(content, limit)
        if b"\0" in content[:4096]:
            raise BadInput(f"the format is not known; expected {', '.join(SUFFIXES)}")
        if re.match(rb"\s*(ST)?C?N?OFF", content[:64]):
            return _off(content, limit)
        return _text(content, limit)
    except BadInput as error:
        raise BadInput(f"{named} is not a point cloud that can be read: {error}") from None


def _check_count(count: int, limit: int) -> None:
    if count > limit:
        raise BadInput(f"it has {count:,} points; at most {limit:,} are allowed")


# -- .ply --------------------------------------------------------------------------------------------------------------


def _ply(content: bytes, limit: int) -> np.ndarray:
    end = re.search(rb"\nend_header *\r?\n", content[:MAX_HEADER])
    if end is None:
        raise BadInput("the header of the .ply file has no end")
    order, elements = _ply_header(content[: end.start()].decode("latin-1").splitlines()[1:])
    data, before = content[end.end() :], 0
    for name, count, properties in elements:
        if name == "vertex":
            break
        if any(kind == "list" for kind, _ in properties):
            raise BadInput(f"lists ('{name}') stand before the vertices, which is not supported")
        before += count if not order else count * np.dtype([(key, kind) for kind, key in properties]).itemsize
    else:
        raise BadInput("there is no element 'vertex' in the header")
    _check_count(count, limit)
    names = [key for _, key in properties]
    if not {"x", "y", "z"} <= set(names):
        raise BadInput(f"vertices have no x, y and z, but {', '.join(names) or 'nothing'}")
    if any(kind == "list" for kind, _ in properties):
        raise BadInput("vertices with lists are not supported")
    columns = [names.index(axis) for axis in "xyz"]
    if not order:
        lines = data.splitlines()[before : before + count]
        if len(lines) < count:
            raise BadInput(f"{count:,} vertices are announced and {len(lines):,} are there")
        return _rows(lines, columns)
    kind = np.dtype([(f"{n}", order + letters) for n, (letters, _) in enumerate(properties)])
    if len(data) < before + count * kind.itemsize:
        there = max(0, len(data) - before) // kind.itemsize
        raise BadInput(f"{count:,} vertices are announced and {there:,} are there")
    rows = np.frombuffer(data, kind, count, before)
    return np.stack([rows[f"{n}"].astype(np.float64) for n in columns], 1)


def _ply_header(lines: list[str]) -> tuple[str, list[tuple[str, int, list[tuple[str, str]]]]]:
    """Return the byte order ("" for ASCII), and the elements: name, number, and the type and name of each property."""
    order, elements = None, list[tuple[str, int, list[tuple[str, str]]]]()
    for line in lines:
        words = line.split()
        if words[:1] == ["format"] and len(words) > 1:
            order = PLY_FORMATS.get(words[1])
        elif words[:1] == ["element"] and len(words) == 3 and words[2].isascii() and words[2].isdigit():
            elements.append((words[1], int(words[2][:18]), []))
        elif words[:1] == ["property"] and len(words) > 2 and elements:
            if words[1] != "list" and words[1] not in PLY_TYPES:
                raise BadInput(f"the header has a property of unknown type '{words[1][:40]}'")
            elements[-1][2].append((PLY_TYPES.get(words[1], "list"), words[-1]))
        elif words and words[0] not in ("comment", "obj_info"):
            raise BadInput(f"the header has a line that is not understood: '{line[:60]}'")
    if order is None:
        raise BadInput(f"the header names no format of {', '.join(PLY_FORMATS)}")
    return order, elements


# -- the others --------------------------------------------------------------------------------------------------------


def _npy(content: bytes, limit: int) -> np.ndarray:
    try:
        array = np.load(io.BytesIO(content), allow_pickle=False)
    except (ValueError, EOFError, OSError, MemoryError, SyntaxError, TypeError) as error:
        raise BadInput(f"the .npy file is damaged or has Python objects ({str(error)[:80]})") from None
    if array.ndim != 2 or array.shape[1] < 3 or array.dtype.kind not in "fiu":
        raise BadInput(f"expected numbers of shape N x 3, got {array.dtype} of shape {array.shape}")
    _check_count(len(array), limit)
    return array[:, :3].astype(np.float64)


def _off(content: bytes, limit: int) -> np.ndarray:
    lines = _lines(content)
    counts = re.sub(rb"^(ST)?C?N?OFF", b"", lines[0]).split()  # some files have them in the first line
    counts, lines = (counts, lines[1:]) if counts else (b" ".join(lines[1:2]).split(), lines[2:])
    if not counts or not counts[0].isdigit():
        raise BadInput("the .off file does not say how many vertices it has")
    count = int(counts[0][:18])
    _check_count(count, limit)
    if len(lines) < count:
        raise BadInput(f"{count:,} vertices are announced and {len(lines):,} lines are there")
    return _rows(lines[:count], [0, 1, 2])


def _text(content: bytes, limit: int) -> np.ndarray:
    """Return the vertices of an .obj file, or the rows of a text of numbers."""
    lines = _lines(content)
    vertices = [line[1:] for line in lines if line[:2] in (b"v ", b"v\t")]
    if vertices or any(re.match(rb"(vn|vt|f|o|g|mtllib|usemtl)\s", line) for line in lines[:100]):
        lines = vertices
    _check_count(len(lines), limit)
    return _rows([line.replace(b",", b" ").replace(b";", b" ") for line in lines], [0, 1, 2])


def _lines(content: bytes) -> list[bytes]:
    """Return the lines that are not empty, without comments."""
    return [line for line in (each.partition(b"#")[0].strip() for each in content.splitlines()) if line]


def _rows(lines: list[bytes], columns: list[int]) -> np.ndarray:
    """Return some columns of lines of numbers."""
    found = np.empty((len(lines), 3))
    for n, line in enumerate(lines):
        words = line.split()
        try:
            found[n] = [float(words[column]) for column in columns]
        except (ValueError, IndexError):
            shown = line[:40].decode("latin-1").strip()
            printed = shown if shown.isprintable() else "bytes that are no text"
            raise BadInput(f"expected three coordinates in every line, found '{printed}'") from None
    return found
