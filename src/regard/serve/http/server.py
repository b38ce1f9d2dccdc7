"""From a socket to the app: connections that are too slow are broken off, and an end is an orderly one.

    serve(app, listen("127.0.0.1", 8000))        until it is told to stop (Ctrl-C, SIGTERM)
    with running(app) as url: ...                in a thread, for tests and notebooks

    before a request     its first line and headers have `patience` seconds, however they trickle in
    during an answer     what has been written must be taken within `patience` seconds
    at the end           no new connections; what is under way has `grace` seconds; idle connections are closed

uvicorn speaks HTTP; its own limits start only where a request has been read.
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

MAX_HEADER_BYTES = 16 * 1024  # bytes of a request's first line and headers
KEEP_ALIVE_SECONDS = 5  # seconds between two requests of a connection
MAX_CONNECTIONS = 1024
BACKLOG = 2048  # that wait to be connected


class TimedConnection(H11Protocol):
    """One connection, with the times it may take."""

    patience = Settings.client_timeout
    _timer: asyncio.TimerHandle | None = None
    _stuck: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Somebody is there, and has to say what they want."""
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()
            return
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        """A part of a request: until its headers are whole, time runs."""
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._start_timer()
        else:
            self._cancel_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Over."""
        self._cancel_timer()
        self.resume_writing()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """What was written is not taken: time runs."""
        super().pause_writing()
        if self._stuck is None:
            self._stuck = self.loop.call_later(self.patience, self.transport.abort)

    def resume_writing(self) -> None:
        """It is taken again."""
        super().resume_writing()
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP gets the answer of all that is malformed."""
        said = json.dumps({"error": {"type": "bad_request", "message": "this is not a request of HTTP/1.1"}})
        head = f"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: {len(said)}"
        self.transport.write(f"{head}\r\nConnection: close\r\n\r\n{said}".encode("ascii"))
        self.transport.close()

    def _start_timer(self) -> None:
        if self._timer is None and not self.transport.is_closing():
            self._timer = self.loop.call_later(self.patience, self.transport.abort)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Server(uvicorn.Server):
    """A server that says when it is about to stop, and ends without a signal of its own."""

    def __init__(self, config: uvicorn.Config, stopping: Callable[[], None]) -> None:
        super().__init__(config)
        self._stopping = stopping

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Ctrl-C or SIGTERM: once in good order, twice at once."""
        self._stopping()
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """In good order."""
        self._stopping()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at a signal, and do not raise it again: to be told to stop is how a service ends."""
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
    """A socket that waits there; port 0 is any that is free."""
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind, protocol)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(where)
        found.listen(BACKLOG)  # from now on whoever comes waits, and is not turned away
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise BadInput(f"cannot listen at {address}:{port}: {why}; give another --host or --port") from None
    found.set_inheritable(True)
    return found


def socket_url(waiting: socket.socket) -> str:
    """Where a socket can be reached."""
    address, port, *_ = waiting.getsockname()
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(address, f"[{address}]" if ":" in address else address)
    return f"http://{shown}:{port}"


def serve(app: FastAPI, waiting: socket.socket) -> None:
    """Answer until told to stop."""
    make_server(app).run(sockets=[waiting])


def make_server(app: FastAPI) -> Server:
    """A server for an app of serve.app, with its limits."""
    settings: Settings = app.state.settings
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # what strangers send is not worth a line each
    http = type("Connection", (TimedConnection,), {"patience": settings.client_timeout})
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
    """The app answering in a thread; gives its address."""
    waiting = listen(address, port)
    one = make_server(app)
    thread = threading.Thread(target=one.run, kwargs={"sockets": [waiting]}, name="regard server", daemon=True)
    thread.start()
    try:
        while not one.started:
            if not thread.is_alive():
                raise BadInput("the service did not start")
            time.sleep(0.01)
        yield socket_url(waiting)
    finally:
        one.should_exit = True
        thread.join(app.state.settings.shutdown_timeout + 5)
