"""``regard classify`` of files whose kind their names tell: point clouds and recordings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.core.errors import BadInput, shorten, with_article

if TYPE_CHECKING:
    from regard.cli.batch_runner import BatchRunner, Result
    from regard.modalities.base import Input
    from regard.tasks.predictor import Predictor


def are_files(words: Sequence[str] | None, suffixes: tuple[str, ...]) -> bool:
    """Return whether any of these arguments is the name of such a file; a sentence that ends like one is not."""
    from regard.cli.images import path_exists

    return any(
        word.lower().endswith(suffixes) and (len(word.split()) == 1 or path_exists(word)) for word in words or ()
    )


def are_recordings(words: Sequence[str] | None) -> bool:
    """Return whether any of these arguments is the name of a sound file."""
    from regard.modalities.audio import SUFFIXES

    return are_files(words, SUFFIXES)


def takes_recordings(found: object) -> bool:
    """Return whether a model classifies recordings."""
    from regard.modalities.audio import Audio
    from regard.modalities.classes import Classes
    from regard.tasks.predictor import Predictor

    return isinstance(found, Predictor) and [*found.inputs.values()] == [Audio] and found.outputs is Classes


def classify_files(
    words: Sequence[str], name: str, kind: type[Input], noun: str, k: int | None, as_json: bool, device: str
) -> int:
    """Classify each file by the model of a name, print its `k` most likely labels, and return the exit status."""
    from regard.cli import print_status
    from regard.cli.batch_runner import argument_items
    from regard.cli.images import describe_labels, path_exists
    from regard.cli.prepare import load_predictor, prepare_predictor
    from regard.core.terminal_text import printable
    from regard.modalities.classes import Classes
    from regard.tasks.predictor import Predictor

    found = load_predictor(name)
    if not isinstance(found, Predictor) or [*found.inputs.values()] != [kind] or found.outputs is not Classes:
        raise BadInput(f"{words[0]} is a {noun}, and {name} is {with_article(type(found).__name__)}, which takes none")
    if not any(path_exists(word) for word in words):
        raise BadInput(f"there is no file {shorten(words[0], 300)}")
    classifier = prepare_predictor(found, device)
    print_status(describe_labels(name, classifier))
    is_named = len(words) != 1 or Path(words[0]).is_dir()

    def named(result: Result) -> list[str]:
        return ["\t".join(filter(None, [printable(result.item.input) if is_named else "", *show_labels(result)]))]

    return label_runner(classifier, k).run(argument_items(classifier, words), named, as_json)


def label_runner(classifier: Predictor, k: int | None) -> BatchRunner:
    """Return the runner of a classifier, of whose labels the `k` most likely are kept (None: all)."""
    from regard.cli.batch_runner import BatchRunner

    options = classifier.make_options({})

    def predict(values: list[Any], numbers: list[int]) -> list[Any]:
        return [each.top(k) for each in classifier.predict_numbered(values, options, numbers)]

    made = BatchRunner.of(classifier, options, "classify")
    made.predict = predict
    return made


def show_labels(result: Result) -> list[str]:
    """Return the line with the labels of a result."""
    return ["" if result.output is None else str(result.output)]
