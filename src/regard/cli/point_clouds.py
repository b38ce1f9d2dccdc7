"""Files of point clouds on the command line: which arguments are some, and ``regard classify`` of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from regard.core.errors import BadInput

if TYPE_CHECKING:
    from regard.cli.batch_runner import Result, Show


def are_point_clouds(words: Sequence[str] | None) -> bool:
    """Return whether any of these arguments is the name of a file of points; a sentence that ends like one is not."""
    from regard.cli.images import path_exists
    from regard.modalities.decode_points import SUFFIXES

    return any(
        word.lower().endswith(SUFFIXES) and (len(word.split()) == 1 or path_exists(word)) for word in words or ()
    )


def default_classifier() -> str:
    """Return the name of the classifier of point clouds that ships with the package."""
    from regard.api import zoo

    for name, folder in zoo().items():
        task = json.loads((folder / "config.json").read_text("utf-8")).get("task") or {}
        if task.get("name") == "point_classification":
            return name
    raise BadInput("no model over point clouds ships with this version: give one with --model (regard train)")


def classify(words: Sequence[str], model: str | None, show: Show, as_json: bool, device: str) -> int:
    """Classify each file, and return the exit status."""
    from regard.cli import print_status
    from regard.cli.batch_runner import BatchRunner, argument_items, printable
    from regard.cli.images import describe_labels
    from regard.cli.prepare import load_predictor, prepare_predictor
    from regard.modalities.classes import Classes
    from regard.modalities.point_cloud import PointCloud
    from regard.tasks.predictor import Predictor

    name = default_classifier() if model is None else model
    found = load_predictor(name)
    if not isinstance(found, Predictor) or [*found.inputs.values()] != [PointCloud] or found.outputs is not Classes:
        raise BadInput(f"{words[0]} is a point cloud, and {name} is a {type(found).__name__}, which takes none")
    classifier = prepare_predictor(found, device)
    print_status(describe_labels(name, classifier))
    is_named = len(words) != 1

    def named(result: Result) -> list[str]:
        return ["\t".join(filter(None, [printable(result.item.input) if is_named else "", *show(result)]))]

    runner = BatchRunner.of(classifier, classifier.make_options({}), "classify")
    return runner.run(argument_items(classifier, words), named, as_json)
