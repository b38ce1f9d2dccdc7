"""Ctrl-C that does not lose work: the first asks the run to stop after the update at hand, the second stops it now.

While a model is compiled, in its first update, there is nothing to lose yet and the end of the update may be minutes
away: SIGTERM then does what it does to any process. (A batch system sends it to all processes of a job, the compiler's
too; who waited for those would wait for ever.)
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class Interrupt:
    """``with Interrupt() as asked:`` ... ``if asked:`` — true once SIGINT or SIGTERM has come."""

    def __init__(self, compiling: bool = False) -> None:
        self.came = False
        self.compiling = compiling
        self.before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():  # only there may handlers be set
            for which in (signal.SIGINT, signal.SIGTERM):
                self.before[which] = signal.signal(which, self._asked)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for which, handler in self.before.items():
            signal.signal(which, handler)

    def __bool__(self) -> bool:
        return self.came

    def _asked(self, number: int, frame: FrameType | None) -> None:
        if self.compiling and number == signal.SIGTERM:
            signal.signal(number, self.before[signal.SIGTERM])
            os.kill(os.getpid(), number)
            return
        if self.came:
            raise KeyboardInterrupt
        self.came = True
