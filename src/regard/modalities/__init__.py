"""What people hand to a model and get back: typed inputs and outputs, one file each.

    inputs     Text  Image  Audio  Number
    outputs    Text  Classes  TokenLabels  Span  MaskFills  Neighbors  Embedding  TokenEmbeddings  Boxes  Masks  Depth
               Strokes  Transcript  Episode

An input reads itself from a shell argument, a file, an upload, JSON or a Python object. An output prints itself, writes
itself as JSON with a schema, and compares itself with another of its kind. `see` draws outputs over inputs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.modalities.audio import Audio, AudioPreprocess
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
    from regard.modalities.number import Number
    from regard.modalities.span import Span
    from regard.modalities.strokes import Strokes
    from regard.modalities.text import Text
    from regard.modalities.token_embeddings import TokenEmbeddings
    from regard.modalities.token_labels import TokenLabels
    from regard.modalities.transcript import TimedWord, Transcript

_MODULES = {
    **dict.fromkeys(("Input", "Limits", "Output"), "base"),
    **dict.fromkeys(("Box", "Boxes"), "boxes"),
    **dict.fromkeys(("Image", "Preprocess"), "image"),
    **dict.fromkeys(("Audio", "AudioPreprocess"), "audio"),
    **dict.fromkeys(("TimedWord", "Transcript"), "transcript"),
    "Classes": "classes",
    "Depth": "depth",
    "Embedding": "embedding",
    "Episode": "episode",
    "MaskFills": "mask_fills",
    "Masks": "masks",
    "Neighbors": "neighbors",
    "Number": "number",
    "Span": "span",
    "Strokes": "strokes",
    "Text": "text",
    "TokenEmbeddings": "token_embeddings",
    "TokenLabels": "token_labels",
}

__all__ = [
    "Audio",
    "AudioPreprocess",
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
    "Number",
    "Output",
    "Preprocess",
    "Span",
    "Strokes",
    "Text",
    "TimedWord",
    "TokenEmbeddings",
    "TokenLabels",
    "Transcript",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"regard.modalities.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'regard.modalities' has no attribute '{name}'")
