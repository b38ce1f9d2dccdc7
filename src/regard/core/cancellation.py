"""Cancellation of work that nobody waits for any more.

    with cancel_when(lambda: client.has_left):             around the work, in the thread that does it
        predictor.predict(...)

    for batch in batches:                                  in any loop that may take long
        check_cancelled()

Outside `cancel_when`, and in code that never calls `check_cancelled`, nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_is_cancelled: ContextVar[Callable[[], bool] | None] = ContextVar("is_cancelled", default=None)


class Cancelled(Exception):
    """Raised by `check_cancelled` where the work is cancelled."""


@contextmanager
def cancel_when(is_cancelled: Callable[[], bool]) -> Iterator[None]:
    """Let `check_cancelled` end the work of this block, in this thread, once `is_cancelled` returns True."""
    token = _is_cancelled.set(is_cancelled)
    try:
        yield
    finally:
        _is_cancelled.reset(token)


def check_cancelled() -> None:
    """Raise `Cancelled` if the surrounding work is cancelled."""
    is_cancelled = _is_cancelled.get()
    if is_cancelled is not None and is_cancelled():
        raise Cancelled
