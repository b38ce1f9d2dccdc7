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
from regard.modalities import decode_image as image
from regard.modalities.decode_image import (
    decode_image,
    describe_skipped,
    list_image_files,
    load_images,
    open_image,
    resize_center_crop,
)


def content(image, kind="PNG", **more):
    file = io.BytesIO()
    image.save(file, kind, **more)
    return file.getvalue()


def noise(y=21, x=34, seed=0):
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (y, x, 3), np.uint8))


def png(width, height, data):
    """A PNG of so many pixels in RGB, with whatever rows in it."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")


def bomb(side):
    """A PNG of some bytes that says it is side x side pixels large."""
    return png(side, side, bytes(1000))


@pytest.mark.parametrize("side", [10_000, 20_000])
def test_an_absurdly_large_image_is_refused_before_it_is_unpacked(side):
    warnings.simplefilter("error")
    with pytest.raises(BadInput, match="pixels") as error:
        decode_image(bomb(side))
    assert "allowed" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
@pytest.mark.parametrize("part", [0.0, 0.02, 0.5, 0.9])
def test_a_file_that_is_cut_off_is_refused(kind, part):
    whole = content(noise(64, 64), kind)
    if kind == "GIF" and part == 0.9:
        pytest.skip("Pillow takes what is missing at the end for the background")
    with pytest.raises(BadInput, match="cannot be read as an image") as error:
        decode_image(whole[: int(part * len(whole))])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("junk", [b"", b"hello", b"\x00" * 5000, b"GIF89a", b"\xff\xd8\xff\xe0" + b"\x11" * 300])
def test_what_is_no_image_is_refused(junk):
    with pytest.raises(BadInput, match="cannot be read as an image"):
        decode_image(junk)


def test_damage_in_the_middle_never_escapes_as_anything_but_bad_input():
    whole, dice = content(noise(40, 40), "PNG"), np.random.default_rng(1)
    for _ in range(60):
        broken = bytearray(whole)
        for place in dice.integers(8, len(whole), 3):
            broken[place] = dice.integers(256)
        with suppress(BadInput):
            assert decode_image(bytes(broken)).mode == "RGB"


def test_one_pixel_is_an_image_and_fills_the_frame():
    image = decode_image(content(Image.new("RGB", (1, 1), (10, 200, 30))))
    assert np.unique(np.asarray(resize_center_crop(image, (7, 9))).reshape(-1, 3), axis=0).tolist() == [[10, 200, 30]]
    assert resize_center_crop(image, (7, 9)).size == (9, 7)


@pytest.mark.parametrize(("size", "shape"), [((1, 500), (32, 32)), ((500, 1), (32, 32)), ((3, 2), (5, 11))])
def test_images_of_extreme_shape_fill_the_frame(size, shape):
    assert resize_center_crop(Image.new("RGB", size), shape, crop=0.875).size == shape[::-1]


class Counted(Image.Image):
    """An image that remembers how large it was made."""

    def resize(self, size, *more, **how):
        self.most = size
        return super().resize(size, *more, **how)


@pytest.mark.parametrize("size", [(1, 60_000), (60_000, 1), (3, 2000)])
@pytest.mark.parametrize("crop", [1.0, 0.875])
def test_of_a_long_thin_image_only_the_middle_is_resized(size, crop):
    image = Image.new("RGB", size, "blue")
    ends = [(0, side) if side < 9 else (side * 4 // 9, side * 5 // 9) for side in size]
    image.paste("red", [ends[0][0], ends[1][0], ends[0][1], ends[1][1]])
    image.__class__ = Counted
    shown = resize_center_crop(image, (96, 64), crop)
    assert shown.size == image.most == (64, 96)
    assert np.unique(np.asarray(shown).reshape(-1, 3), axis=0).tolist() == [[255, 0, 0]]  # its very middle


@pytest.mark.parametrize("resample", ["bicubic", "bilinear", "lanczos"])
@pytest.mark.parametrize("size", [(9, 150), (150, 9), (40, 900)])
def test_the_middle_alone_is_what_was_cut_out_of_the_whole(size, resample, monkeypatch):
    smooth = noise(*size).resize(size[::-1], box=(0, 0, size[1] / 9, size[0] / 9))
    alone = np.asarray(resize_center_crop(smooth, (32, 32), 0.875, resample)).astype(int)
    monkeypatch.setattr(image, "MAX_RESIZE_RATIO", 10**9)
    whole = np.asarray(resize_center_crop(smooth, (32, 32), 0.875, resample)).astype(int)
    assert np.abs(alone - whole).max() <= 2


@pytest.mark.parametrize("size", [(1, 2**20 + 1), (2**20 + 1, 1)])
def test_an_absurdly_long_image_is_refused_before_it_is_unpacked(size):
    with pytest.raises(BadInput, match=r"1,048,577.* pixels are more than the 1,048,576 that a side may have; cut it"):
        decode_image(png(*size, bytes(1000)))


@pytest.mark.parametrize("depth", [1, 8, 16])
def test_a_png_whose_rows_end_too_early_is_refused_though_they_end_well(depth):
    rows = b"".join(b"\0" + bytes([200] * 64 * 3) for _ in range(64))
    assert decode_image(png(64, 64, rows)).getpixel((63, 63)) == (200, 200, 200)
    with pytest.raises(BadInput, match="the file ends too early"):
        decode_image(png(64, 64, rows[: 30 * 193]))
    dark = {1: Image.new("1", (13, 9)), 8: Image.new("RGBA", (13, 9)), 16: Image.new("I;16", (13, 9))}[depth]
    assert decode_image(content(dark)).size == (13, 9)  # nothing in its last row, and yet whole


def test_cmyk_is_rgb():
    image = decode_image(content(Image.new("CMYK", (6, 4), (0, 255, 255, 0)), "TIFF"))
    assert image.getpixel((2, 2)) == (255, 0, 0)


def test_data_behind_the_rows_of_a_png_are_not_unpacked(monkeypatch):
    """A black image of 8 x 8, so that its last row is looked at, and 64 MiB of zeros behind it."""
    unpacked, make = [], zlib.decompressobj

    class Counted:
        def __init__(self):
            self.inner = make()

        def decompress(self, *given):
            found = self.inner.decompress(*given)
            unpacked.append(len(found))
            return found

        def __getattr__(self, name):
            return getattr(self.inner, name)

    content = png(8, 8, bytes(2**26))
    monkeypatch.setattr(image.zlib, "decompressobj", Counted)
    assert decode_image(content).getextrema() == ((0, 0),) * 3
    assert sum(unpacked) == 8 * (1 + 8 * 3)


@pytest.mark.parametrize("rows", [7, 8])
def test_a_black_png_is_whole_with_its_last_row_only(rows):
    data = bytes(rows * (1 + 2**18 * 3))  # more than is unpacked at a time
    if rows == 8:
        assert decode_image(png(2**18, 8, data)).size == (2**18, 8)
    else:
        with pytest.raises(BadInput, match="the file ends too early"):
            decode_image(png(2**18, 8, data))


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_sixteen_bits_are_scaled_and_not_cut_off(kind):
    ramp = np.linspace(0, 65535, 48).astype(np.uint16).reshape(6, 8)
    shown = np.asarray(decode_image(content(Image.fromarray(ramp), kind)))[..., 0]
    assert np.abs(shown.astype(int) - ramp / 257).max() <= 0.5
    dark = np.asarray(decode_image(content(Image.fromarray(ramp // 300), kind)))
    assert dark.max() <= 1  # a dark image stays dark


@pytest.mark.parametrize("mode", ["I;16", "I", "F"])
def test_many_bits_are_scaled_some_rows_at_a_time(mode, monkeypatch):
    """Numbers of 8 bytes for all pixels at once would be gigabytes; whatever the rows, the bytes are the same."""
    values = np.random.default_rng(0).integers(-500, 70_000, (23, 7))
    values = (
        values.clip(0, 65535).astype(np.uint16) if mode == "I;16" else values.astype(np.int32 if mode == "I" else "f")
    )
    wanted = (values * (255.0 / max(65535.0, values.max()))).clip(0, 255).round().astype(np.uint8)
    for rows in (1, 5, 256):
        monkeypatch.setattr(image, "SCALE_ROWS", rows)
        assert np.array_equal(np.asarray(image.to_rgb(Image.fromarray(values)))[..., 0], wanted)


def test_sixteen_bits_take_no_more_than_a_few_bytes_a_pixel():
    import tracemalloc

    picture = Image.new("I;16", (2000, 2000))
    tracemalloc.start()
    image.to_rgb(picture)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 10 * 2000 * 2000  # of what numpy holds; 25 where all is float64 at once


def test_floating_point_images_are_scaled():
    for top in (1.0, 255.0):
        ramp = np.linspace(0, top, 48, dtype=np.float32).reshape(6, 8)
        shown = np.asarray(decode_image(content(Image.fromarray(ramp), "TIFF")))[..., 0]
        assert np.abs(shown - ramp * 255 / top).max() <= 0.51


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_what_is_transparent_is_white(mode):
    clear = Image.new("RGBA", (4, 4), (0, 0, 0, 0)).convert(mode)
    more = {"transparency": clear.getpixel((0, 0))} if mode == "P" else {}
    assert decode_image(content(clear, **more)).getpixel((1, 1)) == (255, 255, 255)


def test_of_an_animation_the_first_picture_counts():
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "green", "blue")]
    for kind in ("GIF", "WEBP"):
        more = {"lossless": True} if kind == "WEBP" else {}
        file = content(frames[0], kind, save_all=True, append_images=frames[1:], **more)
        assert decode_image(file).getpixel((3, 3)) == (255, 0, 0)


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
    found = np.asarray(decode_image(content(stored, "PNG", exif=exif)))
    assert np.array_equal(found, upright)
    assert np.array_equal(np.asarray(open_image(Image.open(io.BytesIO(content(stored, "PNG", exif=exif))))), upright)


def test_paths_bytes_and_pictures_are_opened_alike(tmp_path):
    image = noise()
    (tmp_path / "a.png").write_bytes(content(image))
    for source in (tmp_path / "a.png", str(tmp_path / "a.png"), content(image), image):
        assert np.array_equal(np.asarray(open_image(source)), np.asarray(image))
    with pytest.raises(BadInput, match=r"cannot read .*b\.png: no such file"):
        open_image(tmp_path / "b.png")
    with pytest.raises(BadInput, match="cannot read"):
        open_image(tmp_path)
    with pytest.raises(BadInput, match="a int is no image"):
        open_image(7)


def test_the_frame_is_the_middle_as_timm_cuts_it():
    pytest.importorskip("timm")
    from timm.data import create_transform

    image = noise(97, 140)
    theirs = create_transform((3, 64, 64), is_training=False, crop_pct=0.875, interpolation="bicubic")
    frame = theirs.transforms[1](theirs.transforms[0](image))
    assert np.array_equal(np.asarray(resize_center_crop(image, (64, 64), 0.875)), np.asarray(frame))


HEIC = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(50)
JP2 = b"\0\0\0\x0cjP  \r\n\x87\n" + bytes(50)


def test_pictures_of_formats_that_are_not_read_say_so():
    for file, name in (
        (HEIC, "HEIC"),
        (JP2, "JPEG 2000"),
        (b"\0\0\1\0\1\0\x10\x10", "ICO"),
        (b"8BPS\0\1", "Photoshop"),
    ):
        assert image.image_format(file) == name
        with pytest.raises(
            BadInput, match=rf"cannot be read as an image \({name} is not read here; save it as JPEG or"
        ):
            decode_image(file)
    for text in (b"", b"hello", b"BMW is a car", b"P6 and P5", b"RIFF....WAVE", b"\0\0\0\x18ftypmp42"):
        assert image.image_format(text) is None


def test_avif_is_read_where_pillow_reads_it():
    from PIL import features

    if "avif" not in features.modules or not features.check("avif"):
        pytest.skip("this Pillow has no AVIF")
    found = decode_image(content(Image.new("RGB", (32, 20), (200, 30, 60)), "AVIF"))
    assert found.size == (32, 20)
    assert np.abs(np.asarray(found.getpixel((9, 9))).astype(int) - (200, 30, 60)).max() < 8


def test_in_a_folder_pictures_are_known_by_their_endings_or_beginnings_and_the_rest_is_passed_over(tmp_path):
    for name in ("a.jpg", "b.JFIF", "noext", "c.dat", ".hidden.jpg", "._d.jpg"):
        (tmp_path / name).write_bytes(content(noise(), "JPEG"))
    for name in ("e.heic", "f.JP2", "g.ico", "h"):
        (tmp_path / name).write_bytes(HEIC)
    for name in ("notes.txt", ".DS_Store", "Thumbs.db", "README", "empty"):
        (tmp_path / name).write_bytes(b"" if name == "empty" else b"no picture\0")
    os.mkfifo(tmp_path / "pipe")
    paths = list_image_files(tmp_path)
    assert [path.name for path in paths] == ["a.jpg", "b.JFIF", "c.dat", "e.heic", "f.JP2", "g.ico", "h", "noext"]
    good, skipped = load_images(paths, lambda image: np.asarray(image))
    assert [paths[number].name for number, _ in good] == ["a.jpg", "b.JFIF", "c.dat", "noext"]
    assert [path.name for path in skipped] == ["e.heic", "f.JP2", "g.ico", "h"]
    assert all("HEIC is not read here" in why for why in skipped.values())


def test_files_that_cannot_be_read_are_counted_and_named(tmp_path):
    for number in range(4):
        (tmp_path / f"{number}.png").write_bytes(content(noise(seed=number)))
    for name in ("bad.jpg", "empty.PNG", "z.webp", "zz.gif"):
        (tmp_path / name).write_bytes(b"no image")
    (tmp_path / "notes.txt").write_text("not looked at")
    paths = list_image_files(tmp_path)
    assert len(paths) == 8
    good, skipped = load_images(paths, lambda image: np.asarray(image))
    assert [number for number, _ in good] == [0, 1, 2, 3]
    (tmp_path / "gone.png").symlink_to("nowhere")
    skipped |= load_images([tmp_path / "gone.png"], lambda image: np.asarray(image))[1]
    *named, count = describe_skipped(skipped, 9)
    assert count == "5 of 9 images cannot be read and are left out"
    assert named[0].startswith(
        f"left out {tmp_path / 'bad.jpg'}: cannot be read as an image (it is none of JPEG, PNG, "
    )
    assert named[4] == f"left out {tmp_path / 'gone.png'}: no such file or directory"
    assert len(list(describe_skipped(skipped, 9, show=2))) == 3


def test_what_is_wrong_with_a_file_is_said(monkeypatch):
    with pytest.raises(BadInput, match=r"\(the file is empty\)"):
        decode_image(b"")
    with pytest.raises(BadInput, match=r"none of JPEG, PNG, .*, or its beginning is damaged"):
        decode_image(b"hello")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    for side, size in ((40, "40 x 40"), (50, "2,500")):  # above the limit, and where Pillow itself refuses
        with pytest.raises(BadInput, match=f"{size} pixels are more than the 1,000 that are allowed; scale it down"):
            decode_image(content(Image.new("L", (side, side))))


def test_what_is_no_file_and_what_is_far_too_large_is_never_read(tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(BadInput, match=r"pipe\.png is no file but a pipe or a device; save the image in a file first"):
        open_image(tmp_path / "pipe.png")
    with open(tmp_path / "hole.png", "wb") as file:
        file.truncate(2**31)
    with pytest.raises(BadInput, match=r"hole\.png has 2\.0 GiB, more than the 1 GiB"):
        open_image(tmp_path / "hole.png")
    with pytest.raises(BadInput, match=r"cannot read .*: is a directory"):
        open_image(tmp_path)
    with pytest.raises(BadInput, match=r"cannot read a.*b: embedded null"):
        open_image("a\0b")


def test_links_that_lead_nowhere_and_closed_folders_are_named(tmp_path, monkeypatch, caplog):
    (tmp_path / "a.png").write_bytes(content(noise()))
    (tmp_path / "gone.png").symlink_to(tmp_path / "nowhere.png")
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "closed").mkdir()
    paths = list_image_files(tmp_path)
    assert [path.name for path in paths] == ["a.png", "gone.png"]
    _, skipped = load_images(paths, lambda image: np.asarray(image))
    assert [path.name for path in skipped] == ["gone.png"]
    look = os.scandir

    def refused(path):
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return look(path)

    monkeypatch.setattr(os, "scandir", refused)
    with caplog.at_level(logging.WARNING, "regard"):
        assert list_image_files(tmp_path) == paths
        assert f"cannot list {tmp_path / 'closed'}: permission denied; it is skipped" in caplog.text
        caplog.clear()
        assert list_image_files(tmp_path, quiet=True) == paths
        assert not caplog.text
