"""Errors as JSON, ``{"error": {"type", "message", "field"}}``, with an HTTP status: 4xx client error, 5xx server error.

`TYPES` has the types by status. The traceback of a 500, which is a bug, goes to the log and never to a client.
"""

from __future__ import annotations

import json
import logging
import re
from http import HTTPStatus
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
MAX_MESSAGE = 2000  # characters: a message may quote what was sent
_BRANCH = re.compile(r"constrained-|\w+\[|function-")  # pydantic's name of one alternative of a field's type
_PATH = re.compile(r"(?<![\w<])/(?:[\w.+@-]+/)+[\w.+@-]*")  # an absolute path


class ErrorDetail(BaseModel):
    """The details of an error."""

    type: str = Field(description="The type of the error, for programs.")
    message: str = Field(description="What was wrong and what is expected.")
    field: str | None = Field(None, description="The field of the request, where the error is about one.")


class ErrorResponse(BaseModel):
    """The answer to a request that failed."""

    error: ErrorDetail


RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorResponse, "description": TYPES[status]}
    for status in (400, 401, 403, 404, 408, 413, 415, 421, 422, 429, 503, 504)
}


class ApiError(Exception):
    """An error of a request with its HTTP status."""

    def __init__(self, status: int, message: str, field: str | None = None, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.field, self.retry_after = status, message, field, retry_after


def error_response(
    status: int, message: str, field: str | None = None, retry_after: int | None = None, allow: str | None = None
) -> Response:
    """Return an error as a response; paths of this machine are left out of the message."""
    detail: dict[str, Any] = {"type": TYPES.get(status, "error"), "message": _PATH.sub("a file", message[:MAX_MESSAGE])}
    if field is not None:
        detail["field"] = field
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    if allow is not None:
        headers["Allow"] = allow
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    # ASCII: a message may quote halves of surrogate pairs, which UTF-8 cannot encode
    return Response(json.dumps({"error": detail}).encode("ascii"), status, headers, media_type="application/json")


def to_response(error: BaseException) -> Response:
    """Return any exception as a response; one that is a bug is logged with its traceback."""
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
        message = error.detail if isinstance(error.detail, str) else "The request failed."
        return error_response(error.status_code, message, allow=(error.headers or {}).get("Allow"))
    if is_out_of_memory(error):
        return error_response(503, "Not enough memory for this request now; ask for less.", retry_after=5)
    log.error("A request failed with an unexpected error; please report it as a bug.", exc_info=error)
    return error_response(500, "Unexpected error; the log of the service has the details.")


def error_body(error: BaseException) -> dict[str, Any]:
    """Return any exception as the JSON of its response, for a stream whose status is sent already."""
    found: dict[str, Any] = json.loads(bytes(to_response(error).body))
    return found


def install_handlers(app: FastAPI) -> None:
    """Let an app answer errors as this module does."""

    async def handler(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException) and error.detail == HTTPStatus(error.status_code).phrase:
            if error.status_code == 404:
                error.detail = "There is no such route; /docs has all of them."
            elif error.status_code == 405:
                error.detail = f"This route takes {(error.headers or {}).get('Allow', 'others')}; got {request.method}."
        return to_response(error)

    for kind in (ApiError, Unavailable, RegardError, RequestValidationError, HTTPException, MemoryError):
        app.add_exception_handler(kind, handler)


def _validation_response(error: RequestValidationError) -> Response:
    """Return the response for the first invalid field of a request."""
    errors = error.errors()
    first: Any = next(iter(errors), {})
    if first.get("type") in ("json_invalid", "json_type"):
        message = (first.get("ctx") or {}).get("error", first.get("msg", "invalid"))
        return error_response(400, f"The body is not valid JSON: {message}")
    where, message = _closest_error(errors) if first else ((), "Invalid request.")
    field = ".".join(str(part) for part in where if part != "body")[:120]
    return error_response(422, f"{field}: {message}" if field else message, field or None)


def _closest_error(errors: Any) -> tuple[tuple[Any, ...], str]:
    """Return the place and the message of the first error; for a field of several alternatives, of the alternative
    that came closest to being valid."""
    first = errors[0]["loc"]
    if errors[0]["type"] == "extra_forbidden":  # the client's own name, even if it looks like one of pydantic's
        return first, str(errors[0]["msg"])
    at = next((n for n, part in enumerate(first) if n and _is_branch(part)), len(first))
    alternatives: dict[Any, Any] = {}  # the first error of each
    for one in errors:
        if one["loc"][:at] == first[:at]:
            alternatives.setdefault(one["loc"][at : at + 1], one)

    def closeness(one: Any) -> tuple[bool, list[int]]:  # whether the type was right, and the place of the error
        parts = [part for part in one["loc"][at:] if not _is_branch(part)]
        return not one["type"].endswith(("_type", "_parsing")), [part if isinstance(part, int) else 0 for part in parts]

    best = max(map(closeness, alternatives.values()))
    closest = [one for one in alternatives.values() if closeness(one) == best]
    where = tuple(part for n, part in enumerate(closest[0]["loc"]) if not (n and _is_branch(part)))
    messages = list(dict.fromkeys(str(one["msg"]).replace(" after validation", "") for one in closest))
    begin = "Input should be "
    if len(messages) > 1 and all(one.startswith(begin) for one in messages):
        *others, last = (one.removeprefix(begin) for one in messages)
        return where, f"{begin}{', '.join(others)} or {last}"
    return where, messages[0]


def _is_branch(part: Any) -> bool:
    return isinstance(part, str) and _BRANCH.match(part) is not None
