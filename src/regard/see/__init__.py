"""Arrays and traces -> figures, HTML pages, text. Nothing here takes a model; the traces are recorded elsewhere.

    heads, alignment, layers, mask         grids of maps, as matplotlib figures             grid.py
    alignment_path, compare_alignments     the path of an aligner; several side by side     alignment_paths.py
    page                                   one HTML file to explore, works offline          page.py
    text_map, text_heatmap                 a map in the terminal                            terminal.py
    rollout, cross_rollout                 several layers as one map                        rollout.py
    merge_subwords                         a map over words from one over subwords          merge_subwords.py
    training_curve                         losses and scores of a training run              training_curve.py
    score_by_length                        a score over the length of the input             score_by_length.py
    gradient_by_distance                   gradient norm over distance                      gradient_by_distance.py
    positional_encoding                    position vectors, a row per position             positional_encoding.py
    gradient_estimators                    variance and bias of gradient estimators         gradient_estimators.py
    pca                                    named vectors in two dimensions                  pca.py
    strokes                                handwriting with its attention window            strokes.py
    ctc_lattice, audio_alignment           labels and attention over time                   audio.py
    story_hops                             which sentences of a story were read at each hop stories.py
    overlay, overlay_grid                  maps over a photo                                overlay.py
    channel_gates                          weights of channels, layer by layer              channel_gates.py
    glimpse_path                           where a model looked, in order                   glimpse_path.py
    point_cloud                            points in space from three sides, coloured       point_cloud.py
    graph                                  nodes and edges, coloured by a number a node     graph.py
    globe                                  values over longitude and latitude, and places   globe.py
    PixelAttribution                       attention of an image model on its pixels        pixel_attribution.py
    save                                   write a figure or a page to disk                 save.py

Importing this package does not import matplotlib; the first figure does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from regard.core.lazy_exports import public_dir
from regard.see.audio import audio_alignment, ctc_lattice
from regard.see.channel_gates import channel_gates
from regard.see.glimpse_path import glimpse_path
from regard.see.globe import globe
from regard.see.gradient_by_distance import gradient_by_distance
from regard.see.gradient_estimators import gradient_estimators
from regard.see.graph import graph
from regard.see.merge_subwords import merge_subwords
from regard.see.overlay import overlay, overlay_grid
from regard.see.page import page
from regard.see.pca import pca
from regard.see.pixel_attribution import PixelAttribution
from regard.see.point_cloud import point_cloud
from regard.see.positional_encoding import positional_encoding
from regard.see.rollout import cross_rollout, max_of_heads, mean_of_heads, min_of_heads, rollout, rollout_per_layer
from regard.see.save import save
from regard.see.score_by_length import score_by_length
from regard.see.strokes import strokes
from regard.see.terminal import text_heatmap, text_map

# Functions named like their module are imported here eagerly: a later import of the module would shadow them.
from regard.see.training_curve import training_curve

if TYPE_CHECKING:
    from regard.see.alignment_paths import alignment_path, compare_alignments
    from regard.see.grid import alignment, heads, layers, mask
    from regard.see.stories import story_hops

__all__ = [
    "PixelAttribution",
    "alignment",
    "alignment_path",
    "audio_alignment",
    "channel_gates",
    "compare_alignments",
    "cross_rollout",
    "ctc_lattice",
    "glimpse_path",
    "globe",
    "gradient_by_distance",
    "gradient_estimators",
    "graph",
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
    "point_cloud",
    "positional_encoding",
    "rollout",
    "rollout_per_layer",
    "save",
    "score_by_length",
    "story_hops",
    "strokes",
    "text_heatmap",
    "text_map",
    "training_curve",
]

_LAZY_MODULES = {
    "alignment_path": "alignment_paths",
    "compare_alignments": "alignment_paths",
    "story_hops": "stories",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'regard.see' has no attribute '{name}'")
    return getattr(import_module(f"regard.see.{_LAZY_MODULES.get(name, 'grid')}"), name)


__dir__ = public_dir(__name__)
