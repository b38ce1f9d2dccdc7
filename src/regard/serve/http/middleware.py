"""The door: what a stranger may send, how much of it, and how long that may take. Everything passes here first.

    host       a name that is not ours is refused (DNS rebinding: a page of elsewhere under a name that now means us);
               a numeric address is no name, so it is always allowed
    origin     a page of elsewhere may not ask, not even without reading the answer
    token      where there is one, as ``Authorization: Bearer ...`` or as the cookie that ``/?token=...`` sets
    body       counted while it comes in, whatever its header says; it has `patience` seconds to come
    clients    so many requests at a time, and so many bytes of them
    gone       a client that hangs up has its request ended

Answers carry headers that keep a browser from doing more with them than it should.
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
PUBLIC_PATHS = ("/health", "/ready")  # what a watchman asks, without a token
FILES = ("image/", "audio/", "video/", "multipart/", "application/octet-stream")  # of which a body may be larger
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
    """An ASGI app before another one."""

    def __init__(self, app: ASGIApp, pool: ModelPool, settings: Settings) -> None:
        self.app, self.pool, self.settings = app, pool, settings
        self.clients = self.held = 0
        self.cookie = None if settings.token is None else hashlib.sha256(settings.token.encode()).hexdigest()
        pool.metrics.gauge(
            "regard_active_requests", "Requests that are being read or answered.", "", lambda: {"": self.clients}
        )
        pool.metrics.gauge("regard_buffered_bytes", "Bytes of requests that are held.", "", lambda: {"": self.held})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or say why not."""
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":
            return None  # nothing here speaks anything else
        call = _ResponseState(scope, send, self.settings.cors_origins)
        began, size = time.monotonic(), 0
        self.clients += 1
        try:
            headers, body = Headers(scope=scope), bytearray()
            refused = self._refused(scope, headers)
            if refused is not None:
                call.close = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
                return await refused(scope, receive, call.send)
            call.close = True  # what is refused while it comes in leaves something unread
            await self._read(headers, receive, body)
            call.close = False
            size = len(body)
            await self._answered(scope, receive, call, bytes(body))
        except _ClientDisconnected:
            call.status = 499
        except Exception as error:
            if not call.begun:
                await to_response(error)(scope, receive, call.send)
            # else it is said already, or the connection is broken off
        finally:
            self.clients -= 1
            self.held -= size
            route = getattr(scope.get("route"), "path", None) or "other"
            self.pool.metrics.answered(route, call.status, time.monotonic() - began)
        return None

    # -- before --------------------------------------------------------------------------------------------------------

    def _refused(self, scope: Scope, headers: Headers) -> Response | None:
        """What is said to somebody who may not come in."""
        known, path = self.settings, scope["path"]
        if not self._is_known_host(headers.getlist("host")):
            return error_response(
                421, "this name is not one of this service; start it with --allow-host NAME to allow it"
            )
        if not self._is_allowed_origin(headers):
            return error_response(
                403, "a page of another origin may not ask here; start it with --cors ORIGIN to allow it"
            )
        if path in PUBLIC_PATHS:
            return None
        if known.token is not None and not self._has_token(headers) and not self._is_preflight(scope, headers):
            if path == "/" and scope["method"] == "GET" and (said := _query(scope, "token")) is not None:
                return self._login_response(said)
            return error_response(401, "a token is needed: Authorization: Bearer TOKEN")
        if self.pool.closing:
            return error_response(503, "the service is about to stop", retry_after=5)
        if self.clients > known.max_concurrent_requests:
            return error_response(
                503,
                f"{known.max_concurrent_requests} requests are being answered already; come back later",
                retry_after=1,
            )
        return None

    def _is_known_host(self, given: list[str]) -> bool:
        if len(given) != 1 or not (found := _HOST.fullmatch(given[0])):
            return False
        name = found["name"].lower().rstrip(".")
        if (
            name == "localhost"
            or "*" in self.settings.allowed_hosts
            or name in (h.lower() for h in self.settings.allowed_hosts)
        ):
            return True
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return True

    def _is_allowed_origin(self, headers: Headers) -> bool:
        """No page of elsewhere: browsers say where a request comes from."""
        origin = headers.get("origin")
        if origin is None:
            return headers.get("sec-fetch-site", "none") in ("none", "same-origin") or self._navigates(headers)
        if origin in self.settings.cors_origins:
            return True
        return origin != "null" and urlsplit(origin).netloc.lower() == headers.get("host", "").lower()

    @staticmethod
    def _navigates(headers: Headers) -> bool:
        """Somebody follows a link to the page."""
        return headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"

    def _is_preflight(self, scope: Scope, headers: Headers) -> bool:
        """A browser's question before a request of an origin that is allowed; it carries no token."""
        return scope["method"] == "OPTIONS" and headers.get("origin") in self.settings.cors_origins

    def _has_token(self, headers: Headers) -> bool:
        assert self.settings.token is not None
        assert self.cookie is not None
        kind, _, said = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and _equal_in_constant_time(said.strip(), self.settings.token):
            return True
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return found is not None and _equal_in_constant_time(found.value, self.cookie)

    def _login_response(self, said: str) -> Response:
        """A browser that knows the token gets a cookie, and an address without it."""
        assert self.settings.token is not None
        assert self.cookie is not None
        if not _equal_in_constant_time(said, self.settings.token):
            return error_response(401, "this token is not the one of this service")
        response = RedirectResponse("/", 303)
        response.set_cookie(COOKIE, self.cookie, httponly=True, samesite="strict")
        return response

    async def _read(self, headers: Headers, receive: Receive, body: bytearray) -> None:
        """The whole body, or the reason why it is not wanted."""
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        most = self.settings.max_upload_bytes if kind.startswith(FILES) else self.settings.max_body_bytes
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise ApiError(415, "send the body as it is, not compressed")
        said = headers.get("content-length", "0")
        if not said.isascii() or not said.isdigit():
            raise ApiError(400, "the length of the body is no number")
        try:
            if len(said) > 15 or int(said) > most:
                raise ApiError(413, f"the body is larger than the {most:,} bytes that are allowed")
            async with asyncio.timeout(self.settings.client_timeout):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _ClientDisconnected
                    part = message.get("body", b"")
                    if len(body) + len(part) > most:
                        raise ApiError(413, f"the body is larger than the {most:,} bytes that are allowed")
                    if self.held + len(part) > self.settings.max_buffered_bytes:
                        raise ApiError(
                            503, "the requests under way fill the memory for them; come back later", retry_after=2
                        )
                    body += part
                    self.held += len(part)
                    if not message.get("more_body", False):
                        return
        except BaseException as error:
            self.held -= len(body)
            if isinstance(error, ApiError):
                await _drain_body(receive)
            if isinstance(error, TimeoutError):
                raise ApiError(408, f"the body did not come within {self.settings.client_timeout:g} s") from None
            raise

    # -- the request itself --------------------------------------------------------------------------------------------

    async def _answered(self, scope: Scope, receive: Receive, call: _ResponseState, body: bytes) -> None:
        """Hand it on; end it where the client hangs up before it is answered."""
        given = False
        over = asyncio.Event()

        async def hand() -> Message:
            nonlocal given
            if not given:
                given = True
                return {"type": "http.request", "body": body, "more_body": False}
            await over.wait()
            return {"type": "http.disconnect"}

        work = asyncio.ensure_future(self.app(scope, hand, call.send))
        gone = asyncio.ensure_future(_wait_for_disconnect(receive))
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
            if not work.done() and not call.ended:
                work.cancel()
                over.set()
                await asyncio.wait((work,))
                raise _ClientDisconnected
            await work
        finally:
            gone.cancel()
            if not work.done():
                work.cancel()


class _ClientDisconnected(Exception):
    """The client hung up."""


class _ResponseState:
    """What has been answered so far; adds our headers."""

    def __init__(self, scope: Scope, send: Send, origins: tuple[str, ...]) -> None:
        self._send, self.status = send, 500
        self.begun = self.ended = self.close = False
        self.page = scope["path"] == "/" or scope["path"].startswith("/page/")
        self.shared = bool(origins)

    async def send(self, message: Message) -> None:
        """A part of the answer."""
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
    """Take some of what is not wanted: a client that is still sending would not hear the answer."""
    with suppress(TimeoutError):
        async with asyncio.timeout(1.0):
            while (message := await receive())["type"] != "http.disconnect" and message.get("more_body", False):
                pass


def _query(scope: Scope, name: str) -> str | None:
    found: dict[str, Any] = parse_qs(scope.get("query_string", b"").decode("latin-1"))
    return found[name][0] if name in found else None


def _equal_in_constant_time(said: str, wanted: str) -> bool:
    """In the same time however much of it is right."""
    return hmac.compare_digest(said.encode("utf-8", "replace"), wanted.encode())
