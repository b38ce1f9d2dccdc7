"""Decode image files to upright RGB images, or raise `BadInput` with one line that says why not.

    rotated by EXIF                 rotated upright
    transparent, palette            over white
    CMYK, grey, one bit             as RGB
    16 bits, floating point         scaled to 8 bits
    animated                        the first frame
    truncated, damaged, empty       refused, and so are other formats than a few (none of which runs a program)
    too many pixels, too long       refused before decompression: a file of some kB may have 400 million pixels

A model gets the centre crop: the shorter side is resized to size / crop, then size x size is cropped; or both sides
are resized, or the longer one is and the rest is a border (`center_crop_layout`). Of a very long and thin image only
the middle is resized.

A file in a folder is an image by its suffix, or, if that is unknown, by its first bytes. So unreadable images are
reported by name, and notes and hidden files are ignored.
"""

from __future__ import annotations

import io
import logging
import math
import os
import re
import stat
import struct
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.core.errors import BadInput, shorten

if TYPE_CHECKING:
    from PIL.Image import Image

log = logging.getLogger("regard")

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM", "AVIF")  # none that calls another program
SUFFIXES = (  # of formats that are read
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".apng", ".webp", ".bmp", ".dib", ".gif", ".tif", ".tiff"),
    *(".ppm", ".pgm", ".pbm", ".pnm", ".avif"),
)
UNSUPPORTED_SUFFIXES = (  # of images that are not read: refused by name, and never taken for text
    *(".heic", ".heif", ".hif", ".jp2", ".j2k", ".jpx", ".jxl", ".jxr", ".ico", ".icns", ".psd", ".xcf", ".tga"),
    *(".svg", ".eps", ".pcx", ".dds", ".exr", ".qoi", ".dng", ".cr2", ".cr3", ".nef", ".arw", ".orf", ".rw2", ".raf"),
)
MAGIC_NUMBERS = {  # first bytes by format; BMP and PPM have two letters only, which a text may begin with
    "JPEG": (b"\xff\xd8\xff",),
    "PNG": (b"\x89PNG",),
    "GIF": (b"GIF87a", b"GIF89a"),
    "TIFF": (b"II*\0", b"MM\0*"),
    "JPEG 2000": (b"\0\0\0\x0cjP  ", b"\xff\x4f\xff\x51"),
    "JPEG XL": (b"\0\0\0\x0cJXL ",),
    "ICO": (b"\0\0\1\0",),
    "Photoshop": (b"8BPS",),
    "SVG": (b"<svg",),
}
FTYP_BRANDS = {"AVIF": (b"avif", b"avis"), "HEIC": (b"heic", b"heix", b"hevc", b"heim", b"heis", b"mif1", b"msf1")}
MAX_FILE_BYTES = 2**30  # bytes of a file
MAX_SIDE = 2**20  # pixels of a side: every row costs memory of its own
MAX_RESIZE_RATIO = 16  # of the resized image to the crop; above it only the middle is resized
SCALE_ROWS = 256  # rows scaled to 8 bits at a time
DECODER_ERRORS = {  # part of a decoder's message: what to say instead
    "cannot identify": f"it is none of {', '.join(FORMATS)}, or its beginning is damaged",
    "truncat": "the file ends too early: it was not copied whole",
    "could not create decoder": "it is damaged, or ends too early",
    "broken data": "it is damaged",
    "max_text_chunk": "the text in it is far too long",
}
RESAMPLE = ("bicubic", "bilinear", "nearest", "lanczos")


