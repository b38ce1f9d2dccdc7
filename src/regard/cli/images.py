"""Image files on the command line: which words mean one, what is in them, and what a model looks at in them.

``regard classify`` and ``regard see`` come here with the names of image files; both say what the model knows, since it
has a label of its own for whatever it is shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli.line_processor import LineProcessor
from regard.core.errors import BadInput

if TYPE_CHECKING:
    from regard.cli.lines import Line
    from regard.modalities.classes import Classes
    from regard.tasks.image.image_classifier import ImageClassifier

BATCH_SIZE = 64  # images in a window
LISTED_LABELS = 10  # labels that are listed
SNIFF_BYTES = 4096  # bytes of a file that are asked whether it is a text: no text has a zero in it, but for UTF-16


def is_image(word: str) -> bool:
    """Whether a word on the command line means an image file, of a kind that is read or not: a sentence that ends like
    one does not."""
    from regard.modalities.decode_image import SUFFIXES, UNSUPPORTED_SUFFIXES

    return word.lower().endswith(SUFFIXES + UNSUPPORTED_SUFFIXES) and (len(word.split()) == 1 or path_exists(word))


def are_images(words: Sequence[str] | None) -> bool:
    """Whether any of these words is an image file, whatever its name, or a folder."""
    return any(
        is_image(word) or (word.endswith("/") and len(word.split()) == 1) or (path_exists(word) and _holds(Path(word)))
        for word in words or ()
    )


def _holds(path: Path) -> bool:
    """Whether a path is a folder, or a file that begins as images do or no text does: a word may also name a text."""
    from regard.modalities.decode_image import image_format, read_magic

    if not path.is_file():
        return path.is_dir()
    begins = read_magic(path, SNIFF_BYTES)
    return image_format(begins) is not None or (b"\0" in begins and not begins.startswith((b"\xff\xfe", b"\xfe\xff")))


def load_image_classifier(
    word: str, name: str | None, found: Any = None, device: str = "auto", gradients: bool = False
) -> tuple[str, ImageClassifier]:
    """The classifier of images of a name or a folder (`found`: opened before), made ready for what a word means; else
    the one that ships. `gradients`: those of an answer will be asked for."""
    from regard.cli.prepare import load_predictor, prepare_predictor
    from regard.tasks.image.image_classifier import ImageClassifier

    name = default_image_classifier() if name is None else name
    found = load_predictor(name) if found is None else found
    if not isinstance(found, ImageClassifier):
        raise BadInput(f"{word} is an image, and {name} is a {type(found).__name__}, which looks at none; give another")
    return name, prepare_predictor(found, device, gradients=gradients)


def default_image_classifier() -> str:
    """The name of the classifier of images that ships with the package."""
    from regard.api import zoo

    for name, folder in zoo().items():
        task = json.loads((folder / "config.json").read_text("utf-8")).get("task") or {}
        if task.get("name") == "image_classification":
            return name
    raise BadInput("no model over images ships with this version: give one with --model, or train one (regard train)")


def describe_labels(name: str, classifier: ImageClassifier) -> str:
    """What a classifier knows, in one line."""
    labels = classifier.labels
    more = f" and {len(labels) - LISTED_LABELS:,} more" if len(labels) > LISTED_LABELS else ""
    return f"{name} knows {', '.join(labels[:LISTED_LABELS])}{more}; it says one of them whatever it is shown"


# -- classify ----------------------------------------------------------------------------------------------------------


def classify(
    words: Sequence[str] | None, model: str | None, found: Any, every: bool, as_json: bool, device: str
) -> int:
    """Say what is in each file, or each line of stdin that names one; the status."""
    from regard.cli import FAILED, lines, print_status

    folders = [word for word in words or () if path_exists(word) and Path(word).is_dir()]
    named = bool(folders) or words is None or len(words) != 1
    windows: Iterable[list[Line]] = (
        _windows(_files(words)) if words else lines.read_batches(lines.stdin("names of images"))
    )
    name, classifier = load_image_classifier(words[0] if words else "", model, found, device)
    if words and not any(path_exists(word) for word in words):
        raise BadInput(f"{name} looks at images, and there is no file '{words[0][:60]}'")
    empty = [word for word in folders if not _inside(word)]
    if words and len(empty) == len(words):
        raise BadInput(f"there are no image files in {' or '.join(empty)}")
    print_status(describe_labels(name, classifier))
    work = _Processor(classifier, every, as_json, named)
    status = work.run(windows, "classify")
    for word in empty:
        why = f"there are no image files in {word}"
        if as_json:
            print(json.dumps({"file": word, "error": why}, ensure_ascii=False))
        print_status(why)
    if named and work.bad:
        print_status(f"{work.bad:,} of {work.bad + work.done:,} files could not be read")
    return FAILED if empty else status


def _files(words: Sequence[str]) -> Iterator[str]:
    """The files that words mean: a folder means the images in it and below it, in order."""
    for word in words:
        if path_exists(word) and Path(word).is_dir():
            yield from map(str, _inside(word, quiet=False))
        else:
            yield word


def _windows(files: Iterable[str]) -> Iterator[list[Line]]:
    from regard.cli.lines import Line

    every = [Line(number, file) for number, file in enumerate(files, 1)]
    for at in range(0, len(every), BATCH_SIZE):
        yield every[at : at + BATCH_SIZE]


class _Processor(LineProcessor["Classes | None"]):
    """Windows of file names in, labels out; keeps count."""

    failure_message = "{}"
    memory_advice = "it is looked at by itself, in the model's own size: take a smaller model, or --device cpu"

    def __init__(self, classifier: ImageClassifier, every: bool, as_json: bool, named: bool) -> None:
        super().__init__()
        self.classifier, self.every, self.as_json, self.named = classifier, every, as_json, named

    def __call__(self, window: list[Line]) -> list[str]:
        """The output lines of a window."""
        self.check(window)
        usable = [line for line in window if line.text.strip()]
        found = dict(zip([line.number for line in usable], self.predict_with_fallback(usable, lost=None), strict=True))
        self.done += sum(each is not None for each in found.values())
        return [self._shown(line, found.get(line.number)) for line in window]

    def predict(self, some: list[Line]) -> list[Classes | None]:
        """What is in each."""
        return list(self.classifier([line.text for line in some]))

    def problem_message(self, line: Line, what: str) -> str:
        """The sentence about a file that could not be used, by its name; what the decoder says has it already."""
        if line.problem:
            return super().problem_message(line, what)
        name, told = _printable_name(line.text), " ".join(line.text.split())  # a line that is said has no others in it
        return what.replace(told, name) if told in what else f"{name}: {what}"

    def _shown(self, line: Line, found: Classes | None) -> str:
        if self.as_json:
            said = self.error(line) if found is None else asdict(found)
            return json.dumps({"number": line.number, "file": line.text, **said}, ensure_ascii=False)
        if found is None:
            return _printable_name(line.text) if self.named else ""
        shown = found.probabilities if self.every else {found.label: found.probability}
        cells = [f"{label}\t{share:.4f}" for label, share in shown.items()]
        return "\t".join([_printable_name(line.text), *cells] if self.named else cells)


def _printable_name(name: str) -> str:
    """The name of a file in one line and one column: what cannot be printed, ends a line or is a tab is spelled out."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in name)


def path_exists(word: str) -> bool:
    """Whether there is a file or a folder of this name; a sentence may be longer than a name can be."""
    try:
        return bool(word) and Path(word).exists()
    except (OSError, ValueError):
        return False


def _inside(folder: str, quiet: bool = True) -> list[Path]:
    from regard.modalities.decode_image import list_image_files

    return list_image_files(Path(folder), quiet)
