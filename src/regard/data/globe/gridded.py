"""Gridded weather: one field on a grid of latitudes and longitudes, read from the Met Office's PP format.

    read_pp("pre-industrial.pp")     145 x 192 cells: mean air temperature at 1.5 m, in kelvin

A PP file holds records as Fortran writes them: a length, the bytes, the length again; numbers are big-endian. The
header has 45 integers and 19 reals; from them come the grid's size, origin and steps. Only unpacked real fields on
regular grids are read, and only the first of a file.

The package iris-sample-data (Open Government Licence) has some; `sample_file` finds them where it is installed. Nothing
of it is imported.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from regard.core.errors import BadInput

HEADER = 64  # words of four bytes: 45 integers, then 19 reals
REAL = 1  # the type of a field of reals


@dataclass(frozen=True, eq=False)
class GriddedField:
    """Values on a grid: rows of latitudes, columns of longitudes, in degrees; NaN where there is none."""

    values: np.ndarray  # Y X
    latitudes: np.ndarray  # Y
    longitudes: np.ndarray  # X, -180 to 180


def read_pp(path: str | Path) -> GriddedField:
    """Return the first field of a PP file."""
    data = Path(path).read_bytes()
    start = 4 + 4 * HEADER + 4  # of the second record
    if len(data) < start + 4 or int.from_bytes(data[:4], "big") != 4 * HEADER:
        raise BadInput(f"{path} is no PP file: its first record must be a header of {4 * HEADER} bytes")
    integers, reals = np.frombuffer(data, ">i4", 45, 4), np.frombuffer(data, ">f4", 19, 4 + 4 * 45)
    rows, columns, packing, kind = (int(integers[n]) for n in (17, 18, 20, 38))
    size = int.from_bytes(data[start : start + 4], "big")
    regular = min(rows, columns) > 0 and size == 4 * rows * columns
    if packing or kind != REAL or not regular:
        raise BadInput(f"{path} has a field that is packed, not of reals or on no regular grid; that is not read")
    if len(data) < start + 4 + size:
        raise BadInput(f"{path} ends before its field does")
    values = np.frombuffer(data, ">f4", rows * columns, start + 4).astype(np.float64).reshape(rows, columns)
    first_latitude, latitude_step, first_longitude, longitude_step = (float(each) for each in reals[13:17])
    latitudes = first_latitude + latitude_step * np.arange(1, rows + 1)
    longitudes = first_longitude + longitude_step * np.arange(1, columns + 1)
    if not np.abs(latitudes).max() <= 90.01 or not np.isfinite(longitudes).all():
        raise BadInput(f"{path} has latitudes beyond 90 degrees")
    missing = values == float(reals[17])
    east = (longitudes + 180) % 360 - 180
    return GriddedField(np.where(missing, np.nan, values), latitudes.clip(-90, 90), east)


def sample_file(name: str = "pre-industrial.pp") -> Path:
    """Return a file of the package iris-sample-data."""
    spec = find_spec("iris_sample_data")
    if spec is None or spec.origin is None:
        raise BadInput("the weather is in a package of its own: pip install iris-sample-data")
    path = Path(spec.origin).parent / "sample_data" / name
    if not path.is_file():
        raise BadInput(f"iris-sample-data has no file {name}")
    return path
