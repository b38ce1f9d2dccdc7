"""Maps as one HTML file that works from disk: the explorer's own modules, its style and the numbers, all inside.

The file loads nothing. Its policy allows its one script and its one style by their hashes, pictures from its own data,
and nothing else. Words are data: they travel as JSON in which every character that could end the block is escaped, and
the page sets them as text only.

A weight w takes one byte. The byte holds the root of w over the head's peak, since an eye (and a reader of "0.4 %")
wants small weights told apart more finely than large ones:

    all w ≥ 0      w ≈ peak · s²        s = byte / 255
    some w < 0     w ≈ peak · s |s|     s = (byte − 128) / 127            |error| ≤ peak / 255, or / 127

Row sums are told exactly beside them, so that the page can say what is missing where a row does not sum to one. A map
may come with fewer rows and columns than it has (`picked`, `joined`); the page then says so. All this is a pure
function of what was told about the maps and of arrays: those of a look (serve.taking), or of traces (see.page).
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from math import sqrt
from typing import Any

import numpy as np

from regard.see.bundle import bundle
from regard.see.token_display import visible

FORMAT = 1
MAX_WEIGHTS = 6 * 2**20  # weights of a file
MIN_SIDE = 16  # rows and columns that a map keeps, however many maps there are
NORMALISED_VIEWS = ("raw", "without_sink")  # views whose rows are shares of something
PAGE = (
    files("regard") / "serve" / "explorer" / "page"
)  # the explorer's page, which is data here: nothing of serve is imported


@dataclass(frozen=True, eq=False)
class Snapshot:
    """What a file holds: what there is to say about its maps (a look's `about()`), their arrays, what was read."""

    about: dict[str, Any]
    maps: Mapping[str, Mapping[str, np.ndarray]]  # name -> view -> heads rows columns, no more than the map has
    rollout: np.ndarray | None = None  # queries cells
    picture: bytes | None = None  # PNG
    relevance: np.ndarray | None = None  # answers cells


def render_html(snapshot: Snapshot, title: str | None = None) -> str:
    """The file."""
    about = snapshot.about
    wide = {map["name"]: map["m"] for map in about["maps"]}
    data = {
        "format": FORMAT,
        "about": about,
        "maps": {
            name: {view: _packed(w, view in NORMALISED_VIEWS and w.shape[2] == wide[name]) for view, w in views.items()}
            for name, views in snapshot.maps.items()
        },
        "rollout": None if snapshot.rollout is None else _packed(snapshot.rollout[:, None], True),
        "relevance": None if snapshot.relevance is None else _packed(snapshot.relevance[:, None]),
        "picture": None if snapshot.picture is None else base64.b64encode(snapshot.picture).decode("ascii"),
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
        "DATA": escape_json(data),
        "SCRIPT": script,
    }
    head, *rest = _file("exported.html").split("{{")
    for piece in rest:  # one pass over the frame: what was filled in is never looked at again
        key, tail = piece.split("}}", 1)
        head += filling[key] + tail
    return head


def quantize_int8(weights: np.ndarray, zero: int) -> tuple[np.ndarray, float]:
    """Bytes and the peak; `zero` is the byte that means zero: 0, or 128 where weights may be negative."""
    peak = float(np.abs(weights).max())
    root = np.sqrt(np.abs(weights) / (peak or 1.0)) * np.sign(weights)
    return np.rint(zero + (255 - zero) * root).astype(np.uint8), peak


def dequantise(codes: np.ndarray, zero: int, peak: float) -> np.ndarray:
    """The weights that bytes stand for, as the page reads them."""
    root = (codes.astype(np.float64) - zero) / (255 - zero)
    weights: np.ndarray = peak * root * np.abs(root)
    return weights


def to_json(snapshot: Snapshot) -> dict[str, Any]:
    """The same as plain values, weights rounded to 5 digits."""
    maps = {name: np.round(views["raw"].astype(np.float64), 5).tolist() for name, views in snapshot.maps.items()}
    return {"format": FORMAT, "about": snapshot.about, "maps": maps}


def fit_sizes(maps: Sequence[Mapping[str, Any]], max_weights: int = MAX_WEIGHTS) -> list[tuple[int, int]]:
    """How many rows and columns of each of these maps are kept, so that all fit."""
    whole = sum(map["heads"] * map["n"] * map["m"] for map in maps)
    share = 1.0 if whole <= max_weights else sqrt(max_weights / whole)
    kept = [[min(map[k], max(MIN_SIDE, int(map[k] * share))) for k in ("n", "m")] for map in maps]
    return [(rows, columns) for rows, columns in kept]


def sample_rows(count: int, most: int) -> np.ndarray:
    """Which of `count` rows are kept where there is room for `most`: the middle of each bin."""
    starts = _starts(count, most)
    found: np.ndarray = (starts + np.append(starts[1:], count) - 1) // 2
    return found


def max_pool_columns(weights: np.ndarray, most: int) -> np.ndarray:
    """Maps with at most so many columns; each is the largest of those it stands for."""
    found: np.ndarray = np.maximum.reduceat(weights, _starts(weights.shape[-1], most), axis=-1)
    return found


def _starts(count: int, most: int) -> np.ndarray:
    """Where the bins begin: cell k of `count` is in bin floor(k most / count)."""
    most = min(count, most)
    found: np.ndarray = -(-np.arange(most) * count // most)
    return found


def escape_json(data: Any) -> str:
    """JSON that can stand in a page: nothing in it ends the block or opens a comment, whatever the words are."""
    told = json.dumps(data, separators=(",", ":"), allow_nan=False)  # ASCII, so U+2028 is escaped too
    for character in "<>&":
        told = told.replace(character, f"\\u{ord(character):04x}")
    return told


def _packed(weights: np.ndarray, shares: bool = False) -> dict[str, Any]:
    """Bytes of all heads, the byte that means zero, the peak of each head, and how many rows and columns there are.

    Of weights that are `shares` also the sums of their rows; 1 where all are.
    """
    weights = np.nan_to_num(weights)
    sums = weights.sum(-1, dtype=np.float64)
    told = 1 if np.abs(sums - 1).max(initial=0.0) < 0.002 else np.round(sums, 4).tolist()
    zero = 128 if weights.size and weights.min() < 0 else 0
    parts = [quantize_int8(w, zero) for w in weights]
    return {
        "zero": zero,
        "cells": list(weights.shape[1:]),
        "sums": told if shares else None,
        "peaks": [float(f"{peak:.6g}") for _, peak in parts],
        "bytes": base64.b64encode(b"".join(codes.tobytes() for codes, _ in parts)).decode("ascii"),
    }


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}'"


def _file(name: str) -> str:
    return (PAGE / name).read_text("utf-8")
