"""What people hand to a model and get back: typed inputs and outputs, one file each.

    inputs     Text  Image  Audio  PointCloud  Graph  Place  Number
    outputs    Text  Classes  TokenLabels  Span  MaskFills  Neighbors  Embedding  TokenEmbeddings  Boxes  Masks  Depth
               Strokes  Transcript  Episode  GeneratedImage  PointLabels

An input reads itself from a shell argument, a file, an upload, JSON or a Python object. An output prints itself, writes
itself as JSON with a schema, and compares itself with another of its kind. `see` draws outputs over inputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.core.lazy_exports import lazy_exports

_MODULES = {
    "base": ("Input", "Limits", "Output"),
    "audio": ("Audio", "AudioPreprocess"),
    "boxes": ("Box", "Boxes"),
    "image": ("Image", "Preprocess"),
    "point_cloud": ("PointCloud", "PointPreprocess"),
    "transcript": ("TimedWord", "Transcript"),
    "classes": ("Classes",),
    "depth": ("Depth",),
    "embedding": ("Embedding",),
    "episode": ("Episode",),
    "generated_image": ("GeneratedImage",),
    "graph": ("Graph",),
    "mask_fills": ("MaskFills",),
    "masks": ("Masks",),
    "neighbors": ("Neighbors",),
    "number": ("Number",),
    "place": ("Place",),
    "point_labels": ("PointLabels",),
    "span": ("Span",),
    "strokes": ("Strokes",),
    "text": ("Text",),
    "token_embeddings": ("TokenEmbeddings",),
    "token_labels": ("TokenLabels",),
}
if TYPE_CHECKING:
    from regard.modalities._exports import *
else:
    __getattr__, __dir__ = lazy_exports(__name__, _MODULES)
