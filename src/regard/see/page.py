"""One HTML file to explore: encoder, decoder, cross-attention and rollout, as lines between words and as a matrix.

The file needs nothing but a browser: style, script and numbers are inside, and its own policy forbids it to load
anything or to run any script but the one it came with. Words are data: they travel as JSON in which every character
that could end the script tag is escaped, and reach the page as text only.

A weight w takes one byte. The byte holds the root of w over the head's peak, since an eye (and a reader of "0.4 %")
wants small weights told apart more finely than large ones:

    all w ≥ 0      w ≈ peak · s²        s = byte / 255
    some w < 0     w ≈ peak · s |s|     s = (byte − 128) / 127            |error| ≤ peak / 255, or / 127

Row sums are told exactly beside them, so that the page can say what is missing where a row does not sum to one.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib.resources import files
from itertools import pairwise
from typing import Any

import numpy as np

from regard.core.trace import Trace
from regard.see.maps import Maps, Seen, read, read_all, trace_of
from regard.see.rollout import max_of_heads, mean_of_heads, min_of_heads, rollout, rollouts, through
from regard.see.save import save
from regard.see.words import visible

CAVEAT = (
    "Attention shows where a layer reads from, not why the model answers as it does: what is read (the values), the "
    "residual path around attention and the feed-forward layers do not appear in these pictures."
)

_FUSED = {"mean": mean_of_heads, "max": max_of_heads, "min": min_of_heads}


def page(
    traces: Sequence[Seen],
    path: str | os.PathLike[str] | None = None,
    title: str = "What the model looks at",
    note: str = "",
) -> str:
    """The page for the traces of one input, in the order they were seen; also written to `path` where one is given.

    A layer of kind "self" belongs to the decoder where its name begins with "decoder"; other kinds are cross-attention.
    """
    read_all(traces)  # refuses what cannot be shown, with one line, before anything is made
    told = [trace_of(t) for t in traces]
    names = _Names()
    views = [view for view in (*_layers(told, names), _rollouts(told, names)) if view["layers"]]
    said = "\n".join(visible(line) if line else "" for line in note.splitlines())
    text = _fill(visible(title), {"title": visible(title), "note": said, "names": names.lists, "views": views})
    if path is not None:
        save(text, path)
    return text


def quantise(weights: np.ndarray, zero: int) -> tuple[np.ndarray, float]:
    """Bytes and the peak; `zero` is the byte that means zero: 0, or 128 where weights may be negative."""
    peak = float(np.abs(weights).max())
    root = np.sqrt(np.abs(weights) / (peak or 1.0)) * np.sign(weights)
    return np.rint(zero + (255 - zero) * root).astype(np.uint8), peak


def restore(codes: np.ndarray, zero: int, peak: float) -> np.ndarray:
    """The weights that bytes stand for, as the page reads them."""
    root = (codes.astype(np.float64) - zero) / (255 - zero)
    weights: np.ndarray = peak * root * np.abs(root)
    return weights


class _Names:
    """Lists of words, each told once however many layers share it."""

    def __init__(self) -> None:
        self.lists: list[tuple[str, ...]] = []

    def index(self, words: tuple[str, ...]) -> int:
        if words not in self.lists:
            self.lists.append(words)
        return self.lists.index(words)


def _layers(traces: Sequence[Trace], names: _Names) -> Iterable[dict[str, Any]]:
    """The three views of single layers."""
    encoder, decoder, cross = _sorted(traces)
    alone = not cross and not decoder
    yield _view(
        "encoder",
        "Self-attention" if alone else "Encoder",
        "Every word looks at words of the same sentence.",
        ("word", "looks at", "", "is looked at by"),
        [_layer(read(t), names) for t in encoder],
    )
    yield _view(
        "decoder",
        "Decoder",
        "Every output word looks at itself and the output words before it.",
        ("output word", "looks at", "", "is looked at by"),
        [_layer(read(t), names) for t in decoder],
    )
    yield _view(
        "cross",
        "Cross",
        "Every output word looks at the words of the input.",
        ("output word", "looks at", "input word", "is looked at by"),
        [_layer(read(t), names) for t in cross],
    )


def _rollouts(traces: Sequence[Trace], names: _Names) -> dict[str, Any]:
    """Layers multiplied, with three ways to fuse the heads in the place of heads; empty where layers do not chain."""
    encoder, decoder, cross = _sorted(traces)
    layers = []
    first = "encoder up to" if decoder or cross else "layers up to"
    for stack, group in ((encoder, first), (decoder, "decoder up to")):
        if _chains(stack):
            for last, *fused in zip(stack, *(rollouts(stack, f) for f in _FUSED.values()), strict=True):
                layers.append(_fused(group, read(last), fused, names))
    if _chains(encoder):
        wrote = encoder[-1].operator().shape[-2]
        below = [(f, rollout(encoder, f)) for f in _FUSED.values()]
        for t in cross:
            if t.operator().shape[-1] == wrote:
                layers.append(_fused("cross to input", read(t), [through(t, roll, f) for f, roll in below], names))
    says = (
        "Layers multiplied, half of each going around attention: which words of the input reach a word after so many "
        "layers. Only the layers in this page take part."
    )
    return _view("rollout", "Rollout", says, ("word", "is made of", "", "is part of"), layers)


def _sorted(traces: Sequence[Trace]) -> tuple[list[Trace], list[Trace], list[Trace]]:
    own = [t for t in traces if t.kind == "self"]
    decoder = [t for t in own if t.name.startswith("decoder")]
    return [t for t in own if t not in decoder], decoder, [t for t in traces if t.kind != "self"]


def _chains(stack: Sequence[Trace]) -> bool:
    """Whether the layers hold all rows and each reads what the one before wrote."""
    if not stack or any(t.queries is not None for t in stack):
        return False
    shapes = [t.operator().shape[-2:] for t in stack]
    around = [
        n == m or (t.geometry is not None and t.geometry.skip is not None)
        for t, (n, m) in zip(stack, shapes, strict=True)
    ]
    return all(around) and all(wrote[0] == reads[1] for wrote, reads in pairwise(shapes))


def _fused(group: str, last: Maps, traces: list[Trace], names: _Names) -> dict[str, Any]:
    """One line of the rollout view: the ways to fuse stand where heads stand elsewhere."""
    maps = [read(t) for t in traces]
    weights = np.concatenate([m.weights for m in maps])
    fused = replace(last, name=f"{group} {last.layer}", weights=weights, heads=(0, 1, 2), columns=maps[0].columns)
    told = {
        "label": last.layer,
        "group": group,
        "heads": list(_FUSED),
        "mean": False,
        "exact": all(m.exact for m in maps),
    }
    return _layer(fused, names) | told


def _layer(maps: Maps, names: _Names) -> dict[str, Any]:
    """One layer as plain values: names by number, a peak and row sums a head, all bytes in one string."""
    zero = 128 if maps.weights.min() < 0 else 0
    parts = [quantise(w, zero) for w in maps.weights]
    sums = maps.weights.sum(-1, dtype=np.float64)
    return {
        "label": maps.layer,
        "name": visible(maps.name),
        "heads": [str(h) for h in maps.heads],
        "mean": len(maps.heads) > 1,
        "exact": maps.exact,
        "rows": names.index(maps.rows),
        "columns": names.index(maps.columns),
        "zero": zero,
        "peaks": [float(f"{p:.6g}") for _, p in parts],
        "sums": None if np.abs(sums - 1).max() < 0.002 else np.round(sums, 4).tolist(),
        "bytes": base64.b64encode(b"".join(c.tobytes() for c, _ in parts)).decode("ascii"),
    }


def _view(
    key: str, title: str, says: str, sides: tuple[str, str, str, str], layers: list[dict[str, Any]]
) -> dict[str, Any]:
    """`sides`: what stands left, how it looks, what stands right, and the same said from the right."""
    return {"id": key, "title": title, "says": says, "sides": sides, "layers": layers}


def _fill(title: str, data: dict[str, Any]) -> str:
    """The page with style, script and data inside."""
    here = files("regard.see")
    frame, style, script = (here.joinpath(f"page.{kind}").read_text("utf-8") for kind in ("html", "css", "js"))
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    # Non-ASCII leaves as \uXXXX, U+2028 among it; < > & too, so that no word can close the tag or open a comment.
    told = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        told = told.replace(character, f"\\u{ord(character):04x}")
    filling = {
        "TITLE": html.escape(title),
        "CAVEAT": html.escape(CAVEAT),
        "DIGEST": digest,
        "STYLE": style,
        "SCRIPT": script,
        "DATA": told,
    }
    head, *rest = frame.split("{{")
    for piece in rest:  # one pass over the frame: what was filled in is never looked at again
        key, tail = piece.split("}}", 1)
        head += filling[key] + tail
    return head
