"""A PP file is written by hand, field by field, and read again; what is not one is refused."""

import struct

import numpy as np
import pytest

from regard.core.errors import BadInput
from regard.data.globe.gridded import read_pp


def pp(values, packing=0, kind=1, missing=-1e30):
    integers, reals = [0] * 45, [0.0] * 19
    integers[17], integers[18], integers[20], integers[38] = *values.shape, packing, kind
    reals[13:17] = [-120.0, 60.0, -90.0, 90.0]  # the origin lies one step before the first row and column
    reals[17] = missing
    header = struct.pack(">45i19f", *integers, *reals)
    field = values.astype(">f4").tobytes()
    return b"".join(struct.pack(">i", len(part)) + part + struct.pack(">i", len(part)) for part in (header, field))


def test_a_field_is_read_with_its_places(tmp_path):
    values = np.arange(12.0).reshape(3, 4)
    values[1, 2] = -1e30
    (tmp_path / "field.pp").write_bytes(pp(values))
    field = read_pp(tmp_path / "field.pp")
    assert field.latitudes.tolist() == [-60, 0, 60]
    assert field.longitudes.tolist() == [0, 90, -180, -90]
    assert np.isnan(field.values[1, 2])
    assert np.nansum(field.values) == 66 - 6


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no PP file"),
        (b"CDF\x01" * 100, "no PP file"),
        (pp(np.zeros((3, 4)), packing=1), "packed"),
        (pp(np.zeros((3, 4)), kind=2), "packed"),
        (pp(np.zeros((3, 4)))[:-12], "ends before"),
        (pp(np.zeros((9, 4))), "beyond 90"),
        (pp(np.zeros((0, 4))), "regular grid"),
    ],
)
def test_what_is_no_plain_field_is_refused(tmp_path, data, message):
    (tmp_path / "field.pp").write_bytes(data)
    with pytest.raises(BadInput, match=message) as error:
        read_pp(tmp_path / "field.pp")
    assert "\n" not in str(error.value)
