"""Taking out of a look what an exported file holds: whole maps while there is room for them, else evenly spread rows.

Room is counted in weights, one byte each in the file. Raw maps come first; the other views of the heads, and the
rollouts of all tokens, only where every one of them fits beside them.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from regard.core.errors import RegardError
from regard.serve.exported import Taken, joined, picked
from regard.tasks.look import Look

ROOM = 6 * 2**20  # weights of a file
LEAST = 16  # rows and columns that a map keeps, however many maps there are
TOKENS = 512  # of which rollouts are taken


def take(look: Look, room: int = ROOM) -> Taken:
    """All maps of a look that fit."""
    about = look.about()
    whole = sum(_size(map) for map in about["maps"])
    share = 1.0 if whole <= room else sqrt(room / whole)
    maps: dict[str, dict[str, np.ndarray]] = {}
    for map in about["maps"]:
        rows, columns = (min(map[k], max(LEAST, int(map[k] * share))) for k in ("n", "m"))
        raw = weights(look, map, picked(map["n"], rows))
        views = {"raw": joined(raw, columns)}
        if share == 1.0 and whole * 3 <= room:
            views |= {view: _seen_as(look, map, raw, view) for view in map.get("views", ()) if view != "raw"}
        maps[map["name"]] = views
        map["views"] = list(views)  # the page offers what the file holds
    rollout = _rollouts(look, about)
    about |= {"rollout": about.get("rollout") if rollout is not None else None, "relevance": []}
    picture = look.picture if look.picture is not None else (look.sound or {}).get("spectrogram")
    return Taken(about, maps, rollout, picture)


def weights(look: Look, map: dict[str, Any], rows: np.ndarray) -> np.ndarray:
    """Some rows of all heads of a map: H rows m."""
    found: np.ndarray = look.store[map["name"]].lines(rows.tolist())[0].detach().float().cpu().numpy()
    return found[:, :, : map["m"]]


def _seen_as(look: Look, map: dict[str, Any], raw: np.ndarray, view: str) -> np.ndarray:
    """Whole maps in another view; the same as `Look.row` gives line by line."""
    if view == "value":
        lengths: np.ndarray = look.store[map["name"]].values_norm()[0].detach().float().cpu().numpy()
        return raw * lengths[:, None, : map["m"]]
    out = raw.copy()
    for head, sinks in enumerate(look.sinks(map["name"])):
        out[head][:, sinks] = 0
    total, rest = raw.sum(-1, keepdims=True), out.sum(-1, keepdims=True)
    return np.where(rest > 1e-6, out * (total / np.maximum(rest, 1e-6)), 0)


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
