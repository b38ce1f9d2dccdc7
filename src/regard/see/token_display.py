"""Tokens as they can be shown: nothing invisible, nothing that turns the line around, nothing that cannot be encoded.

A tokenizer may hand over any string of characters, half an emoji included. `visible` keeps letters of every script
and makes the rest readable: a newline becomes \\n, a lone surrogate \\ud83d, an empty token ∅.
"""

from __future__ import annotations

from unicodedata import category

_JOINER = "\u200d"  # holds emoji families together; harmless
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(token: str) -> str:
    """The token with control, format and lone surrogate characters spelled out."""
    if not token:
        return "∅"
    if token.isspace():
        token = token.replace(" ", "␣")
    return "".join(_spell(c) for c in token)


def truncate_middle(token: str, most: int = 24) -> str:
    """The token, its middle cut out where it is longer than `most` characters."""
    if len(token) <= most:
        return token
    head = (most - 1) * 2 // 3
    return token[:head] + "…" + token[head + 1 - most :]


def _spell(c: str) -> str:
    kind, code = category(c), ord(c)
    if kind == "Cc":
        return _NAMED.get(c, f"\\x{code:02x}")
    if kind in ("Cf", "Zl", "Zp", "Cs") and c != _JOINER:
        return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return c
