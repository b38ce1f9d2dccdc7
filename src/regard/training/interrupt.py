"""Ctrl-C that does not lose work: the first one stops the run after the current update, the second one at once.

The first is answered at once by a line; an evaluation is broken off (core.cancellation).

While the model is compiled, in the first update, there is nothing to lose yet and the end of the update may be minutes
away: SIGTERM then has its default effect. (A batch system sends it to all processes of a job, including the compiler's;
waiting for those would never end.)
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any


class Interrupt:
    """``with Interrupt() as interrupted:`` ... ``if interrupted:`` is true once SIGINT or SIGTERM was received."""

    def __init__(self, compiling: bool = False) -> None:
        self.received = False
        self.compiling = compiling
        self.before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():  # handlers can be set only there
            for which in (signal.SIGINT, signal.SIGTERM):
                self.before[which] = signal.signal(which, self._handle)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for which, handler in self.before.items():
            signal.signal(which, handler)

    def __bool__(self) -> bool:
        return self.received

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.compiling and number == signal.SIGTERM:
            signal.signal(number, self.before[signal.SIGTERM])
            os.kill(os.getpid(), number)
            return
        if self.received:
            raise KeyboardInterrupt
        self.received = True
        with suppress(OSError):  # not print: the handler may interrupt one
            os.write(2, b"\nstopping after this update, to save it; Ctrl-C again: at once\n")
