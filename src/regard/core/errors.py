"""The errors a user can cause, each with one line that says what was wrong and what to do.

The command line prints these without a traceback; everything else is a bug of ours and keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class RegardError(Exception):
    """Something the user can put right; its message is one line meant for them."""


class Unsupported(RegardError):
    """A part was asked for something it does not offer."""


class UnknownName(RegardError):
    """A name that is in no table; the message offers the nearest one."""


class BadInput(RegardError):
    """Input that cannot be used: an unreadable file, a damaged checkpoint, text that is not text."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The tail of an error message: the closest known name, or all of them where none is close."""
    known = sorted(known)
    close = get_close_matches(name, known, n=1, cutoff=0.5)
    if close:
        return f"did you mean '{close[0]}'?"
    return "known: " + (", ".join(known) if known else "none")
