"""A look as one HTML file that works from disk: the explorer's own modules, its style and the numbers, all inside.

The file loads nothing. Its policy allows its one script and its one style by their hashes, pictures from its own data,
and nothing else. Words are data: they travel as JSON in which every character that could end the block is escaped, and
the page sets them as text only.

A weight takes one byte, the root of its share of the head's peak (see.page.quantise). A map may come with fewer rows
and columns than it has (`picked`, `joined`); the page then says so. All this is a pure function of what a look's
`about()` tells and of arrays (serve.taking).
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np

from regard.see.page import quantise
from regard.see.words import visible
from regard.serve.bundle import bundle

FORMAT = 1


@dataclass(frozen=True, eq=False)
class Taken:
    """What is taken out of a look: its `about()`, the arrays of its maps, and what it was read from."""

    about: dict[str, Any]
    maps: Mapping[str, Mapping[str, np.ndarray]]  # name -> view -> heads rows columns, no more than the map has
    rollout: np.ndarray | None = None  # queries cells
    picture: bytes | None = None  # PNG


def page(taken: Taken, title: str | None = None) -> str:
    """The file."""
    about = taken.about
    data = {
        "format": FORMAT,
        "about": about,
        "maps": {name: {view: _packed(w) for view, w in views.items()} for name, views in taken.maps.items()},
        "rollout": None if taken.rollout is None else _packed(taken.rollout[:, None]),
        "picture": None if taken.picture is None else base64.b64encode(taken.picture).decode("ascii"),
    }
    script, style = bundle("exported.js", _file), _file("style.css")
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
    filling = {
        "POLICY": policy,
        "TITLE": html.escape(visible(title or f"{about.get('model', '')}: what it looked at")),
        "STYLE": style,
        "DATA": block(data),
        "SCRIPT": script,
    }
    head, *rest = _file("exported.html").split("{{")
    for piece in rest:  # one pass over the frame: what was filled in is never looked at again
        key, tail = piece.split("}}", 1)
        head += filling[key] + tail
    return head


def numbers(taken: Taken) -> dict[str, Any]:
    """The same as plain values, weights rounded to 5 digits."""
    maps = {name: np.round(views["raw"].astype(np.float64), 5).tolist() for name, views in taken.maps.items()}
    return {"format": FORMAT, "about": taken.about, "maps": maps}


def picked(count: int, most: int) -> np.ndarray:
    """Which of `count` rows are kept where there is room for `most`: the middle of each bin."""
    starts = _starts(count, most)
    found: np.ndarray = (starts + np.append(starts[1:], count) - 1) // 2
    return found


def joined(weights: np.ndarray, most: int) -> np.ndarray:
    """Maps with at most so many columns; each is the largest of those it stands for."""
    found: np.ndarray = np.maximum.reduceat(weights, _starts(weights.shape[-1], most), axis=-1)
    return found


def _starts(count: int, most: int) -> np.ndarray:
    """Where the bins begin: cell k of `count` is in bin floor(k most / count)."""
    most = min(count, most)
    found: np.ndarray = -(-np.arange(most) * count // most)
    return found


def block(data: Any) -> str:
    """JSON that can stand in a page: nothing in it ends the block or opens a comment, whatever the words are."""
    told = json.dumps(data, separators=(",", ":"), allow_nan=False)  # ASCII, so U+2028 is escaped too
    for character in "<>&":
        told = told.replace(character, f"\\u{ord(character):04x}")
    return told


def _packed(weights: np.ndarray) -> dict[str, Any]:
    """Bytes of all heads, the byte that means zero, the peak of each head, and how many rows and columns there are."""
    weights = np.nan_to_num(weights)
    zero = 128 if weights.size and weights.min() < 0 else 0
    parts = [quantise(w, zero) for w in weights]
    return {
        "zero": zero,
        "cells": list(weights.shape[1:]),
        "peaks": [float(f"{peak:.6g}") for _, peak in parts],
        "bytes": base64.b64encode(b"".join(codes.tobytes() for codes, _ in parts)).decode("ascii"),
    }


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}'"


def _file(name: str) -> str:
    return (files("regard.serve") / "page" / name).read_text("utf-8")
