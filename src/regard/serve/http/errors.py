"""What goes wrong, as JSON: ``{"error": {"type", "message", "field"}}``, with the status that says whose turn it is.

400 malformed    401 token       404 not_found     405 method       408 slow          413 too_large
415 media_type   421 host        403 origin        422 invalid      429 busy          503 closing | full
504 late         500 internal: a bug of ours; its traceback goes to our log, never to a client
"""

from __future__ import annotations

import json
import logging
import re
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response

from regard.core.errors import RegardError, UnknownName, is_out_of_memory
from regard.serve.http.batching import DeadlineExceeded, QueueFull, ShuttingDown, Unavailable

log = logging.getLogger("regard")

TYPES = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden_origin",
    404: "not_found",
    405: "method_not_allowed",
    408: "request_timeout",
    413: "too_large",
    415: "unsupported_media_type",
    421: "unknown_host",
    422: "invalid",
    429: "too_many_requests",
    500: "internal",
    503: "unavailable",
    504: "deadline_exceeded",
}
UNAVAILABLE_STATUS: dict[type[Unavailable], int] = {QueueFull: 429, ShuttingDown: 503, DeadlineExceeded: 504}
_BRANCH = re.compile(r"constrained-|\w+\[|function-")  # pydantic's name of one of several ways to read a field
_PATH = re.compile(r"(?<![\w<])/(?:[\w.+@-]+/)+[\w.+@-]*")  # of this machine


class ErrorDetail(BaseModel):
    """What went wrong."""

    type: str = Field(description="A word for programs.")
    message: str = Field(description="A line for people.")
    field: str | None = Field(None, description="The part of the request that is meant, where there is one.")


class ErrorResponse(BaseModel):
    """An error."""

    error: ErrorDetail


RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorResponse, "description": TYPES[status]}
    for status in (400, 401, 403, 404, 408, 413, 415, 421, 422, 429, 503, 504)
}


class ApiError(Exception):
    """An error with its status, raised where it is found."""

    def __init__(self, status: int, message: str, field: str | None = None, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.field, self.retry_after = status, message, field, retry_after


def error_response(
    status: int, message: str, field: str | None = None, retry_after: int | None = None, allow: str | None = None
) -> Response:
    """An error as a response."""
    said: dict[str, Any] = {"type": TYPES.get(status, "error"), "message": _PATH.sub("a file", message)}
    if field is not None:
        said["field"] = field
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    if allow is not None:
        headers["Allow"] = allow
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    # ASCII: what a stranger sent may hold halves of characters
    return Response(json.dumps({"error": said}).encode("ascii"), status, headers, media_type="application/json")


def to_response(error: BaseException) -> Response:
    """Any error as a response."""
    if isinstance(error, ApiError):
        return error_response(error.status, error.message, error.field, error.retry_after)
    if isinstance(error, Unavailable):
        return error_response(UNAVAILABLE_STATUS[type(error)], str(error), retry_after=error.retry_after)
    if isinstance(error, UnknownName):
        return error_response(404, str(error))
    if isinstance(error, RegardError):
        return error_response(422, str(error))
    if isinstance(error, RequestValidationError):
        return _validation_response(error)
    if isinstance(error, HTTPException):
        said = error.detail if isinstance(error.detail, str) else "this cannot be answered"
        return error_response(error.status_code, said, allow=(error.headers or {}).get("Allow"))
    if is_out_of_memory(error):
        return error_response(503, "there is not enough memory for this now; ask for less", retry_after=5)
    log.error("a request failed: this is a bug", exc_info=error)
    return error_response(500, "this should not have happened; the log of the service says more")


def error_body(error: BaseException) -> dict[str, Any]:
    """Any error as what stands in its JSON: for a stream, whose status is sent already."""
    found: dict[str, Any] = json.loads(bytes(to_response(error).body))
    return found


def install_handlers(app: FastAPI) -> None:
    """Every error of an app becomes ours."""

    async def handler(_: Request, error: Exception) -> Response:
        return to_response(error)

    for kind in (ApiError, Unavailable, RegardError, RequestValidationError, HTTPException, MemoryError):
        app.add_exception_handler(kind, handler)


def _validation_response(error: RequestValidationError) -> Response:
    """The first thing that is wrong with a request, and where."""
    errors = error.errors()
    first: Any = next(iter(errors), {})
    if first.get("type") in ("json_invalid", "json_type"):
        said = (first.get("ctx") or {}).get("error", first.get("msg", "not understood"))
        return error_response(400, f"the body is not JSON: {said}")
    where, said = _closest_error(errors) if first else ((), "not understood")
    field = ".".join(str(part) for part in where if part != "body")[:120]
    return error_response(422, f"{field}: {said}" if field else said, field or None)


def _closest_error(errors: Any) -> tuple[tuple[Any, ...], str]:
    """Where and what: of a field that may be one thing or another, what is wrong with the one that was nearly given."""
    first = errors[0]["loc"]
    if errors[0]["type"] == "extra_forbidden":  # its name is a stranger's, whatever it looks like
        return first, str(errors[0]["msg"])
    at = next((n for n, part in enumerate(first) if n and _is_branch(part)), len(first))
    ways: dict[Any, Any] = {}  # the first error of every way to read the field
    for one in errors:
        if one["loc"][:at] == first[:at]:
            ways.setdefault(one["loc"][at : at + 1], one)

    def came(one: Any) -> tuple[bool, list[int]]:  # how far a way came: to the right type, or to a later part
        parts = [part for part in one["loc"][at:] if not _is_branch(part)]
        return not one["type"].endswith(("_type", "_parsing")), [part if isinstance(part, int) else 0 for part in parts]

    best = max(map(came, ways.values()))
    near = [one for one in ways.values() if came(one) == best]
    where = tuple(part for n, part in enumerate(near[0]["loc"]) if not (n and _is_branch(part)))
    said = list(dict.fromkeys(str(one["msg"]).replace(" after validation", "") for one in near))
    begin = "Input should be "
    if len(said) > 1 and all(one.startswith(begin) for one in said):
        *others, last = (one.removeprefix(begin) for one in said)
        return where, f"{begin}{', '.join(others)} or {last}"
    return where, said[0]


def _is_branch(part: Any) -> bool:
    return isinstance(part, str) and _BRANCH.match(part) is not None
