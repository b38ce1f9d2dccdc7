"""Taking out of a look what an exported file holds: whole maps while there is room for them, else evenly spread rows.

Room is counted in weights, one byte each in the file. Raw maps come first; the other views of the heads, the rollouts
up to each layer and those of all tokens only where every one of them fits beside them. Relevance needs the model, once
there and back for each answer, so it is a step of its own (`relevances`): a server takes it in the model's turn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from regard.core.errors import RegardError
from regard.core.trace import Trace
from regard.see.exported import ROOM, Taken, fitting, joined, picked
from regard.see.page import rolled
from regard.tasks.look import Look

TOKENS = 512  # of which rollouts are taken
ANSWERS = 48  # for which relevance is taken: a sentence of them, not a book


def take(look: Look, room: int = ROOM, relevance: np.ndarray | None = None) -> Taken:
    """All maps of a look that fit, and beside them what spoke for each of its answers."""
    about = look.about()
    roomy = 3 * sum(_size(map) for map in about["maps"]) <= room
    maps: dict[str, dict[str, np.ndarray]] = {}
    for map, (rows, columns) in zip(about["maps"], fitting(about["maps"], room), strict=True):
        raw = weights(look, map, picked(map["n"], rows))
        views = {"raw": joined(raw, columns)}
        if roomy:
            views |= {view: _seen_as(look, map, raw, view) for view in map.get("views", ()) if view != "raw"}
        maps[map["name"]] = views
        map["views"] = list(views)  # the page offers what the file holds
    if roomy:
        more = _up_to_each_layer(look, about, maps)
        maps |= {map["name"]: {"raw": raw} for map, raw in more}
        about["maps"] += [map for map, _ in more]
    rollout = _rollouts(look, about)
    about |= {"rollout": about.get("rollout") if rollout is not None else None}
    about |= {"relevance": [] if relevance is None else about["relevance"]}
    picture = look.picture if look.picture is not None else (look.sound or {}).get("spectrogram")
    return Taken(about, maps, rollout, picture, relevance)


def relevances(look: Look) -> np.ndarray | None:
    """How much each input cell spoke for every answer; None where that cannot be asked, or of too many."""
    answers = look.about()["relevance"]
    if not answers or len(answers) > ANSWERS or len(look.sides[look.input].tokens) > TOKENS:
        return None
    try:
        return np.stack([look.relevance(target) for target in range(len(answers))])
    except RegardError:  # not with this model, or not through layers as these are; the page says that it has none
        return None


def weights(look: Look, map: dict[str, Any], rows: np.ndarray, valued: bool = False) -> np.ndarray:
    """Some rows of all heads of a map, as they are or times the length of what they move: H rows m."""
    lines = look.store[map["name"]].lines(rows.tolist(), valued=valued)
    found: np.ndarray = lines[0].detach().float().cpu().numpy()
    return found[:, :, : map["m"]]


def _seen_as(look: Look, map: dict[str, Any], raw: np.ndarray, view: str) -> np.ndarray:
    """Whole maps in another view; the same as `Look.row` gives line by line."""
    if view == "value":
        return weights(look, map, np.arange(map["n"]), valued=True)
    out = raw.copy()
    for head, sinks in enumerate(look.sinks(map["name"])):
        out[head][:, sinks] = 0
    total, rest = raw.sum(-1, keepdims=True), out.sum(-1, keepdims=True)
    return np.where(rest > 1e-6, out * (total / np.maximum(rest, 1e-6)), 0)


def _up_to_each_layer(look: Look, about: dict[str, Any], maps: dict[str, dict[str, np.ndarray]]) -> list[Any]:
    """Layers multiplied, where attention is all that tokens are mixed by, and every map is between tokens."""
    if any(held.geometry is not None or held.kind not in ("self", "cross") for held in look.store.values()):
        return []
    told = about["maps"]
    traces = [Trace(map["name"], torch.from_numpy(maps[map["name"]]["raw"])[None], map["kind"]) for map in told]
    found = rolled(traces, [(map["rows"], map["columns"]) for map in told])
    layers = {map["name"]: map["layer"] for map in told}
    return [(map | {"layer": layers[map["name"].removeprefix("rollout.")]}, raw) for map, raw in found]


def _rollouts(look: Look, about: dict[str, Any]) -> np.ndarray | None:
    side = about.get("rollout")
    if not side or len(look.sides[side].tokens) > TOKENS:
        return None
    try:
        return np.stack([look.rollout(query) for query in range(len(look.sides[side].tokens))])
    except RegardError:  # the layers of this model do not chain; the page says that it has none
        return None


def _size(map: dict[str, Any]) -> int:
    return int(map["heads"] * map["n"] * map["m"])
