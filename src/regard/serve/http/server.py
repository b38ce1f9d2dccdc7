"""The HTTP server: uvicorn with time limits for slow clients and an orderly shutdown.

    serve(app, listen("127.0.0.1", 8000))        until Ctrl-C or SIGTERM
    with running_server(app) as url: ...         in a thread, for tests and notebooks

    request      its first line and headers must arrive within `client_timeout` seconds
    answer       the client must read what has been written within `client_timeout` seconds
    shutdown     no new connections; running requests have `shutdown_timeout` seconds; idle connections are closed

The middleware's own limits begin once the headers have been read.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from regard.core.errors import BadInput
from regard.serve.http.settings import Settings

MAX_HEADER_BYTES = 16 * 1024  # first line and headers of a request
KEEP_ALIVE_SECONDS = 5  # between two requests of a connection
MAX_CONNECTIONS = 1024
BACKLOG = 2048  # connections that wait to be accepted


class TimedConnection(H11Protocol):
    """A connection that is closed where its client is too slow."""

    timeout = Settings.client_timeout
    _timer: asyncio.TimerHandle | None = None
    _stuck: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer of the first request."""
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()
            return
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        """Let the timer run until the headers of a request are complete."""
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._start_timer()
        else:
            self._cancel_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timer()
        self.resume_writing()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Start a timer while the client does not read."""
        super().pause_writing()
        if self._stuck is None:
            self._stuck = self.loop.call_later(self.timeout, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop that timer when the client reads again."""
        super().resume_writing()
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP with the service's own form of errors."""
        body = json.dumps({"error": {"type": "bad_request", "message": "This is not a valid HTTP/1.1 request."}})
        head = f"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        self.transport.write(f"{head}\r\nConnection: close\r\n\r\n{body}".encode("ascii"))
        self.transport.close()

    def _start_timer(self) -> None:
        if self._timer is None and not self.transport.is_closing():
            self._timer = self.loop.call_later(self.timeout, self.transport.abort)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Server(uvicorn.Server):
    """A server that calls `on_stop` when it begins to stop, and does not raise the signal that stopped it again."""

    def __init__(self, config: uvicorn.Config, on_stop: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_stop = on_stop

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Stop in order at the first Ctrl-C or SIGTERM, at once at the second."""
        self._on_stop()
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._on_stop()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle the signals without raising them again at the end, so that the exit status is 0."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def listen(address: str = "127.0.0.1", port: int = 8000) -> socket.socket:
    """Return a socket that listens at an address; port 0 takes any free port."""
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind, protocol)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(where)
        found.listen(BACKLOG)  # clients can connect from now on and wait until the app answers
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise BadInput(f"Cannot listen at {address}:{port}: {why}; give another --host or --port.") from None
    found.set_inheritable(True)
    return found


def socket_url(waiting: socket.socket) -> str:
    """Return the URL of a listening socket."""
    address, port, *_ = waiting.getsockname()
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(address, f"[{address}]" if ":" in address else address)
    return f"http://{shown}:{port}"


def serve(app: FastAPI, waiting: socket.socket) -> None:
    """Answer requests until Ctrl-C or SIGTERM."""
    make_server(app).run(sockets=[waiting])


def make_server(app: FastAPI) -> Server:
    """Return a server for an app of `make_app`, with the limits of its settings."""
    settings: Settings = app.state.settings
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # else every malformed request is logged
    http = type("Connection", (TimedConnection,), {"timeout": settings.client_timeout})
    config = uvicorn.Config(
        app,
        http=http,
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=math.ceil(settings.shutdown_timeout),
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
    )
    return Server(config, app.state.pool.stop)


@contextmanager
def running_server(app: FastAPI, address: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
    """Run an app in a thread; the value of the block is its URL."""
    waiting = listen(address, port)
    server = make_server(app)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [waiting]}, name="regard server", daemon=True)
    thread.start()
    try:
        while not server.started:
            if not thread.is_alive():
                raise BadInput("The service did not start.")
            time.sleep(0.01)
        yield socket_url(waiting)
    finally:
        server.should_exit = True
        thread.join(app.state.settings.shutdown_timeout + 5)
