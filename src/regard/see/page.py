"""One HTML file to explore, out of traces alone: the explorer's page (see.exported) with the maps of one input.

Encoder, decoder and cross-attention as they were seen, and what they come to: the layers multiplied, up to each of
them (`rollout_maps`), with three ways to fuse the heads where heads stand elsewhere. Words come as they are named: traces do
not know where in a text they stood, nor values and gradients. A look does (interpret.inspection), and its file is the same page
with all that in it (serve.export).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from regard.core.trace import Trace
from regard.see import html_export
from regard.see.html_export import Snapshot, fit_sizes, max_pool_columns, sample_rows
from regard.see.maps import AttentionMaps, MapLike, as_trace, to_all_maps, to_maps
from regard.see.rollout import cross_rollout, max_of_heads, mean_of_heads, min_of_heads, rollout, rollout_per_layer
from regard.see.save import save
from regard.see.token_display import visible

HEAD_FUSIONS = {"mean": mean_of_heads, "max": max_of_heads, "min": min_of_heads}

MapEntry = tuple[dict[str, Any], np.ndarray]  # what there is to say about a map, and its weights H N M


def page(
    traces: Sequence[MapLike],
    path: str | os.PathLike[str] | None = None,
    title: str = "What the model looks at",
    note: str = "",
) -> str:
    """The page for the traces of one input, in the order they were seen; also written to `alignment_path` where one is given.

    A layer of kind "self" belongs to the decoder where its name begins with "decoder"; other kinds are cross-attention.
    """
    to_all_maps(traces)  # refuses what cannot be shown, with one line, before anything is made
    text = html_export.render_html(_snapshot([as_trace(t) for t in traces], visible(title), note), visible(title))
    if path is not None:
        save(text, path)
    return text


def rollout_maps(traces: Sequence[Trace], sides: Sequence[tuple[str, str]]) -> list[MapEntry]:
    """The layers multiplied, as maps more: those whose layers chain. `axis_labels`: the names of each trace's rows, columns.

    Of the encoder and of the decoder up to every layer; of cross-attention back to the input, through the encoder.
    """
    encoder, decoder, cross = _sorted(traces)
    of = dict(zip(map(id, traces), sides, strict=True))
    alone = not decoder and not cross
    found = list[MapEntry]()
    for stack, part in ((encoder, "" if alone else "encoder"), (decoder, "decoder")):
        if _chains(stack):
            for last, *fused in zip(
                stack, *(rollout_per_layer(stack, fuse) for fuse in HEAD_FUSIONS.values()), strict=True
            ):
                found.append(_fused(part, to_maps(last), (of[id(last)][0], of[id(stack[0])][1]), fused))
    if _chains(encoder):
        wrote = encoder[-1].operator().shape[-2]
        below = [(fuse, rollout(encoder, fuse)) for fuse in HEAD_FUSIONS.values()]
        for last in cross:
            if last.operator().shape[-1] == wrote:
                back = [cross_rollout(last, roll, fuse) for fuse, roll in below]
                found.append(_fused("cross to input", to_maps(last), (of[id(last)][0], of[id(encoder[0])][1]), back))
    return found


def _snapshot(traces: Sequence[Trace], title: str, note: str) -> Snapshot:
    """What the file holds of traces."""
    encoder, decoder, cross = _sorted(traces)
    alone = not decoder and not cross
    sides = _Sides()
    found, named = list[MapEntry](), list[tuple[str, str]]()
    for trace in traces:
        maps = to_maps(trace)
        below = any(trace is each for each in encoder)
        first = "word" if alone else "input" if below else "output"
        second = first if below or alone else "written" if any(trace is each for each in decoder) else "input"
        named.append((sides.name(maps.rows, first), sides.name(maps.columns, second)))
        found.append((_about(maps, named[-1]), maps.weights))
    found += rollout_maps(traces, named)
    arrays = {}
    for (told, weights), (rows, columns) in zip(found, fit_sizes([told for told, _ in found]), strict=True):
        some: np.ndarray = np.take(weights, sample_rows(told["n"], rows), axis=1)
        arrays[told["name"]] = {"raw": max_pool_columns(some, columns)}
    about = {
        "id": "traces",
        "model": title,
        "task": "",
        "note": "\n".join(visible(line) if line else "" for line in note.splitlines()),
        "given": {},
        "sides": sides.told,
        "input": found[0][0]["columns"],
        "output": {},
        "picture": False,
        "sound": None,
        "rollout": None,
        "relevance": [],
        "maps": [told for told, _ in found],
    }
    return Snapshot(about, arrays)


class _Sides:
    """Lists of words, each told once however many maps share it, under the name that was wished for if it is free."""

    def __init__(self) -> None:
        self.told: dict[str, dict[str, Any]] = {}

    def name(self, words: tuple[str, ...], wish: str) -> str:
        """The name of a list of words."""
        for known, side in self.told.items():
            if side["tokens"] == list(words):
                return known
        name, many = wish, len(words)
        while name in self.told:
            name = f"{wish} {len(self.told) + 1}"
        self.told[name] = {
            "name": name,
            "tokens": list(words),
            "places": [{"none": True}] * many,
            "special": [False] * many,
        }
        return name


def _about(maps: AttentionMaps, sides: tuple[str, str]) -> dict[str, Any]:
    """One map, as a look tells about its own; heads have their numbers in the model where only some were watched."""
    heads, n, m = maps.weights.shape
    told = {
        "name": visible(maps.name),
        "kind": maps.kind,
        "layer": maps.layer,
        "heads": heads,
        "rows": sides[0],
        "columns": sides[1],
        "n": n,
        "m": m,
        "exact": maps.exact,
        "views": ["raw"],
    }
    return told if maps.heads == tuple(range(heads)) else told | {"named": [str(head) for head in maps.heads]}


def _fused(part: str, last: AttentionMaps, sides: tuple[str, str], traces: Sequence[Trace]) -> MapEntry:
    """One line of a rollout: the ways to fuse heads stand where heads stand elsewhere."""
    each = [to_maps(trace) for trace in traces]
    weights = np.concatenate([maps.weights for maps in each])
    about = _about(last, sides) | {
        "name": f"rollout.{last.name}",
        "kind": "rollout",
        "part": part,
        "heads": len(each),
        "named": list(HEAD_FUSIONS),
        "m": weights.shape[2],
        "exact": all(maps.exact for maps in each),
        "views": ["raw"],
    }
    return about, weights


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
