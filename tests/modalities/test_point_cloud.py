"""Point clouds from files, arrays and JSON: the same points whatever the format, or one sentence that says why not."""

import base64
import struct

import numpy as np
import pytest
import torch

from regard.core.errors import BadInput
from regard.modalities import Limits, PointCloud, PointPreprocess

POINTS = [[0.0, 0.5, -1.0], [2.0, 1.0, 0.25], [-3.0, 0.0, 4.0]]


def ply(kind, more=""):
    names = "property float x\nproperty float y\nproperty float z\n"
    head = f"ply\nformat {kind} 1.0\ncomment made by hand\n{more}element vertex 3\nproperty uchar red\n{names}"
    return f"{head}element face 1\nproperty list uchar int vertex_index\nend_header\n".encode()


def files():
    rows = "\n".join(" ".join(map(str, row)) for row in POINTS)
    binary = {"<": "binary_little_endian", ">": "binary_big_endian"}
    array = np.lib.format.header_data_from_array_1_0(np.array(POINTS))
    import io

    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, array)
    yield "npy", file.getvalue() + np.array(POINTS).tobytes()
    yield "ply", ply("ascii") + "\n".join(f"7 {row}" for row in rows.split("\n")).encode() + b"\n3 0 1 2\n"
    for order, name in binary.items():
        data = b"".join(struct.pack(f"{order}Bfff", 7, *row) for row in POINTS)
        yield name, ply(name) + data + struct.pack(f"{order}Biii", 3, 0, 1, 2)
        other = "element edge 2\nproperty int a\nproperty double b\n"
        yield name + " after others", ply(name, other) + bytes(24) + data
    yield "off", f"OFF\n# a comment\n3 1 0\n{rows}\n3 0 1 2\n".encode()
    yield "off in one line", f"OFF3 1 0\n{rows}\n3 0 1 2\n".encode()
    yield "off with colours", b"COFF\r\n3 0 0\r\n" + "".join(f"{r} 1 1 1 1\r\n" for r in rows.split("\n")).encode()
    vertices = "\n".join(f"v {row}" for row in rows.split("\n"))
    yield "obj", f"# made by hand\nmtllib a.mtl\no thing\n{vertices}\nvn 0 0 1\nf 1//1 2//1 3//1\n".encode()
    yield "xyz", rows.encode()
    yield "xyz with normals", "\n".join(f"{row} 0 0 1" for row in rows.split("\n")).encode()
    yield "commas", rows.replace(" ", ", ").encode()


FILES = dict(files())


@pytest.mark.parametrize("name", FILES)
def test_every_format_gives_the_same_points(name, tmp_path):
    expected = torch.tensor(POINTS)
    (path := tmp_path / "cloud").write_bytes(FILES[name])
    assert torch.equal(PointCloud.read(FILES[name]).points, expected)
    assert torch.equal(PointCloud.read(path).points, expected)
    assert torch.equal(PointCloud.from_json(base64.b64encode(FILES[name]).decode()).points, expected)


def test_arrays_tensors_and_json_are_read():
    for given in (np.array(POINTS), torch.tensor(POINTS), POINTS, PointCloud.read(POINTS)):
        assert PointCloud.is_single(given)
        assert PointCloud.read(given).to_json() == POINTS
    assert not PointCloud.is_single([POINTS, POINTS])
    assert not PointCloud.is_single(["a.ply", "b.ply"])
    assert str(PointCloud.read(POINTS)) == "3 points: x -3 to 2, y 0 to 1, z -1 to 4"


def test_repeated_points_are_dropped_and_the_order_stays():
    assert PointCloud.read([POINTS[2], POINTS[0], POINTS[2], POINTS[1]]).to_json() == [POINTS[2], POINTS[0], POINTS[1]]


def test_map_coordinates_keep_their_differences():
    far = np.array(POINTS) * 0.01 + [4_500_000.0, 5_300_000.0, 200.0]
    found = PointCloud.read(far).points
    torch.testing.assert_close(found - found[0], 0.01 * (torch.tensor(POINTS) - torch.tensor(POINTS[0])))


