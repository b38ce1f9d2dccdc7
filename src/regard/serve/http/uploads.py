"""Bodies of requests: JSON, and forms with files, which are not decoded here."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request

from regard.serve.http.errors import ApiError
from regard.serve.http.settings import Settings

MAX_FORM_FIELDS, MAX_FIELD_BYTES = 16, 64 * 1024  # text fields of a form


def media_type(request: Request) -> str:
    """Return the media type of a request's body, in lower case and without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read_json(request: Request) -> Any:
    """Return the parsed JSON body of a request."""
    if media_type(request) != "application/json":
        raise ApiError(415, "Expected JSON, with Content-Type: application/json.")
    try:
        return json.loads(await request.body())
    except (ValueError, RecursionError):
        raise ApiError(400, "The body is not valid JSON.") from None


async def read_form(request: Request, max_files: int) -> tuple[dict[str, list[bytes]], dict[str, str]]:
    """Return the files of a form by the names of their parts, and its text fields."""
    files: dict[str, list[bytes]] = {}
    fields: dict[str, str] = {}
    form = request.form(max_files=max_files, max_fields=MAX_FORM_FIELDS, max_part_size=MAX_FIELD_BYTES)
    async with form as parts:
        for name, part in parts.multi_items():
            if isinstance(part, str):
                fields[name] = part
            else:
                files.setdefault(name, []).append(await part.read())
    return files, fields


async def read_file(request: Request) -> tuple[bytes, dict[str, str]]:
    """Return the one file of a form, and its text fields."""
    files, fields = await read_form(request, Settings.max_files)
    found = [content for each in files.values() for content in each]
    if not found or not all(found):
        raise ApiError(422, "The request has no file, or an empty one.", "file")
    if len(found) > 1:
        raise ApiError(422, "Upload one file at a time.", "file")
    return found[0], fields
