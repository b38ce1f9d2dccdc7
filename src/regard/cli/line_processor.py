"""Windows of lines through a model, so that whatever is wrong with a line costs that line alone.

A line that cannot be used, or on which the model fails, is named on stderr and counted; all others get their answer.
Among lines of JSON it has one too: without an answer, but with "error", the sentence that stderr has.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from regard.cli.lines import Line

Answer = TypeVar("Answer")


class LineProcessor(Generic[Answer]):
    """What is done to lines, and what was done so far. Left to do: `student_logits` and, to print them, calling it."""

    noun: ClassVar[str] = "line"  # what a line is called when it is complained of
    failure_message: ClassVar[str] = "could not be used: left empty ({})"  # what is said of one that the model fails on
    memory_advice: ClassVar[str] = "give shorter lines"  # how less memory is needed
    most: ClassVar[int | None] = None  # lines that are complained of one by one; None: all

    def __init__(self) -> None:
        self.bad = 0
        self.problem: dict[int, str] = {}  # of this window: what was said of a line, by its number
        self.done = 0  # answers given
        self.seconds = 0.0  # in the model

    def predict(self, some: list[Line]) -> list[Answer]:
        """The model's answers to some lines, at least one; it may fail."""
        raise NotImplementedError

    def predict_with_fallback(self, some: list[Line], lost: Answer) -> list[Answer]:
        """The answers to some lines; where that fails, to each by itself, so that only one line is `lost`."""
        began = time.monotonic()
        found = self._tried(some, lost) if some else []
        self.seconds += time.monotonic() - began
        return found

    def _tried(self, some: list[Line], lost: Answer) -> list[Answer]:
        from regard.cli import is_debug
        from regard.core.errors import RegardError, oom_advice

        try:
            with oom_advice(self.memory_advice):
                return self.predict(some)
        except (RegardError, RuntimeError) as error:  # torch calls most of what can happen to it a RuntimeError
            if is_debug():
                raise
            why = " ".join(str(error).split())
        if len(some) > 1:  # out here, where nothing holds on any more to what the error had used
            return [self._tried([line], lost)[0] for line in some]
        self.report_problem(some[0], self.failure_message.format(why))
        return [lost]

    def __call__(self, window: list[Line]) -> Iterable[str]:
        """The output lines of a window."""
        raise NotImplementedError

    def run(self, windows: Iterable[list[Line]], doing: str) -> int:
        """All windows, each printed when it is done; the status, and a word where there was nothing to do."""
        from regard.cli import FAILED, lines, print_status

        for window in windows:
            with lines.OutputFile(None) as out:
                out.write(self(window))
        if not self.done and not self.bad:
            print_status(f"there is nothing to {doing}: the input is empty")
        return FAILED if self.bad or not self.done else 0

    def check(self, window: list[Line]) -> None:
        """Complain of what is wrong with these lines as they stand: the first that is done to a window."""
        self.problem.clear()
        for line in window:
            if line.problem:
                self.report_problem(line, line.problem)

    def report_problem(self, line: Line, what: str) -> None:
        """A line that could not be used."""
        from regard.cli import print_status

        self.bad += 1
        self.problem[line.number] = self.problem_message(line, what)
        if self.most is None or self.bad <= self.most:
            print_status(self.problem[line.number])

    def problem_message(self, line: Line, what: str) -> str:
        """The sentence about a line that could not be used."""
        return f"{self.noun} {line.number} {what}"

    def error(self, line: Line) -> dict[str, str]:
        """What stands instead of an answer in JSON: why there is none, where anything is wrong."""
        return {"error": self.problem[line.number]} if line.number in self.problem else {}