BAD = {
    "empty": (np.zeros((0, 3)), "has no points"),
    "nan": ([[0, 0, 0], [0, float("nan"), 1]], "Point 2 has a coordinate that is not finite"),
    "huge": ([[0, 0, 0], [0, 1e35, 1]], "not finite"),
    "two columns": (np.zeros((4, 2)), r"shape \(4, 2\)"),
    "words": (np.array([["a", "b", "c"]]), "must be numbers"),
    "not three": ([[0, 0, 0], [1, 2]], "three numbers"),
    "too large": ([[10**400, 0, 0]], "too large"),
    "too many": (np.zeros((11, 3)), "11 points; at most 10"),
    "nothing": (None, "Expected a point cloud"),
    "no file": ("nowhere.ply", "there is no file nowhere.ply"),
    "a text": (b"The old dog\nbarks.\n", "expected three coordinates in every line, found 'The old dog'"),
    "a picture": (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "format is not known"),
    "no end": (b"ply\nformat ascii 1.0\n", "has no end"),
    "no vertices": (b"ply\nformat ascii 1.0\nend_header\n", "no element 'vertex'"),
    "no format": (b"ply\nformat binary_middle_endian 1.0\nelement vertex 1\nend_header\n", "names no format"),
    "no z": (b"ply\nformat ascii 1.0\nelement vertex 1\nproperty float x\nend_header\n1\n", "no x, y and z"),
    "unknown type": (b"ply\nformat ascii 1.0\nelement vertex 1\nproperty text x\nend_header\n", "unknown type 'text'"),
    "too many in ply": (ply("ascii").replace(b"vertex 3", b"vertex 9999999"), "9,999,999 points"),
    "short ply": (ply("binary_little_endian") + bytes(20), "3 vertices are announced and 1 are there"),
    "short ascii ply": (ply("ascii") + b"7 0 0 0", "3 vertices are announced and 1 are there"),
    "short off": (b"OFF\n5 0 0\n1 2 3\n", "5 vertices are announced and 1 lines"),
    "off without counts": (b"OFF\n", "does not say how many"),
    "obj without vertices": (b"o thing\nf 1 2 3\n", "has no points"),
    "damaged npy": (FILES["npy"][:100], "npy file is damaged"),
    "objects": (b"\x93NUMPY\x01\x00v\x00{'descr': '|O', 'fortran_order': False, 'shape': (1, 3), }\n", "npy file"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_point_cloud_is_refused_in_one_sentence(name):
    given, message = BAD[name]
    with pytest.raises(BadInput, match=message) as error:
        PointCloud.read(given, Limits(points=10))
    assert "\n" not in str(error.value)


def test_a_folder_means_its_files_and_an_empty_one_is_named(tmp_path):
    (tmp_path / "b.PLY").write_bytes(b"")
    (tmp_path / "a.xyz").write_bytes(b"")
    (tmp_path / "notes.txt").write_bytes(b"")
    assert [source.name for source in PointCloud.sources([str(tmp_path)])] == [
        str(tmp_path / "a.xyz"),
        str(tmp_path / "b.PLY"),
    ]
    (empty := tmp_path / "empty").mkdir()
    assert "no point clouds" in next(PointCloud.sources([str(empty)])).problem


def test_a_model_is_shown_a_cloud_of_radius_one_around_its_mean():
    shown, other = PointPreprocess(50), torch.randn(80, 3)
    batch, lengths = shown.batch([other * 7 + 2, POINTS])
    assert lengths.tolist() == [50, 3]
    for points, length in zip(batch, lengths, strict=True):
        torch.testing.assert_close(points[:length].mean(0), torch.zeros(3), atol=1e-6, rtol=0)
        assert points[:length].norm(dim=-1).max().item() == pytest.approx(1)
    torch.testing.assert_close(shown(other * 7 + 2), shown(other))
    assert shown.batch([])[0].shape == (0, 1, 3)
    with pytest.raises(BadInput, match="in one place"):
        shown([[1, 2, 3], [1, 2, 3]])