def decode_image(content: bytes, small: bool = False) -> Image:
    """Return the upright RGB image of a file's bytes; `small`: at an eighth of its size where that is faster."""
    from PIL import ImageOps

    with _open(content) as image:
        if small:
            image.draft("RGB", (max(1, image.width // 8), max(1, image.height // 8)))
        image.load()
        if image.format == "PNG" and _blank(image) and _ends_early(content):
            raise BadInput(f"cannot be read as an image ({DECODER_ERRORS['truncat']})")
        return to_rgb(ImageOps.exif_transpose(image))


def check_image(content: bytes, most: int) -> None:
    """Raise `BadInput` for bytes that are no image, or one of more than `most` pixels."""
    with _open(content, most):
        pass


@contextmanager
def _open(content: bytes, most: int | None = None) -> Iterator[Image]:
    """Open an image without reading its pixels; any error, also while they are read, becomes a `BadInput`."""
    from PIL import Image

    allowed = min(most or 2**31, Image.MAX_IMAGE_PIXELS or 2**31)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # such an image is refused here
            with Image.open(io.BytesIO(content), formats=_formats()) as image:
                if image.width * image.height > allowed:  # Pillow itself refuses from twice its limit on
                    raise BadInput(_too_large(f"{image.width:,} x {image.height:,}", allowed))
                if max(image.size) > MAX_SIDE:
                    longest = f"more than the {MAX_SIDE:,} that a side may have; cut it up first"
                    raise BadInput(f"{image.width:,} x {image.height:,} pixels are {longest}")
                yield image
    except BadInput:
        raise
    except Image.DecompressionBombError as error:  # its message has the number of pixels
        found = re.search(r"\((\d+) pixels\)", str(error))
        raise BadInput(_too_large(f"{int(found[1]):,}" if found else "its", allowed)) from None
    except Exception as error:  # decoders raise all kinds of errors
        raise BadInput(f"cannot be read as an image ({_explain_error(error, content)})") from None


def _blank(image: Image) -> bool:
    """Whether the last row of an image is all zero, as Pillow leaves it if the file ends before it."""
    last: Any = image.crop((0, image.height - 1, image.width, image.height)).getextrema()
    return not np.any(last)


def _ends_early(content: bytes) -> bool:
    """Whether a PNG that is not interlaced has fewer rows than its header says, which Pillow does not report.

    No more is unpacked than the image needs: what follows it may be gigabytes.
    """
    width, height, depth, colour, interlaced = struct.unpack(">IIBB2xB", content[16:29])
    if interlaced:
        return False
    missing = height * (1 + (width * depth * {2: 3, 4: 2, 6: 4}.get(colour, 1) + 7) // 8)
    at, unpack = 8, zlib.decompressobj()
    while at + 8 <= len(content):
        size, name = struct.unpack(">I4s", content[at : at + 8])
        packed = content[at + 8 : at + 8 + size] if name == b"IDAT" else b""
        while packed:
            missing -= len(unpack.decompress(packed, min(missing, 2**20)))
            if missing <= 0:
                return False
            packed = unpack.unconsumed_tail
        at += size + 12
    return len(unpack.flush()) < missing  # a few bytes: all that was put in has been taken


def _formats() -> list[str]:
    """Return the formats that this Pillow can read."""
    from PIL import features

    return [each for each in FORMATS if each != "AVIF" or ("avif" in features.modules and features.check("avif"))]


def image_format(begins: bytes) -> str | None:
    """Return the format of an image by the first 12 bytes of its file; None if unknown."""
    if begins[4:8] == b"ftyp":
        return next((name for name, brands in FTYP_BRANDS.items() if begins[8:12] in brands), None)
    if begins[:4] == b"RIFF" and begins[8:12] == b"WEBP":
        return "WEBP"
    return next((name for name, starts in MAGIC_NUMBERS.items() if begins.startswith(starts)), None)


def _explain_error(error: Exception, content: bytes) -> str:
    """Return a plain explanation of a decoder's error."""
    first = (str(error).splitlines() or [type(error).__name__])[0]
    if not content:
        return "the file is empty"
    if (found := image_format(content[:12])) is not None and found not in _formats():
        return f"{found} is not read here; save it as JPEG or PNG"
    for sign, meant in DECODER_ERRORS.items():
        if sign in first.lower():
            return meant
    return first


def _too_large(how: str, most: int) -> str:
    return f"{how} pixels are more than the {most:,} that are allowed; scale it down first"


def to_rgb(image: Image) -> Image:
    """Return an image of any mode in RGB: transparent parts over white, more than 8 bits scaled to 8."""
    from PIL import Image

    if image.mode == "RGB":
        image.load()
        return image
    if image.mode.startswith(("I", "F")):
        return _eight_bits(image).convert("RGB")
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        clear = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", clear.size, "white"), clear).convert("RGB")
    return image.convert("RGB")


def _eight_bits(image: Image) -> Image:
    """Return grey values as bytes; integers are of 65535, floats of the first of 1, 255, 65535 that none exceeds."""
    from PIL import Image

    values = np.asarray(image)
    # some rows at a time, since the float64 values of the whole image would take much memory
    some = [slice(at, at + SCALE_ROWS) for at in range(0, len(values), SCALE_ROWS)]
    top = max((float(np.nan_to_num(values[rows].astype(np.float64)).max(initial=0.0)) for rows in some), default=0.0)
    scales = (1.0, 255.0, 65535.0, top) if image.mode == "F" else (65535.0, top)
    scale = 255.0 / next(scale for scale in scales if top <= scale)
    shown = np.empty(values.shape, np.uint8)
    for rows in some:
        shown[rows] = (np.nan_to_num(values[rows].astype(np.float64)) * scale).clip(0, 255).round()
    return Image.fromarray(shown)


def open_image(source: Any) -> Image:
    """Return the upright RGB image of a path, of the bytes of a file, or of a PIL image."""
    from PIL import Image, ImageOps

    if isinstance(source, Image.Image):
        if not source.width * source.height:
            raise BadInput(f"an image of {source.width} x {source.height} pixels has nothing to see")
        return to_rgb(ImageOps.exif_transpose(source))
    if isinstance(source, bytes):
        return decode_image(source)
    if isinstance(source, (str, Path)):
        if not str(source).strip():
            raise BadInput(f"{str(source)!r} is no file name; give the path of an image")
        return decode_image(read_image_file(Path(source)))
    raise BadInput(f"a {type(source).__name__} is no image; give a path, the bytes of a file, or a PIL image")


def read_image_file(path: Path) -> bytes:
    """Return the bytes of an image file."""
    name = shorten(path, 300)
    try:
        path = path.expanduser()
        about = path.stat()
        if not (stat.S_ISREG(about.st_mode) or stat.S_ISDIR(about.st_mode)):  # a pipe may never end
            raise BadInput(f"{name} is no file but a pipe or a device; save the image in a file first")
        if about.st_size > MAX_FILE_BYTES:
            raise BadInput(f"{name} has {about.st_size / 2**30:.1f} GiB, more than the 1 GiB that an image may have")
        return path.read_bytes()
    except (OSError, ValueError) as error:
        why = (getattr(error, "strerror", None) or str(error)).lower()
        raise BadInput(f"cannot read {name}: {why}") from None


def resize_center_crop(
    image: Image,
    size: tuple[int, int],
    crop: float = 1.0,
    resample: str = "bicubic",
    mode: str = "center",
    fill: tuple[int, ...] = (0, 0, 0),
    rounding: str = "even",
) -> Image:
    """Return the centre crop of an image in a given size (Y, X); `fill` is the colour of a border."""
    from PIL import Image

    if resample not in RESAMPLE:
        raise BadInput(f"resample={resample}: choose one of {', '.join(RESAMPLE)}")
    (width, height), (left, top) = center_crop_layout(image.size, size, crop, mode, rounding)
    middle, how = (left, top, left + size[1], top + size[0]), Image.Resampling[resample.upper()]
    if width * height > MAX_RESIZE_RATIO * size[0] * size[1]:  # nearly the same, without resizing what is cropped away
        down, right = image.height / height, image.width / width
        ends = min(middle[2] * right, image.width), min(middle[3] * down, image.height)
        return image.resize((size[1], size[0]), how, (left * right, top * down, *ends))
    if (width, height) != image.size:
        image = image.resize((width, height), how)
    if left >= 0 and top >= 0 and width >= middle[2] and height >= middle[3]:
        return image.crop(middle)
    framed = Image.new(image.mode, (size[1], size[0]), fill)
    framed.paste(image, (-left, -top))
    return framed


def center_crop_layout(
    image_size: tuple[int, int],
    size: tuple[int, int],
    crop: float = 1.0,
    mode: str = "center",
    rounding: str = "even",
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the size (X, Y) that an image of `image_size` (X, Y) is resized to, and where the crop of `size` (Y, X)
    begins in it (left, top); below 0 it begins in a border.

    mode        center: the whole crop lies in the image      squash: each side is resized on its own
                border: the whole image lies in size / crop, and what it lacks of the crop is a border
                corner: the same, but the image lies in the top left corner
    rounding    of the beginning, where the margin is odd: to the even number, or down
    """
    high, wide = (math.floor(side / crop) for side in size)
    if mode == "corner":
        from regard.modalities.letterbox import Letterbox  # with torch, which decoding needs not

        rows, columns = Letterbox(image_size[::-1], (high, wide)).size
        return (columns, rows), (0, 0)
    if mode == "squash":
        width, height = wide, high
    elif mode == "border":
        shrink = max(image_size[0] / wide, image_size[1] / high)
        width, height = (max(1, round(side / shrink)) for side in image_size)
    elif high == wide:
        grown = max(high / image_size[1], wide / image_size[0])
        width, height = (math.floor(side * grown + 1e-6) for side in image_size)
    else:  # as timm, which rounds only here
        shrink = min(image_size[0] / wide, image_size[1] / high)
        width, height = (round(side / shrink) for side in image_size)
    if mode != "border":
        width, height = max(width, size[1]), max(height, size[0])  # rounding may have made it smaller
    left, top = (_margin(side, cut, rounding) for side, cut in ((width, size[1]), (height, size[0])))
    return (width, height), (left, top)


def _margin(side: int, cut: int, rounding: str) -> int:
    """Return where a crop begins along a side."""
    if side < cut:
        return -((cut - side) // 2)
    return round((side - cut) / 2) if rounding == "even" else (side - cut) // 2


def list_image_files(folder: Path, quiet: bool = False) -> list[Path]:
    """Return the image files in a folder and its subfolders, in order.

    Unreadable images and broken links are included, so that they can be reported by name. A folder that cannot be
    listed is named in the log, unless `quiet`.
    """

    def closed(error: OSError) -> None:
        log.log(
            logging.DEBUG if quiet else logging.WARNING,
            f"cannot list {error.filename}: {(error.strerror or str(error)).lower()}; it is skipped",
        )

    found = []
    for where, _, names in os.walk(folder, onerror=closed):
        found += [path for path in (Path(where, name) for name in names) if is_image_file(path)]
    return sorted(found)


def is_image_file(path: Path) -> bool:
    """Whether a file is an image, readable or not: by its suffix, or else by its first bytes."""
    name = path.name.lower()
    if name.startswith("."):
        return False
    if name.endswith(SUFFIXES + UNSUPPORTED_SUFFIXES):
        return path.is_file() or (path.is_symlink() and not path.exists())
    return image_format(read_magic(path)) is not None


def read_magic(path: Path, many: int = 12) -> bytes:
    """Return the first bytes of a file; none if it cannot be read."""
    try:
        if not path.is_file():
            return b""
        with path.open("rb") as file:
            return file.read(many)
    except (OSError, ValueError):
        return b""


def load_images(
    paths: Sequence[Path], make: Callable[[Image], np.ndarray], workers: int = 4
) -> tuple[list[tuple[int, np.ndarray]], dict[Path, str]]:
    """Return (number, make(image)) of every image that can be read, and the reason for every other."""

    def one(path: Path) -> np.ndarray | str:
        try:
            return make(open_image(path))
        except BadInput as error:
            return str(error)

    with ThreadPoolExecutor(workers) as pool:
        found: Iterable[np.ndarray | str] = list(pool.map(one, paths))
    good = [(number, x) for number, x in enumerate(found) if not isinstance(x, str)]
    return good, {path: x for path, x in zip(paths, found, strict=True) if isinstance(x, str)}


def describe_skipped(skipped: dict[Path, str], of: int, show: int = 10) -> Iterator[str]:
    """Yield lines that name the first files that could not be read, and their number."""
    for path, why in list(skipped.items())[:show]:
        yield f"left out {path}: {why.removeprefix(f'cannot read {path}: ')}"
    yield f"{len(skipped):,} of {of:,} images cannot be read and are left out"
