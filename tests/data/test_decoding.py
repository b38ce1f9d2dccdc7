"""Every kind of bad and odd image has one clear outcome: an upright RGB image, or one line."""

import io
import logging
import os
import struct
import warnings
import zlib
from contextlib import suppress

import numpy as np
import pytest
from PIL import Image

from regard.core.errors import BadInput
from regard.data.decoding import decoded, every, files_in, framed, left_out, opened


def content(image, kind="PNG", **more):
    file = io.BytesIO()
    image.save(file, kind, **more)
    return file.getvalue()


def noise(y=21, x=34, seed=0):
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (y, x, 3), np.uint8))


def bomb(side):
    """A PNG of some bytes that says it is side x side pixels large."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")


@pytest.mark.parametrize("side", [10_000, 20_000])
def test_an_absurdly_large_image_is_refused_before_it_is_unpacked(side):
    warnings.simplefilter("error")
    with pytest.raises(BadInput, match="pixels") as error:
        decoded(bomb(side))
    assert "allowed" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
@pytest.mark.parametrize("part", [0.0, 0.02, 0.5, 0.9])
def test_a_file_that_is_cut_off_is_refused(kind, part):
    whole = content(noise(64, 64), kind)
    if kind == "GIF" and part == 0.9:
        pytest.skip("Pillow takes what is missing at the end for the background")
    with pytest.raises(BadInput, match="cannot be read as an image") as error:
        decoded(whole[: int(part * len(whole))])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("junk", [b"", b"hello", b"\x00" * 5000, b"GIF89a", b"\xff\xd8\xff\xe0" + b"\x11" * 300])
def test_what_is_no_image_is_refused(junk):
    with pytest.raises(BadInput, match="cannot be read as an image"):
        decoded(junk)


def test_damage_in_the_middle_never_escapes_as_anything_but_bad_input():
    whole, dice = content(noise(40, 40), "PNG"), np.random.default_rng(1)
    for _ in range(60):
        broken = bytearray(whole)
        for place in dice.integers(8, len(whole), 3):
            broken[place] = dice.integers(256)
        with suppress(BadInput):
            assert decoded(bytes(broken)).mode == "RGB"


def test_one_pixel_is_an_image_and_fills_the_frame():
    image = decoded(content(Image.new("RGB", (1, 1), (10, 200, 30))))
    assert np.unique(np.asarray(framed(image, (7, 9))).reshape(-1, 3), axis=0).tolist() == [[10, 200, 30]]
    assert framed(image, (7, 9)).size == (9, 7)


@pytest.mark.parametrize(("size", "shape"), [((1, 500), (32, 32)), ((500, 1), (32, 32)), ((3, 2), (5, 11))])
def test_images_of_extreme_shape_fill_the_frame(size, shape):
    assert framed(Image.new("RGB", size), shape, crop=0.875).size == shape[::-1]


def test_cmyk_is_rgb():
    image = decoded(content(Image.new("CMYK", (6, 4), (0, 255, 255, 0)), "TIFF"))
    assert image.getpixel((2, 2)) == (255, 0, 0)


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_sixteen_bits_are_scaled_and_not_cut_off(kind):
    ramp = np.linspace(0, 65535, 48).astype(np.uint16).reshape(6, 8)
    shown = np.asarray(decoded(content(Image.fromarray(ramp), kind)))[..., 0]
    assert np.abs(shown.astype(int) - ramp / 257).max() <= 0.5
    dark = np.asarray(decoded(content(Image.fromarray(ramp // 300), kind)))
    assert dark.max() <= 1  # a dark image stays dark


def test_floating_point_images_are_scaled():
    for top in (1.0, 255.0):
        ramp = np.linspace(0, top, 48, dtype=np.float32).reshape(6, 8)
        shown = np.asarray(decoded(content(Image.fromarray(ramp), "TIFF")))[..., 0]
        assert np.abs(shown - ramp * 255 / top).max() <= 0.51


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_what_is_transparent_is_white(mode):
    clear = Image.new("RGBA", (4, 4), (0, 0, 0, 0)).convert(mode)
    more = {"transparency": clear.getpixel((0, 0))} if mode == "P" else {}
    assert decoded(content(clear, **more)).getpixel((1, 1)) == (255, 255, 255)


def test_of_an_animation_the_first_picture_counts():
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "green", "blue")]
    for kind in ("GIF", "WEBP"):
        more = {"lossless": True} if kind == "WEBP" else {}
        file = content(frames[0], kind, save_all=True, append_images=frames[1:], **more)
        assert decoded(file).getpixel((3, 3)) == (255, 0, 0)


@pytest.mark.parametrize("turn", range(1, 9))
def test_a_picture_turned_by_exif_is_upright(turn):
    upright = np.zeros((20, 30, 3), np.uint8)
    upright[:8, :8] = 255  # white in the corner where reading begins
    undo = {
        1: lambda a: a, 2: lambda a: a[:, ::-1], 3: lambda a: a[::-1, ::-1], 4: lambda a: a[::-1],
        5: lambda a: a.transpose(1, 0, 2), 6: lambda a: np.rot90(a, 1), 7: lambda a: a[::-1, ::-1].transpose(1, 0, 2),
        8: lambda a: np.rot90(a, -1),
    }  # fmt: skip
    stored = Image.fromarray(np.ascontiguousarray(undo[turn](upright)))
    exif = stored.getexif()
    exif[0x0112] = turn
    found = np.asarray(decoded(content(stored, "PNG", exif=exif)))
    assert np.array_equal(found, upright)
    assert np.array_equal(np.asarray(opened(Image.open(io.BytesIO(content(stored, "PNG", exif=exif))))), upright)


def test_paths_bytes_and_pictures_are_opened_alike(tmp_path):
    image = noise()
    (tmp_path / "a.png").write_bytes(content(image))
    for source in (tmp_path / "a.png", str(tmp_path / "a.png"), content(image), image):
        assert np.array_equal(np.asarray(opened(source)), np.asarray(image))
    with pytest.raises(BadInput, match=r"cannot read .*b\.png: no such file"):
        opened(tmp_path / "b.png")
    with pytest.raises(BadInput, match="cannot read"):
        opened(tmp_path)
    with pytest.raises(BadInput, match="a int is no image"):
        opened(7)


def test_the_frame_is_the_middle_as_timm_cuts_it():
    pytest.importorskip("timm")
    from timm.data import create_transform

    image = noise(97, 140)
    theirs = create_transform((3, 64, 64), is_training=False, crop_pct=0.875, interpolation="bicubic")
    frame = theirs.transforms[1](theirs.transforms[0](image))
    assert np.array_equal(np.asarray(framed(image, (64, 64), 0.875)), np.asarray(frame))


def test_files_that_cannot_be_read_are_counted_and_named(tmp_path):
    for number in range(4):
        (tmp_path / f"{number}.png").write_bytes(content(noise(seed=number)))
    for name in ("bad.jpg", "empty.PNG", "z.webp", "zz.gif"):
        (tmp_path / name).write_bytes(b"no image")
    (tmp_path / "notes.txt").write_text("not looked at")
    paths = files_in(tmp_path)
    assert len(paths) == 8
    good, skipped = every(paths, lambda image: np.asarray(image))
    assert [number for number, _ in good] == [0, 1, 2, 3]
    (tmp_path / "gone.png").symlink_to("nowhere")
    skipped |= every([tmp_path / "gone.png"], lambda image: np.asarray(image))[1]
    *named, count = left_out(skipped, 9)
    assert count == "5 of 9 images cannot be read and are left out"
    assert named[0].startswith(
        f"left out {tmp_path / 'bad.jpg'}: cannot be read as an image (it is none of JPEG, PNG, "
    )
    assert named[4] == f"left out {tmp_path / 'gone.png'}: no such file or directory"
    assert len(list(left_out(skipped, 9, show=2))) == 3


def test_what_is_wrong_with_a_file_is_said(monkeypatch):
    with pytest.raises(BadInput, match=r"\(the file is empty\)"):
        decoded(b"")
    with pytest.raises(BadInput, match=r"none of JPEG, PNG, .*, or its beginning is damaged"):
        decoded(b"hello")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    for side, size in ((40, "40 x 40"), (50, "2,500")):  # above the limit, and where Pillow itself refuses
        with pytest.raises(BadInput, match=f"{size} pixels are more than the 1,000 that are allowed; scale it down"):
            decoded(content(Image.new("L", (side, side))))


def test_what_is_no_file_and_what_is_far_too_large_is_never_read(tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(BadInput, match=r"pipe\.png is no file but a pipe or a device; save the image in a file first"):
        opened(tmp_path / "pipe.png")
    with open(tmp_path / "hole.png", "wb") as file:
        file.truncate(2**31)
    with pytest.raises(BadInput, match=r"hole\.png has 2\.0 GiB, more than the 1 GiB"):
        opened(tmp_path / "hole.png")
    with pytest.raises(BadInput, match=r"cannot read .*: is a directory"):
        opened(tmp_path)
    with pytest.raises(BadInput, match=r"cannot read a.*b: embedded null"):
        opened("a\0b")


def test_links_that_lead_nowhere_and_closed_folders_are_named(tmp_path, monkeypatch, caplog):
    (tmp_path / "a.png").write_bytes(content(noise()))
    (tmp_path / "gone.png").symlink_to(tmp_path / "nowhere.png")
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "closed").mkdir()
    paths = files_in(tmp_path)
    assert [path.name for path in paths] == ["a.png", "gone.png"]
    _, skipped = every(paths, lambda image: np.asarray(image))
    assert [path.name for path in skipped] == ["gone.png"]
    look = os.scandir

    def refused(path):
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return look(path)

    monkeypatch.setattr(os, "scandir", refused)
    with caplog.at_level(logging.WARNING, "regard"):
        assert files_in(tmp_path) == paths
        assert f"cannot look into {tmp_path / 'closed'}: permission denied; it is left out" in caplog.text
        caplog.clear()
        assert files_in(tmp_path, quiet=True) == paths
        assert not caplog.text
