"""Take from an inspection what an exported file holds: whole maps while they fit, else evenly spread rows.

Room is counted in weights, one byte each in the file. Raw maps come first; the other views of the heads, the rollouts
up to each layer and those of all tokens only where every one of them fits beside them. Relevance needs the model, once
there and back for each answer, so it is a step of its own (`all_relevances`): a server takes it in the model's turn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from regard.core.errors import RegardError
from regard.core.trace import Trace
from regard.interpret.inspection import Inspection
from regard.see.html_export import MAX_WEIGHTS, Snapshot, fit_sizes, max_pool_columns, sample_rows
from regard.see.map_views import remove_sinks
from regard.see.page import rollout_maps

MAX_TOKENS = 512  # of which rollouts are taken
MAX_ANSWERS = 48  # for which relevance is taken: a sentence of them, not a book


def take_snapshot(
    inspection: Inspection, max_weights: int = MAX_WEIGHTS, relevance: np.ndarray | None = None
) -> Snapshot:
    """Return the maps of an inspection that fit, with the relevance for each target."""
    about = inspection.about()
    fits = 3 * sum(_size(map) for map in about["maps"]) <= max_weights
    maps: dict[str, dict[str, np.ndarray]] = {}
    for map, (rows, columns) in zip(about["maps"], fit_sizes(about["maps"], max_weights), strict=True):
        raw = map_rows(inspection, map, sample_rows(map["n"], rows))
        views = {"raw": max_pool_columns(raw, columns)}
        if fits:
            views |= {view: _other_view(inspection, map, raw, view) for view in map.get("views", ()) if view != "raw"}
        maps[map["name"]] = views
        map["views"] = list(views)  # the page offers what the file holds
    if fits:
        more = _up_to_each_layer(inspection, about, maps)
        maps |= {map["name"]: {"raw": raw} for map, raw in more}
        about["maps"] += [map for map, _ in more]
    rollout = _rollouts(inspection, about)
    about |= {"rollout_axis": about.get("rollout_axis") if rollout is not None else None}
    about |= {"relevance_targets": [] if relevance is None else about["relevance_targets"]}
    picture = inspection.picture if inspection.picture is not None else (inspection.audio or {}).get("spectrogram")
    return Snapshot(about, maps, rollout, picture, relevance)


def all_relevances(inspection: Inspection) -> np.ndarray | None:
    """Return the relevance of each input cell for every target; None where there is none, or too many targets."""
    answers = inspection.about()["relevance_targets"]
    if not answers or len(answers) > MAX_ANSWERS or len(inspection.axes[inspection.input_axis].tokens) > MAX_TOKENS:
        return None
    try:
        return np.stack([inspection.relevance(target) for target in range(len(answers))])
    except RegardError:  # not with this model, or not through layers as these are; the page says that it has none
        return None


def map_rows(inspection: Inspection, map: dict[str, Any], rows: np.ndarray, valued: bool = False) -> np.ndarray:
    """Some rows of all heads of a map, raw or times the value norms: H rows m."""
    lines = inspection.store[map["name"]].rows_of(rows.tolist(), times_value_norm=valued)
    found: np.ndarray = lines[0].detach().float().cpu().numpy()
    return found[:, :, : map["m"]]


def _other_view(inspection: Inspection, map: dict[str, Any], raw: np.ndarray, view: str) -> np.ndarray:
    """Whole maps in another view; the same as `Inspection.row` gives row by row."""
    if view == "value":
        return map_rows(inspection, map, np.arange(map["n"]), valued=True)
    sinks = inspection.sinks(map["name"])
    return np.stack([remove_sinks(rows, own) for rows, own in zip(raw, sinks, strict=True)])


def _up_to_each_layer(
    inspection: Inspection, about: dict[str, Any], maps: dict[str, dict[str, np.ndarray]]
) -> list[Any]:
    """Layers multiplied, where attention is all that tokens are mixed by, and every map is between tokens."""
    if any(held.geometry is not None or held.kind not in ("self", "cross") for held in inspection.store.values()):
        return []
    told = about["maps"]
    traces = [Trace(map["name"], torch.from_numpy(maps[map["name"]]["raw"])[None], map["kind"]) for map in told]
    found = rollout_maps(traces, [(map["rows"], map["columns"]) for map in told])
    layers = {map["name"]: map["layer"] for map in told}
    return [(map | {"layer": layers[map["name"].removeprefix("rollout.")]}, raw) for map, raw in found]


def _rollouts(inspection: Inspection, about: dict[str, Any]) -> np.ndarray | None:
    side = about.get("rollout_axis")
    if not side or len(inspection.axes[side].tokens) > MAX_TOKENS:
        return None
    try:
        return np.stack([inspection.rollout(query) for query in range(len(inspection.axes[side].tokens))])
    except RegardError:  # the layers of this model do not chain; the page says that it has none
        return None


def _size(map: dict[str, Any]) -> int:
    return int(map["heads"] * map["n"] * map["m"])
