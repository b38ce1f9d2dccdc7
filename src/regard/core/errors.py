"""The errors a user can cause, each with one line that says what was wrong and what to do.

The command line prints these without a traceback; everything else is a bug of ours and keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any


class RegardError(Exception):
    """Something the user can put right; its message is one line meant for them."""


class Unsupported(RegardError):
    """A part was asked for something it does not offer."""


class UnknownName(RegardError):
    """A name that is in no table; the message offers the nearest one."""


class BadInput(RegardError):
    """Input that cannot be used: an unreadable file, a damaged checkpoint, text that is not text."""


class OutOfMemory(RegardError):
    """There was no room on the device, or on the host; the message says how less of it is needed."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a device, or the host, had no room left; torch has a class for the one, and a sentence for the other."""
    return isinstance(error, MemoryError | OutOfMemory) or (
        isinstance(error, RuntimeError)
        and (type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in str(error))
    )


@contextmanager
def oom_advice(advice: str) -> Iterator[None]:
    """What runs out of memory in this block says how to need less, where nothing within has said it already."""
    try:
        yield
    except Exception as error:
        if isinstance(error, OutOfMemory) or not is_out_of_memory(error):
            raise
        raise OutOfMemory(f"out of memory; {advice}") from error


def require_iterable(given: Any, what: str) -> Iterator[Any]:
    """What was given, one after another; refuses what cannot be gone through."""
    if not isinstance(given, Iterable):
        raise BadInput(f"give a list of {what}, not {'None' if given is None else f'a {type(given).__name__}'}")
    return iter(given)


MAX_SUGGESTIONS = 6  # names that are offered at once


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The tail of an error message: the known names that begin so, else the closest, or all where none is close."""
    name, known = str(name), sorted(known)
    longer = [each for each in known if name and each.startswith(name)]
    if 0 < len(longer) <= MAX_SUGGESTIONS:
        *others, last = (f"'{each}'" for each in longer)
        return f"did you mean {', '.join(others)} or {last}?" if others else f"did you mean {last}?"
    close = get_close_matches(name, known, n=1, cutoff=0.5)
    if close:
        return f"did you mean '{close[0]}'?"
    return "known: " + (", ".join(known) if known else "none")
