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

if TYPE_CHECKING:
    from regard.modalities.audio import Audio, AudioPreprocess
    from regard.modalities.base import Input, Limits, Output
    from regard.modalities.boxes import Box, Boxes
    from regard.modalities.classes import Classes
    from regard.modalities.depth import Depth
    from regard.modalities.embedding import Embedding
    from regard.modalities.episode import Episode
    from regard.modalities.generated_image import GeneratedImage
    from regard.modalities.graph import Graph
    from regard.modalities.image import Image, Preprocess
    from regard.modalities.mask_fills import MaskFills
    from regard.modalities.masks import Masks
    from regard.modalities.neighbors import Neighbors
    from regard.modalities.number import Number
    from regard.modalities.place import Place
    from regard.modalities.point_cloud import PointCloud, PointPreprocess
    from regard.modalities.point_labels import PointLabels
    from regard.modalities.span import Span
    from regard.modalities.strokes import Strokes
    from regard.modalities.text import Text
    from regard.modalities.token_embeddings import TokenEmbeddings
    from regard.modalities.token_labels import TokenLabels
    from regard.modalities.transcript import TimedWord, Transcript

__all__ = [
    "Audio",
    "AudioPreprocess",
    "Box",
    "Boxes",
    "Classes",
    "Depth",
    "Embedding",
    "Episode",
    "GeneratedImage",
    "Graph",
    "Image",
    "Input",
    "Limits",
    "MaskFills",
    "Masks",
    "Neighbors",
    "Number",
    "Output",
    "Place",
    "PointCloud",
    "PointLabels",
    "PointPreprocess",
    "Preprocess",
    "Span",
    "Strokes",
    "Text",
    "TimedWord",
    "TokenEmbeddings",
    "TokenLabels",
    "Transcript",
]

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
__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
