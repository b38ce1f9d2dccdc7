"""Errors that a user can cause: one line that says what was wrong, what is expected and what to do.

The command line prints these without a traceback; any other exception is a bug and keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any


class RegardError(Exception):
    """Base class of errors that the user can put right; the message is one line."""


class Unsupported(RegardError):
    """A part does not support what was requested."""


class UnknownName(RegardError):
    """A name that no registry has; the message suggests the nearest one."""


class BadInput(RegardError):
    """Input that cannot be used: an unreadable file, a damaged checkpoint, text that is not text."""


class OutOfMemory(RegardError):
    """The device or the host ran out of memory; the message says how to use less."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the device or the host ran out of memory; for the host, torch raises a plain RuntimeError."""
    return isinstance(error, MemoryError | OutOfMemory) or (
        isinstance(error, RuntimeError)
        and (type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in str(error))
    )


@contextmanager
def oom_advice(advice: str) -> Iterator[None]:
    """Turn an out-of-memory error of this block into `OutOfMemory` with advice, unless it already is one."""
    try:
        yield
    except Exception as error:
        if isinstance(error, OutOfMemory) or not is_out_of_memory(error):
            raise
        raise OutOfMemory(f"out of memory; {advice}") from error


def require_iterable(items: Any, what: str) -> Iterator[Any]:
    """Return an iterator over `items`; raise `BadInput` if there is none, or one over parts or without an order."""
    if not isinstance(items, Iterable) or isinstance(items, (str, bytes, bytearray, Mapping, set, frozenset)):
        raise BadInput(f"give a list of {what}, not {'None' if items is None else f'a {type(items).__name__}'}")
    return iter(items)


def shorten(value: Any, most: int = 80) -> str:
    """Return a value as one line of at most `most` characters, for a message: a name or a number may be very long."""
    line = " ".join(str(value).split())
    return line if len(line) <= most else f"{line[: most - 3]}..."


MAX_SUGGESTIONS, MAX_KNOWN = 6, 40  # names that a message lists


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of an error message: the known names with this prefix, else the closest one, else all, unless
    they are many."""
    name, known = str(name), sorted(known)
    longer = [each for each in known if name and each.startswith(name)]
    if 0 < len(longer) <= MAX_SUGGESTIONS:
        *others, last = (f"'{each}'" for each in longer)
        return f"did you mean {', '.join(others)} or {last}?" if others else f"did you mean {last}?"
    close = get_close_matches(name, known, n=1, cutoff=0.5)
    if close:
        return f"did you mean '{close[0]}'?"
    if len(known) > MAX_KNOWN:
        return f"none of the {len(known):,} known names is like it"
    return "known: " + (", ".join(known) if known else "none")


def with_article(name: str) -> str:
    """Return a name after "a" or "an"."""
    return f"{'an' if name[:1] in 'AEIOUaeiou' else 'a'} {name}"
