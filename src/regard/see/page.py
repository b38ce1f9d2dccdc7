"""One HTML file to explore, made from traces alone: the explorer's page (see.html_export) with the maps of one input.

It shows encoder, decoder and cross-attention, and their rollout up to every layer (`rollout_maps`) with three ways to
fuse the heads. Traces hold no text positions, values or gradients; an inspection does (interpret.inspection), and its
export (serve.explorer.export) is the same page with those included.
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

MapEntry = tuple[dict[str, Any], np.ndarray]  # the description of a map, and its weights H N M


def page(
    traces: Sequence[MapLike],
    path: str | os.PathLike[str] | None = None,
    title: str = "Attention of the model",
    note: str = "",
) -> str:
    """Return the page for the traces of one input, in layer order; also save it to `path` if given.

    A layer of kind "self" belongs to the decoder where its name begins with "decoder"; other kinds are cross-attention.
    """
    to_all_maps(traces)  # raises for traces that cannot be shown
    text = html_export.render_html(_snapshot([as_trace(t) for t in traces], visible(title), note), visible(title))
    if path is not None:
        save(text, path)
    return text


def rollout_maps(traces: Sequence[Trace], sides: Sequence[tuple[str, str]]) -> list[MapEntry]:
    """Return the rollout of every stack whose layers chain, as further maps.

    Of the encoder and the decoder up to every layer; of cross-attention through the encoder back to the input. `sides`
    names the rows and columns of each trace.
    """
    encoder, decoder, cross = _split_stacks(traces)
    side = dict(zip(map(id, traces), sides, strict=True))
    alone = not decoder and not cross
    found = list[MapEntry]()
    for stack, part in ((encoder, "" if alone else "encoder"), (decoder, "decoder")):
        if _chains(stack):
            for last, *fused in zip(
                stack, *(rollout_per_layer(stack, fuse) for fuse in HEAD_FUSIONS.values()), strict=True
            ):
                found.append(_fused(part, to_maps(last), (side[id(last)][0], side[id(stack[0])][1]), fused))
    if _chains(encoder):
        wrote = encoder[-1].operator().shape[-2]
        below = [(fuse, rollout(encoder, fuse)) for fuse in HEAD_FUSIONS.values()]
        for last in cross:
            if last.operator().shape[-1] == wrote:
                back = [cross_rollout(last, roll, fuse) for fuse, roll in below]
                found.append(
                    _fused("cross to input", to_maps(last), (side[id(last)][0], side[id(encoder[0])][1]), back)
                )
    return found


def _snapshot(traces: Sequence[Trace], title: str, note: str) -> Snapshot:
    """Return the contents of the file for these traces."""
    encoder, decoder, cross = _split_stacks(traces)
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
    for (entry, weights), (rows, columns) in zip(found, fit_sizes([entry for entry, _ in found]), strict=True):
        some: np.ndarray = np.take(weights, sample_rows(entry["n"], rows), axis=1)
        arrays[entry["name"]] = {"raw": max_pool_columns(some, columns)}
    about = {
        "id": "traces",
        "model": title,
        "task": "",
        "note": "\n".join(visible(line) if line else "" for line in note.splitlines()),
        "inputs": {},
        "axes": sides.by_name,
        "input_axis": found[0][0]["columns"],
        "output": {},
        "picture": False,
        "audio": None,
        "rollout_axis": None,
        "relevance_targets": [],
        "maps": [entry for entry, _ in found],
    }
    return Snapshot(about, arrays)


class _Sides:
    """Token lists of rows and columns; equal lists are stored once, under one name."""

    def __init__(self) -> None:
        self.by_name: dict[str, dict[str, Any]] = {}

    def name(self, tokens: tuple[str, ...], preferred: str) -> str:
        """Return the name of a token list, adding it if it is new."""
        for known, side in self.by_name.items():
            if side["tokens"] == list(tokens):
                return known
        name, many = preferred, len(tokens)
        while name in self.by_name:
            name = f"{preferred} {len(self.by_name) + 1}"
        self.by_name[name] = {
            "name": name,
            "tokens": list(tokens),
            "positions": [{"none": True}] * many,
            "special": [False] * many,
        }
        return name


def _about(maps: AttentionMaps, sides: tuple[str, str]) -> dict[str, Any]:
    """Describe one map, as `Inspection.about` does; with head numbers if only some heads were watched."""
    heads, n, m = maps.weights.shape
    entry = {
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
    return entry if maps.heads == tuple(range(heads)) else entry | {"named": [str(head) for head in maps.heads]}


def _fused(part: str, last: AttentionMaps, sides: tuple[str, str], traces: Sequence[Trace]) -> MapEntry:
    """Return the rollout up to one layer as a map whose heads are the ways to fuse heads."""
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


def _split_stacks(traces: Sequence[Trace]) -> tuple[list[Trace], list[Trace], list[Trace]]:
    own = [t for t in traces if t.kind == "self"]
    decoder = [t for t in own if t.name.startswith("decoder")]
    return [t for t in own if t not in decoder], decoder, [t for t in traces if t.kind != "self"]


def _chains(stack: Sequence[Trace]) -> bool:
    """Whether every layer has all rows and as many columns as the layer before has rows."""
    if not stack or any(t.queries is not None for t in stack):
        return False
    shapes = [t.operator().shape[-2:] for t in stack]
    around = [
        n == m or (t.geometry is not None and t.geometry.skip is not None)
        for t, (n, m) in zip(stack, shapes, strict=True)
    ]
    return all(around) and all(wrote[0] == reads[1] for wrote, reads in pairwise(shapes))
