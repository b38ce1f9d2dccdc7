"""Answers as server-sent events, sent while they are computed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

from starlette.responses import Response, StreamingResponse

from regard.serve.http.batching import ProgressCallback
from regard.serve.http.errors import error_body


async def stream_response(
    work: Callable[[ProgressCallback], Awaitable[list[Any]]],
    piece_event: Callable[[int, Any], Any],
    last_events: Callable[[list[Any]], Iterable[Any]],
) -> Response:
    """Return a response that sends an event for each piece that `work` reports, then the events of its result.

    An error before the first piece is raised, so that it gets an HTTP status; a later one is sent as the last event.
    """
    loop, pieces = asyncio.get_running_loop(), asyncio.Queue[Any]()

    def on_piece(item: int, piece: Any) -> None:  # runs on the model's thread
        loop.call_soon_threadsafe(pieces.put_nowait, (item, piece))

    async def run() -> list[Any]:
        try:
            return await work(on_piece)
        finally:
            pieces.put_nowait(None)

    job = asyncio.ensure_future(run())
    try:
        first = await pieces.get()
        if first is None:
            await job  # raises where the work failed
    except BaseException:
        job.cancel()
        raise

    async def events() -> AsyncIterator[bytes]:
        try:
            piece = first
            while piece is not None:
                yield _event(piece_event(*piece))
                piece = await pieces.get()
            try:
                found = await job
            except Exception as error:
                yield _event(error_body(error))
                return
            for event in last_events(found):
                yield _event(event)
        finally:
            job.cancel()

    return StreamingResponse(events(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


def _event(value: Any) -> bytes:
    """Return one server-sent event: a string as it is, any other value as JSON."""
    data = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"data: {data}\n\n".encode("utf-8", "replace")
