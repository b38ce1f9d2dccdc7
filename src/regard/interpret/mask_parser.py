"""Masks as they are written in the lab: names with numbers, joined by & (both) and | (either).

    causal & keys(5)        causal & (window(3) | global(0))        documents(4, 3)

They are read, never run: a formula holds names of the table below, whole numbers, &, | and brackets.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import NamedTuple

import torch

from regard.attention.mask import (
    CausalMask,
    DenseMask,
    DocumentMask,
    GlobalMask,
    Mask,
    PaddingMask,
    SegmentMask,
    WindowMask,
)
from regard.core.errors import BadInput, UnknownName, did_you_mean


class MaskKind(NamedTuple):
    """A kind of mask: how it is made for n tokens, an example, and a description."""

    make: Callable[[int, list[int]], Mask]
    example: str
    what: str


def _first(mask: type[Mask]) -> str:
    return (mask.__doc__ or "").split("\n")[0]


def _documents(n: int, lengths: list[int]) -> Mask:
    """Texts end to end; what is left over is one more."""
    total = sum(lengths)
    if total > n or any(length < 1 for length in lengths):
        raise BadInput(f"texts of {', '.join(map(str, lengths))} tokens are not {n} tokens laid end to end")
    every = [*lengths, *([n - total] if total < n else [])]
    return DocumentMask(torch.tensor(every), n, max(every))


def _same(n: int, groups: list[int]) -> Mask:
    if len(groups) != n:
        raise BadInput(f"same needs the group of each of the {n} tokens, not {len(groups)} numbers")
    return SegmentMask(torch.tensor([groups]))


def _window(n: int, numbers: list[int]) -> Mask:
    return WindowMask(_single_number("window", numbers))


def _keys(n: int, numbers: list[int]) -> Mask:
    return PaddingMask(torch.tensor([_single_number("keys", numbers)]))


MASKS: dict[str, MaskKind] = {
    "none": MaskKind(
        lambda n, _: DenseMask(torch.ones(1, n, n, dtype=torch.bool)), "none", "Every token sees every token."
    ),
    "causal": MaskKind(lambda n, _: CausalMask(), "causal", _first(CausalMask)),
    "keys": MaskKind(_keys, "keys(3)", _first(PaddingMask)),
    "window": MaskKind(_window, "window(2)", _first(WindowMask)),
    "global": MaskKind(lambda n, tokens: GlobalMask(tokens), "window(2) | global(0)", _first(GlobalMask)),
    "documents": MaskKind(_documents, "causal & documents(3)", _first(DocumentMask)),
    "same": MaskKind(_same, "same(0, 0, 1, 1)", _first(SegmentMask)),
}


def parse_mask(text: str, n: int) -> Mask | None:
    """Return the mask of a formula for n tokens; None for "none"."""
    if text.strip() in ("", "none"):
        return None
    if len(text) > 500:
        raise BadInput("a mask is written in at most 500 characters")
    try:
        # "global" is a keyword of Python
        node = ast.parse(re.sub(r"\bglobal\b", "global_", text.strip()), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise _cannot_parse(text) from None
    return _mask(node, n, text)


def _mask(node: ast.AST, n: int, text: str) -> Mask:
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.BitAnd, ast.BitOr)):
        left, right = _mask(node.left, n, text), _mask(node.right, n, text)
        return left & right if isinstance(node.op, ast.BitAnd) else left | right
    name, numbers = _parse_call(node, text)
    if name not in MASKS:
        raise UnknownName(f"no mask is called '{name}'; {did_you_mean(name, MASKS)}")
    if name in ("none", "causal") and numbers:
        raise BadInput(f"'{name}' takes no numbers")
    if name not in ("none", "causal") and not numbers:
        raise BadInput(f"'{name}' needs numbers, as in {MASKS[name].example}")
    return MASKS[name].make(n, numbers)


def _parse_call(node: ast.AST, text: str) -> tuple[str, list[int]]:
    if isinstance(node, ast.Name):
        return node.id.removesuffix("_"), []
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.keywords:
        raise _cannot_parse(text)
    numbers = []
    for part in node.args:
        if not isinstance(part, ast.Constant) or type(part.value) is not int or part.value > 2**20:
            raise _cannot_parse(text)
        numbers.append(part.value)
    return node.func.id.removesuffix("_"), numbers


def _single_number(name: str, numbers: list[int]) -> int:
    if len(numbers) != 1 or numbers[0] < 1:
        raise BadInput(f"'{name}' takes one number, 1 or more")
    return numbers[0]


def _cannot_parse(text: str) -> BadInput:
    return BadInput(f"cannot read the mask {text!r:.60}; write causal, window(2), keys(3), joined by & and |")
