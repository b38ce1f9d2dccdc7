"""Image files on the command line: which arguments are images, and the labels that ``regard classify`` prints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.core.errors import BadInput, with_article

if TYPE_CHECKING:
    from regard.cli.batch_runner import Item, Result
    from regard.tasks.image.image_classification import ImageClassifier

LISTED_LABELS = 10  # labels that are listed
SNIFF_BYTES = 4096  # bytes of a file that are asked whether it is a text: no text has a zero in it, but for UTF-16


def is_image(word: str) -> bool:
    """Return whether an argument is the name of an image file, of a readable kind or not; a sentence that ends like one
    is not."""
    from regard.modalities.decode_image import SUFFIXES, UNSUPPORTED_SUFFIXES

    return word.lower().endswith(SUFFIXES + UNSUPPORTED_SUFFIXES) and (len(word.split()) == 1 or path_exists(word))


def are_images(words: Sequence[str] | None) -> bool:
    """Return whether any of these arguments is an image file, whatever its name, or a folder."""
    return any(
        is_image(word) or (word.endswith("/") and len(word.split()) == 1) or (path_exists(word) and _holds(Path(word)))
        for word in words or ()
    )


def _holds(path: Path) -> bool:
    """Return whether a path is a folder, or a file that begins as images do or as no text does."""
    from regard.modalities.decode_image import image_format, read_magic

    if not path.is_file():
        return path.is_dir()
    begins = read_magic(path, SNIFF_BYTES)
    return image_format(begins) is not None or (b"\0" in begins and not begins.startswith((b"\xff\xfe", b"\xfe\xff")))


def load_image_classifier(
    word: str, name: str | None, found: Any = None, device: str = "auto", gradients: bool = False
) -> tuple[str, ImageClassifier]:
    """Return the image classifier of a name or a folder (`found`: loaded before), or the one that ships, and its name.

    `word` is the argument that is an image; `gradients`: keep it differentiable."""
    from regard.cli.prepare import load_predictor, prepare_predictor
    from regard.tasks.image.image_classification import ImageClassifier

    name = default_image_classifier() if name is None else name
    found = load_predictor(name) if found is None else found
    if not isinstance(found, ImageClassifier):
        raise BadInput(
            f"{word} is an image, and {name} is {with_article(type(found).__name__)}, which looks at none; give another"
        )
    return name, prepare_predictor(found, device, gradients=gradients)


def default_image_classifier() -> str:
    """Return the name of the image classifier of photos, if its package is installed, else of the one that ships."""
    from importlib.util import find_spec

    from regard.api import IMAGENET, PACKAGED_MODELS, zoo_tasks

    if find_spec(PACKAGED_MODELS[IMAGENET][0]):
        return IMAGENET

    for name, task in zoo_tasks().items():
        if task == "image_classification":
            return name
    raise BadInput("no model over images ships with this version: give one with --model, or train one (regard train)")


def photo_hint() -> str:
    """Return how to get the classifier of photos where it is not installed; "" where it is."""
    from regard.api import IMAGENET, PACKAGED_MODELS

    name = default_image_classifier()
    package = PACKAGED_MODELS[IMAGENET][2]
    return "" if name == IMAGENET else f"for photos of 1,000 kinds of things: pip install {package} (23 MB)"


def describe_labels(name: str, classifier: Any) -> str:
    """Return the line about the labels of a classifier."""
    labels = classifier.labels
    if len(labels) > 100:
        return f"{name} knows {len(labels):,} things, such as {', '.join(labels[:: len(labels) // 5][:5])}"
    more = f" and {len(labels) - LISTED_LABELS:,} more" if len(labels) > LISTED_LABELS else ""
    return f"{name} knows {', '.join(labels[:LISTED_LABELS])}{more}; it says one of them whatever it is shown"


def takes_images(found: Any) -> bool:
    """Return whether a loaded model takes an image."""
    from regard.modalities.image import Image

    return [*getattr(found, "inputs", {}).values()] == [Image]


def classify(
    words: Sequence[str] | None, model: str | None, found: Any, k: int | None, as_json: bool, device: str
) -> int:
    """Classify each file, or each line of stdin that names one, and return the exit status; `k` labels of each."""
    from regard.cli import lines, print_status
    from regard.cli.batch_runner import argument_items, line_items
    from regard.cli.file_classifier import label_runner, show_labels
    from regard.core.terminal_text import printable

    name, classifier = load_image_classifier(words[0] if words else "", model, found, device)
    if words and not any(path_exists(word) for word in words):
        raise BadInput(f"{name} takes images, and there is no file '{words[0][:60]}'")
    items: Iterable[list[Item]]
    if words:
        items = argument_items(classifier, words)
    else:
        source = lines.read_batches(lines.stdin("names of images"))
        files = line_items(source, lambda line: classifier.read_item({"image": line}))
        items = ([_named(item) for item in batch] for batch in files)
    print_status(describe_labels(name, classifier))
    if model is None and (hint := photo_hint()):
        print_status(hint)
    is_named = words is None or len(words) != 1 or Path(words[0]).is_dir()  # it exists, as checked above

    def named(result: Result) -> list[str]:
        return ["\t".join(filter(None, [printable(result.item.input) if is_named else "", *show_labels(result)]))]

    runner = label_runner(classifier, k)
    status = runner.run(items, named, as_json)
    if is_named and runner.failed:
        print_status(f"{runner.failed:,} of {runner.failed + runner.done:,} files could not be read")
    return status


def _named(item: Item) -> Item:
    """Return a line as the file that it names."""
    from regard.core.terminal_text import printable

    return item if item.problem else replace(item, name=printable(item.input), is_file=True)


def path_exists(word: str) -> bool:
    """Return whether a file or a folder has this name; a sentence may be longer than a name can be."""
    try:
        return bool(word) and Path(word).exists()
    except (OSError, ValueError):
        return False
