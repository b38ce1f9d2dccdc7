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
    PixelAttribution                              a model's look at an image, on its pixels     sight.py
    save                               a figure or a page to disk, whole or not      save.py

Importing this room never imports matplotlib; the first figure does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from regard.see.audio import audio_alignment, ctc_lattice
from regard.see.gradient_by_distance import gradient_by_distance
from regard.see.gradient_estimators import gradient_estimators
from regard.see.merge_subwords import merge_subwords
from regard.see.overlay import overlay, overlay_grid
from regard.see.page import page
from regard.see.pca import pca
from regard.see.pixel_attribution import PixelAttribution
from regard.see.positional_encoding import positional_encoding
from regard.see.rollout import cross_rollout, max_of_heads, mean_of_heads, min_of_heads, rollout, rollout_per_layer
from regard.see.save import save
from regard.see.score_by_length import score_by_length
from regard.see.strokes import strokes
from regard.see.terminal import text_heatmap, text_map

# A function that shares its file's name is bound here at once: a later import of the file would take the name from it.
from regard.see.training_curve import training_curve

if TYPE_CHECKING:
    from regard.see.alignment_paths import alignment_path, compare_alignments
    from regard.see.grid import alignment, heads, layers, mask

__all__ = [
    "PixelAttribution",
    "alignment",
    "alignment_path",
    "audio_alignment",
    "compare_alignments",
    "cross_rollout",
    "ctc_lattice",
    "gradient_by_distance",
    "gradient_estimators",
    "heads",
    "layers",
    "mask",
    "max_of_heads",
    "mean_of_heads",
    "merge_subwords",
    "min_of_heads",
    "overlay",
    "overlay_grid",
    "page",
    "pca",
    "positional_encoding",
    "rollout",
    "rollout_per_layer",
    "save",
    "score_by_length",
    "strokes",
    "text_heatmap",
    "text_map",
    "training_curve",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'regard.see' has no attribute '{name}'")
    return getattr(
        import_module(
            "regard.see.alignment_paths" if name in ("alignment_path", "compare_alignments") else "regard.see.grid"
        ),
        name,
    )
