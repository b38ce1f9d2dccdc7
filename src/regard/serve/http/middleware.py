"""Checks that every request passes before a route sees it.

    host       only known host names (against DNS rebinding); numeric addresses are always allowed
    origin     no requests from pages of other origins, unless `cors_origins` allows them
    token      if there is one, as ``Authorization: Bearer ...`` or as the cookie that ``/?token=...`` sets
    body       its size is counted while it arrives, whatever its header says, within `client_timeout`
    load       a maximum of concurrent requests and of their bytes
    disconnect the request of a client that disconnects is cancelled

Every answer gets security headers for browsers.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import re
import time
from contextlib import suppress
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.serve.http.errors import ApiError, error_response, to_response
from regard.serve.http.model_pool import ModelPool
from regard.serve.http.settings import Settings

COOKIE = "regard_token"
MAX_COOKIE_CHARACTERS = 4096  # of the Cookie header that are parsed
PUBLIC_PATHS = ("/health", "/ready")  # need no token
FILES = ("image/", "audio/", "video/", "multipart/", "application/octet-stream")  # media types of larger bodies
CONTENT_SECURITY_POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; media-src 'self' blob:; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::\d{1,5})?")


class SecurityMiddleware:
    """ASGI middleware with the checks of this module."""

    def __init__(self, app: ASGIApp, pool: ModelPool, settings: Settings) -> None:
        self.app, self.pool, self.settings = app, pool, settings
        self.active_requests = self.buffered_bytes = 0
        self.cookie = None if settings.token is None else hashlib.sha256(settings.token.encode()).hexdigest()
        active, buffered = lambda: {"": self.active_requests}, lambda: {"": self.buffered_bytes}
        pool.metrics.gauge("regard_active_requests", "Requests that are being read or answered.", "", active)
        pool.metrics.gauge("regard_buffered_bytes", "Bytes of their bodies.", "", buffered)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that passes the checks; refuse any other."""
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":
            return None  # no route takes anything else
        response = _ResponseState(scope, send, self.settings.cors_origins)
        began, size = time.monotonic(), 0
        self.active_requests += 1
        try:
            headers, body = Headers(scope=scope), bytearray()
            refusal = self._refusal(scope, headers)
            if refusal is not None:
                if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
                    response.close = True
                    await _drain_body(receive)
                return await refusal(scope, receive, response.send)
            response.close = True  # an error while the body arrives leaves some of it unread
            await self._read(headers, receive, body)
            response.close = False
            size = len(body)
            await self._answer(scope, receive, response, bytes(body))
        except _ClientDisconnected:
            response.status = 499
        except Exception as error:
            failed = to_response(error)  # logs a bug with its traceback, also where the answer has begun already
            if not response.begun:
                await failed(scope, receive, response.send)
        finally:
            self.active_requests -= 1
            self.buffered_bytes -= size
            route = getattr(scope.get("route"), "path", None) or "other"
            self.pool.metrics.answered(route, response.status, time.monotonic() - began)
        return None

    # -- headers and body ----------------------------------------------------------------------------------------------

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        """Return the error of a request that is refused by its headers, None for any other."""
        settings, path = self.settings, scope["path"]
        if not self._is_known_host(headers.getlist("host")):
            message = "This host name is not known to the service; --allow-host NAME allows it."
            return error_response(421, message)
        if not self._is_allowed_origin(headers):
            message = "Requests from pages of another origin are refused; --cors ORIGIN allows one."
            return error_response(403, message)
        if path in PUBLIC_PATHS:
            return None
        if settings.token is not None and not self._has_token(headers) and not self._is_preflight(scope, headers):
            if path == "/" and scope["method"] == "GET" and (token := _query(scope, "token")) is not None:
                return self._login_response(token)
            return error_response(401, "This service needs a token; send Authorization: Bearer TOKEN.")
        if self.pool.closing:
            return error_response(503, "The service is stopping.", retry_after=5)
        if self.active_requests > settings.max_concurrent_requests:
            message = f"{settings.max_concurrent_requests} requests are being answered already; try again later."
            return error_response(503, message, retry_after=1)
        return None

    def _is_known_host(self, given: list[str]) -> bool:
        if len(given) != 1 or not (found := _HOST.fullmatch(given[0])):
            return False
        name = found["name"].lower().rstrip(".")
        allowed = [host.lower() for host in self.settings.allowed_hosts]
        if name == "localhost" or name in allowed or "*" in allowed:
            return True
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return True

    def _is_allowed_origin(self, headers: Headers) -> bool:
        """Return whether a request comes from no page, a page of this service, or one of an allowed origin."""
        origin = headers.get("origin")
        if origin is None:
            follows_link = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
            return headers.get("sec-fetch-site", "none") in ("none", "same-origin") or follows_link
        if origin in self.settings.cors_origins:
            return True
        try:
            return origin != "null" and urlsplit(origin).netloc.lower() == headers.get("host", "").lower()
        except ValueError:  # not a URL
            return False

    def _is_preflight(self, scope: Scope, headers: Headers) -> bool:
        """Return whether a browser asks if an allowed origin may send a request; that carries no token."""
        return scope["method"] == "OPTIONS" and headers.get("origin") in self.settings.cors_origins

    def _has_token(self, headers: Headers) -> bool:
        assert self.settings.token is not None
        assert self.cookie is not None
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and _equal_in_constant_time(token.strip(), self.settings.token):
            return True
        try:
            found = SimpleCookie(headers.get("cookie", "")[:MAX_COOKIE_CHARACTERS]).get(COOKIE)
        except CookieError:
            return False
        return found is not None and _equal_in_constant_time(found.value, self.cookie)

    def _login_response(self, token: str) -> Response:
        """Return a redirect to the page without the token in its address; the right token sets a cookie."""
        assert self.settings.token is not None
        assert self.cookie is not None
        if not _equal_in_constant_time(token, self.settings.token):
            return error_response(401, "The token is wrong.")
        response = RedirectResponse("/", 303)
        response.set_cookie(COOKIE, self.cookie, httponly=True, samesite="strict")
        return response

    async def _read(self, headers: Headers, receive: Receive, body: bytearray) -> None:
        """Append the body of a request to `body`; raise `ApiError` where it is too large, too slow or malformed."""
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        most = self.settings.max_upload_bytes if kind.startswith(FILES) else self.settings.max_body_bytes
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise ApiError(415, "Compressed bodies are not supported; send the body as it is.")
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit():
            raise ApiError(400, "Content-Length is not a number.")
        too_large = ApiError(413, f"The body is larger than {most:,} bytes, the limit.")
        try:
            if len(length) > 15 or int(length) > most:
                raise too_large
            async with asyncio.timeout(self.settings.client_timeout):
                while True:
                    received = await receive()
                    if received["type"] == "http.disconnect":
                        raise _ClientDisconnected
                    part = received.get("body", b"")
                    if len(body) + len(part) > most:
                        raise too_large
                    if self.buffered_bytes + len(part) > self.settings.max_buffered_bytes:
                        message = "Running requests fill the memory for request bodies; try again later."
                        raise ApiError(503, message, retry_after=2)
                    body += part
                    self.buffered_bytes += len(part)
                    if not received.get("more_body", False):
                        return
        except BaseException as error:
            self.buffered_bytes -= len(body)
            if isinstance(error, ApiError):
                await _drain_body(receive)
            if isinstance(error, TimeoutError):
                message = f"The body did not arrive within {self.settings.client_timeout:g} s."
                raise ApiError(408, message) from None
            raise

    # -- the answer ----------------------------------------------------------------------------------------------------

    async def _answer(self, scope: Scope, receive: Receive, response: _ResponseState, body: bytes) -> None:
        """Pass a request on to the app; cancel it where the client disconnects before it is answered."""
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        disconnected = asyncio.Event()

        async def next_message() -> Message:
            if messages:
                return messages.pop()
            await disconnected.wait()
            return {"type": "http.disconnect"}

        work = asyncio.ensure_future(self.app(scope, next_message, response.send))
        leaving = asyncio.ensure_future(_wait_for_disconnect(receive))
        try:
            await asyncio.wait((work, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not work.done() and not response.ended:
                work.cancel()
                disconnected.set()
                await asyncio.wait((work,))
                raise _ClientDisconnected
            await work
        finally:
            leaving.cancel()
            if not work.done():
                work.cancel()


class _ClientDisconnected(Exception):
    """The client closed the connection before it was answered."""


class _ResponseState:
    """Sends a response with the security headers, and records how much of it has been sent."""

    def __init__(self, scope: Scope, send: Send, origins: tuple[str, ...]) -> None:
        self._send, self.status = send, 500
        self.begun = self.ended = self.close = False
        self.page = scope["path"] == "/" or scope["path"].startswith("/page/")
        self.shared = bool(origins)

    async def send(self, message: Message) -> None:
        """Send a part of the response."""
        if message["type"] == "http.response.start":
            self.begun, self.status = True, message["status"]
            headers = MutableHeaders(scope=message)
            if self.close:
                headers["Connection"] = "close"
            for name, value in HEADERS.items():
                if name == "Cross-Origin-Resource-Policy" and self.shared:
                    continue
                headers.setdefault(name, "no-cache" if self.page and name == "Cache-Control" else value)
        elif message["type"] == "http.response.body" and not message.get("more_body", False):
            self.ended = True
        await self._send(message)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _drain_body(receive: Receive) -> None:
    """Discard a body for up to a second: a client that is still sending would not receive the answer."""
    with suppress(TimeoutError):
        async with asyncio.timeout(1.0):
            while (message := await receive())["type"] != "http.disconnect" and message.get("more_body", False):
                pass


def _query(scope: Scope, name: str) -> str | None:
    found: dict[str, Any] = parse_qs(scope.get("query_string", b"").decode("latin-1"))
    return found[name][0] if name in found else None


def _equal_in_constant_time(given: str, wanted: str) -> bool:
    """Compare strings in a time that does not depend on how much of them is equal."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())
