"""Arrays and traces -> pictures. Never takes a model: what to look at was decided by whoever made the traces.

    heads, alignment, layers, mask     grids of maps, as matplotlib figures          grid.py
    path, compare                      where an aligner walks; several side by side  walks.py
    page                               one HTML file to explore, needs no network    page.py
    draw, shade                        an alignment, a map in the terminal           text.py
    rollout, through                   several layers as one map                     rollout.py
    whole                              a map over words, out of one over pieces      whole.py
    curve                              a training run's losses and scores            curve.py
    lengths                            a score over the length of the input          lengths.py
    reach                              how far a gradient reaches                    reach.py
    encoding                           vectors of positions, place by place          encoding.py
    estimates                          estimates of a gradient: spread and bias      estimates.py
    plane                              vectors with names, in two dimensions         plane.py
    strokes                            handwriting, and what was read at each point  strokes.py
    lattice, listened                  what was heard in a sound, where in time      sound.py
    overlay, overlays                  maps over a photo                             overlay.py
    Sight                              a model's look at an image, on its pixels     sight.py
    save                               a figure or a page to disk, whole or not      save.py

Importing this room never imports matplotlib; the first figure does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# A function that shares its file's name is bound here at once: a later import of the file would take the name from it.
from regard.see.curve import curve
from regard.see.encoding import encoding
from regard.see.estimates import estimates
from regard.see.lengths import lengths
from regard.see.overlay import overlay, overlays
from regard.see.page import page
from regard.see.plane import plane
from regard.see.reach import reach
from regard.see.rollout import max_of_heads, mean_of_heads, min_of_heads, rollout, rollouts, through
from regard.see.save import save
from regard.see.sight import Sight
from regard.see.sound import lattice, listened
from regard.see.strokes import strokes
from regard.see.text import draw, shade
from regard.see.whole import whole

if TYPE_CHECKING:
    from regard.see.grid import alignment, heads, layers, mask
    from regard.see.walks import compare, path

__all__ = [
    "Sight",
    "alignment",
    "compare",
    "curve",
    "draw",
    "encoding",
    "estimates",
    "heads",
    "lattice",
    "layers",
    "lengths",
    "listened",
    "mask",
    "max_of_heads",
    "mean_of_heads",
    "min_of_heads",
    "overlay",
    "overlays",
    "page",
    "path",
    "plane",
    "reach",
    "rollout",
    "rollouts",
    "save",
    "shade",
    "strokes",
    "through",
    "whole",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'regard.see' has no attribute '{name}'")
    return getattr(import_module("regard.see.walks" if name in ("path", "compare") else "regard.see.grid"), name)
