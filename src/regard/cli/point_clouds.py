"""Files of point clouds on the command line: which arguments are some, and ``regard classify`` of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from regard.core.errors import BadInput

if TYPE_CHECKING:
    pass


def are_point_clouds(words: Sequence[str] | None) -> bool:
    """Return whether any of these arguments is the name of a file of points; a sentence that ends like one is not."""
    from regard.cli.file_classifier import are_files
    from regard.modalities.decode_points import SUFFIXES

    return are_files(words, SUFFIXES)


def default_classifier() -> str:
    """Return the name of the classifier of point clouds that ships with the package."""
    from regard.api import zoo_tasks

    for name, task in zoo_tasks().items():
        if task == "point_classification":
            return name
    raise BadInput("no model over point clouds ships with this version: give one with --model (regard train)")


def classify(words: Sequence[str], model: str | None, k: int | None, as_json: bool, device: str) -> int:
    """Classify each file, and return the exit status."""
    from regard.cli.file_classifier import classify_files
    from regard.modalities.point_cloud import PointCloud

    name = default_classifier() if model is None else model
    return classify_files(words, name, PointCloud, "point cloud", k, as_json, device)
