"""Readable tokens: no marks of spaces; control, bidirectional-override and unencodable characters are spelled out.

`visible` keeps letters of every script: a newline becomes \\n, a lone surrogate \\ud83d, an empty token ∅.
"""

from __future__ import annotations

from collections.abc import Sequence
from unicodedata import category

_JOINER = "\u200d"  # joins emoji; harmless
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(token: str) -> str:
    """Return the token with control, format and lone surrogate characters spelled out."""
    if not token:
        return "∅"
    if token.isspace():
        token = token.replace(" ", "␣")
    return "".join(_spell(c) for c in token)


SPACE = "▁"  # what tokenizers put in the place of a space


def readable_pieces(tokens: Sequence[str]) -> list[str]:
    """Return pieces without the marks of spaces; one that continues a word gets a hyphen: ▁cre use -> cre -use."""
    if not any(token.startswith(SPACE) and len(token) > 1 for token in tokens):
        return ["␣" if token == SPACE else token for token in tokens]
    before = " "
    found = []
    for token in tokens:
        continues = token[:1].isalnum() and before[-1:].isalnum()
        found.append(f"-{token}" if continues else token.removeprefix(SPACE) or "␣")
        before = token
    return found


def truncate_middle(token: str, max_length: int = 24) -> str:
    """Cut the middle out of a token that is longer than `max_length` characters."""
    if len(token) <= max_length:
        return token
    head = (max_length - 1) * 2 // 3
    return token[:head] + "…" + token[head + 1 - max_length :]


def _spell(c: str) -> str:
    kind, code = category(c), ord(c)
    if kind == "Cc":
        return _NAMED.get(c, f"\\x{code:02x}")
    if kind in ("Cf", "Zl", "Zp", "Cs") and c != _JOINER:
        return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return c
