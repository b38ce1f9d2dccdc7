"""Files that a client sends: as the body itself, or as the part "file" of a form. Checked before they are unpacked.

A picture says how many pixels it has before they are read, a sound is read no further than it may go: a file of some
kilobytes can hold gigabytes of either.
"""

from __future__ import annotations

import io
import json
import warnings
from typing import Any

from starlette.requests import Request

from regard.core.errors import BadInput
from regard.data.decoding import FORMATS
from regard.serve.errors import Wrong
from regard.serve.settings import Settings

MOST = 8  # files in one request


def media(request: Request) -> str:
    """What kind of body a request has."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def files(request: Request, kinds: tuple[str, ...]) -> tuple[list[bytes], dict[str, str]]:
    """The files of a request and the other fields of its form."""
    kind = media(request)
    if kind == "multipart/form-data":
        async with request.form(max_files=MOST, max_fields=16, max_part_size=64 * 1024) as form:
            found = [await part.read() for _, part in form.multi_items() if not isinstance(part, str)]
            fields = {name: part for name, part in form.multi_items() if isinstance(part, str)}
    elif kind.startswith(kinds) or kind == "application/octet-stream":
        found, fields = [await request.body()], dict(request.query_params)
    else:
        raise Wrong(415, f"send {' or '.join(f'{k}...' for k in kinds)}, or a form (multipart/form-data) with a file")
    if not found or not all(found):
        raise Wrong(422, "there is no file in this request, or an empty one", "file")
    return found, fields


async def body(request: Request) -> Any:
    """The JSON of a request."""
    if media(request) != "application/json":
        raise Wrong(415, "send JSON, with Content-Type: application/json")
    try:
        return json.loads(await request.body())
    except (ValueError, RecursionError):
        raise Wrong(400, "the body is not JSON") from None


def picture(content: bytes, settings: Settings) -> bytes:
    """The bytes of a picture that is not too large to be unpacked."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(content), formats=FORMATS) as image:
                many = image.width * image.height
    except Exception:  # decoders raise whatever they come across
        raise BadInput("the file cannot be read as a picture; send JPEG, PNG, WebP, GIF, BMP or TIFF") from None
    if many > settings.pixels:
        raise BadInput(f"the picture has {many:,} pixels, more than the {settings.pixels:,} that are allowed")
    return content
