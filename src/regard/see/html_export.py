"""Export attention maps as one HTML file that works offline: the explorer's scripts, its style and the weights.

The file loads nothing. Its Content-Security-Policy allows its one script and its one style by their hashes, images from
its own data, and nothing else. Tokens are stored as escaped JSON, and the page inserts them as text only.

A weight w takes one byte, the square root of w over the head's peak, which resolves small weights more finely:

    all w ≥ 0      w ≈ peak · s²        s = byte / 255
    some w < 0     w ≈ peak · s |s|     s = (byte − 128) / 127            |error| ≤ peak / 255, or / 127

Exact row sums are stored too, so that the page can report rows that do not sum to one. A large map is stored with fewer
rows (`sample_rows`) and columns (`max_pool_columns`); the page says so. The input is a `Snapshot`, of an inspection
(serve.explorer.snapshot) or of traces (see.page).
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
MAX_WEIGHTS = 6 * 2**20  # per file
MIN_SIDE = 16  # rows and columns stored of a map at least
NORMALISED_VIEWS = ("raw", "without_sink")  # views whose rows sum to one
PAGE = files("regard") / "serve" / "explorer" / "page"  # read as data; nothing of serve is imported


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The contents of an exported file: a description (`Inspection.about()`), maps, and optional extras."""

    about: dict[str, Any]
    maps: Mapping[str, Mapping[str, np.ndarray]]  # name -> view -> array H N M, possibly reduced
    rollout: np.ndarray | None = None  # queries, cells
    picture: bytes | None = None  # PNG
    relevance: np.ndarray | None = None  # answers, cells


def render_html(snapshot: Snapshot, title: str | None = None) -> str:
    """Return the HTML of a snapshot."""
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
    heading = title or f"{about.get('model', '')}: attention"
    return _fill_template("exported.html", "exported.js", ("style.css",), heading, data)


def render_gallery(found: Mapping[str, Any], title: str) -> str:
    """Return the HTML of a gallery of mechanisms (interpret.mechanism_gallery)."""
    return _fill_template("gallery.html", "gallery_page.js", ("style.css", "gallery.css"), title, found)


def _fill_template(template: str, script: str, styles: Sequence[str], title: str, data: Any) -> str:
    """Return a page of the explorer as one file."""
    code, style = bundle(script, _file), "".join(map(_file, styles))
    policy = (
        f"default-src 'none'; script-src {_hash(code)}; style-src {_hash(style)}; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
    filling = {
        "POLICY": policy,
        "TITLE": html.escape(visible(title)),
        "STYLE": style,
        "DATA": escape_json(data),
        "SCRIPT": code,
    }
    head, *rest = _file(template).split("{{")
    for piece in rest:  # one pass over the template: inserted text is not scanned for placeholders
        key, tail = piece.split("}}", 1)
        head += filling[key] + tail
    return head


def quantize_int8(weights: np.ndarray, zero: int) -> tuple[np.ndarray, float]:
    """Return the bytes and the peak; `zero` is the byte of weight 0: 0, or 128 if weights may be negative."""
    peak = float(np.abs(weights).max())
    root = np.sqrt(np.abs(weights) / (peak or 1.0)) * np.sign(weights)
    return np.rint(zero + (255 - zero) * root).astype(np.uint8), peak


def dequantise(codes: np.ndarray, zero: int, peak: float) -> np.ndarray:
    """Return the weights that the bytes stand for, as embedded.js computes them."""
    root = (codes.astype(np.float64) - zero) / (255 - zero)
    weights: np.ndarray = peak * root * np.abs(root)
    return weights


def to_json(snapshot: Snapshot) -> dict[str, Any]:
    """Return a snapshot as JSON values, weights rounded to 5 digits."""
    maps = {name: np.round(views["raw"].astype(np.float64), 5).tolist() for name, views in snapshot.maps.items()}
    return {"format": FORMAT, "about": snapshot.about, "maps": maps}


def fit_sizes(maps: Sequence[Mapping[str, Any]], max_weights: int = MAX_WEIGHTS) -> list[tuple[int, int]]:
    """Return the rows and columns to store of each map so that all fit into `max_weights`."""
    total = sum(map["heads"] * map["n"] * map["m"] for map in maps)
    share = 1.0 if total <= max_weights else sqrt(max_weights / total)
    sizes = [[min(map[k], max(MIN_SIDE, int(map[k] * share))) for k in ("n", "m")] for map in maps]
    return [(rows, columns) for rows, columns in sizes]


def sample_rows(count: int, size: int) -> np.ndarray:
    """Return the indices of at most `size` of `count` rows: the middle of each bin."""
    starts = _bin_starts(count, size)
    found: np.ndarray = (starts + np.append(starts[1:], count) - 1) // 2
    return found


def max_pool_columns(weights: np.ndarray, size: int) -> np.ndarray:
    """Max-pool the columns of maps to at most `size`."""
    found: np.ndarray = np.maximum.reduceat(weights, _bin_starts(weights.shape[-1], size), axis=-1)
    return found


def _bin_starts(count: int, size: int) -> np.ndarray:
    """Return where the bins begin: cell k of `count` is in bin floor(k size / count)."""
    size = min(count, size)
    found: np.ndarray = -(-np.arange(size) * count // size)
    return found


def escape_json(data: Any) -> str:
    """Return JSON safe inside a <script> block: `<`, `>` and `&` are escaped."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)  # ASCII, so U+2028 is escaped too
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _packed(weights: np.ndarray, normalised: bool = False) -> dict[str, Any]:
    """Encode maps H N M as JSON values: bytes, zero, peak per head, shape; if `normalised`, row sums (1: all are 1)."""
    weights = np.nan_to_num(weights)
    sums = weights.sum(-1, dtype=np.float64)
    row_sums = 1 if np.abs(sums - 1).max(initial=0.0) < 0.002 else np.round(sums, 4).tolist()
    zero = 128 if weights.size and weights.min() < 0 else 0
    parts = [quantize_int8(w, zero) for w in weights]
    return {
        "zero": zero,
        "cells": list(weights.shape[1:]),
        "sums": row_sums if normalised else None,
        "peaks": [float(f"{peak:.6g}") for _, peak in parts],
        "bytes": base64.b64encode(b"".join(codes.tobytes() for codes, _ in parts)).decode("ascii"),
    }


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}'"


def _file(name: str) -> str:
    return (PAGE / name).read_text("utf-8")
