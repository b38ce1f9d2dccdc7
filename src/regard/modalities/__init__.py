"""What people hand to a model and get back: typed inputs and outputs, one file each.

    inputs     Text  Image  Audio
    outputs    Text  Classes  TokenLabels  Span  MaskFills  Neighbors  Embedding  Boxes  Masks  Depth  Strokes
               Transcript  Episode

An input reads itself from a shell argument, a file, an upload, JSON or a Python object. An output prints itself, writes
itself as JSON with a schema, and compares itself with another of its kind. `see` draws outputs over inputs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.modalities.audio import Audio
    from regard.modalities.base import Input, Limits, Output
    from regard.modalities.boxes import Box, Boxes
    from regard.modalities.classes import Classes
    from regard.modalities.depth import Depth
    from regard.modalities.embedding import Embedding
    from regard.modalities.episode import Episode
    from regard.modalities.image import Image, Preprocess
    from regard.modalities.mask_fills import MaskFills
    from regard.modalities.masks import Masks
    from regard.modalities.neighbors import Neighbors
    from regard.modalities.span import Span
    from regard.modalities.strokes import Strokes
    from regard.modalities.text import Text
    from regard.modalities.token_labels import TokenLabels
    from regard.modalities.transcript import Transcript

_MODULES = {
    **dict.fromkeys(("Input", "Limits", "Output"), "base"),
    **dict.fromkeys(("Box", "Boxes"), "boxes"),
    **dict.fromkeys(("Image", "Preprocess"), "image"),
    "Audio": "audio",
    "Classes": "classes",
    "Depth": "depth",
    "Embedding": "embedding",
    "Episode": "episode",
    "MaskFills": "mask_fills",
    "Masks": "masks",
    "Neighbors": "neighbors",
    "Span": "span",
    "Strokes": "strokes",
    "Text": "text",
    "TokenLabels": "token_labels",
    "Transcript": "transcript",
}

__all__ = [
    "Audio",
    "Box",
    "Boxes",
    "Classes",
    "Depth",
    "Embedding",
    "Episode",
    "Image",
    "Input",
    "Limits",
    "MaskFills",
    "Masks",
    "Neighbors",
    "Output",
    "Preprocess",
    "Span",
    "Strokes",
    "Text",
    "TokenLabels",
    "Transcript",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"regard.modalities.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'regard.modalities' has no attribute '{name}'")
