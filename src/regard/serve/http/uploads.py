"""Files that a client sends: as the body itself, or as the part "file" of a form. Checked before they are unpacked.

A picture says how many pixels it has before they are read, a sound is read no further than it may go: a file of some
kilobytes can hold gigabytes of either.
"""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request

from regard.core.errors import BadInput
from regard.modalities import decode_image as image
from regard.serve.http.errors import ApiError
from regard.serve.http.settings import Settings

MAX_FILES = 8  # files in one request


def media_type(request: Request) -> str:
    """What kind of body a request has."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read_files(request: Request, kinds: tuple[str, ...]) -> tuple[list[bytes], dict[str, str]]:
    """The files of a request and the other fields of its form."""
    kind = media_type(request)
    if kind == "multipart/form-data":
        async with request.form(max_files=MAX_FILES, max_fields=16, max_part_size=64 * 1024) as form:
            found = [await part.read() for _, part in form.multi_items() if not isinstance(part, str)]
            fields = {name: part for name, part in form.multi_items() if isinstance(part, str)}
    elif kind.startswith(kinds) or kind == "application/octet-stream":
        found, fields = [await request.body()], dict(request.query_params)
    else:
        raise ApiError(
            415, f"send {' or '.join(f'{k}...' for k in kinds)}, or a form (multipart/form-data) with a file"
        )
    if not found or not all(found):
        raise ApiError(422, "there is no file in this request, or an empty one", "file")
    return found, fields


async def read_json(request: Request) -> Any:
    """The JSON of a request."""
    if media_type(request) != "application/json":
        raise ApiError(415, "send JSON, with Content-Type: application/json")
    try:
        return json.loads(await request.body())
    except (ValueError, RecursionError):
        raise ApiError(400, "the body is not JSON") from None


def check_image(content: bytes, settings: Settings, number: int = 1) -> bytes:
    """The bytes of a picture that is not too large to be unpacked; of several, the number says which is."""
    try:
        image.check_image(content, settings.max_pixels)
    except BadInput as error:
        raise BadInput(f"image {number}: {error}") from None
    return content
