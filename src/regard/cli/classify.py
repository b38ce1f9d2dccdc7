"""``regard classify``: texts or image files in, labels out, in the same order.

A line that cannot be used leaves an empty line (of JSON: one with "error"), so that line 7 of the output is always line
7 of the input, and one line on stderr; the status at the end is 1.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.line_processor import LineProcessor
from regard.cli.options import Device, Json

if TYPE_CHECKING:
    from regard.cli.lines import Line
    from regard.modalities.classes import Classes
    from regard.tasks.text.masked_lm import FillMask

NEXT_SENTENCE_LABELS = ("follows", "does not follow")


def classify(
    text: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT...", help="Texts, or files and folders of images; without them, lines are read from stdin."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="A classifier by name (regard list zoo), a folder, or a run.",
            show_default="languages; with --labels minilm; for images the one that ships",
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(metavar="A,B,C", help="Labels of your own: the one whose meaning is nearest, nothing is trained."),
    ] = None,
    pairs: Annotated[
        bool,
        typer.Option(
            "--pairs",
            help="Every line holds two texts with a tab between them; a BERT of head pretraining says if one follows.",
        ),
    ] = False,
    every: Annotated[
        bool, typer.Option("--all", "-a", help="Print the probability of every label, not only of the likeliest.")
    ] = False,
    as_json: Json = False,
    device: Device = "auto",
) -> int:
    """Say what kind of text or image each one is, and how sure that is.

    The model that ships tells English, French and German apart; with --labels any labels will do. Output line n belongs
    to input line n: label, probability. Of several images, or a folder, every line begins with the name of its file.

    \b
      regard classify "Wo ist der Bahnhof?"
      regard classify "The keeper saved a penalty." --labels sport,politics,music --all
      regard classify --model runs/sst2 < reviews.txt
      regard classify --pairs --model runs/bert_pretrain < pairs.tsv
      regard classify photo.png more/photos --model runs/birds --all
    """
    if labels is not None and pairs:
        raise typer.BadParameter("--labels are compared with one text at a time; leave out --pairs")
    from regard.cli import images, lines
    from regard.cli.prepare import load_predictor
    from regard.tasks.image.image_classification import ImageClassifier

    are_images = images.are_images(text)
    if are_images and (labels is not None or pairs):
        raise typer.BadParameter("--labels and --pairs are for texts; leave them out for images")
    name = model or ("languages" if labels is None else "minilm")
    found = None if are_images and model is None else load_predictor(name)
    if are_images or (isinstance(found, ImageClassifier) and labels is None and not pairs):
        return images.classify(text, model, found, every, as_json, device)
    windows = lines.read_lines(text, "texts")
    return _Processor(load_classifier(found, name, labels, device, pairs), pairs, every, as_json).run(
        windows, "classify"
    )


def load_classifier(found: Any, name: str, labels: str | None, device: str = "auto", pairs: bool = False) -> Any:
    """What was opened under a name as a classifier made ready, or as one made of labels and sentence vectors; of pairs
    of texts, also as one that says whether the second follows the first."""
    from regard.cli.prepare import prepare_predictor
    from regard.core.errors import BadInput
    from regard.tasks.text.classification import TextClassifier
    from regard.tasks.text.embedder import TextEmbedder
    from regard.tasks.text.masked_lm import FillMask
    from regard.tasks.text.zero_shot_classifier import ZeroShotClassifier

    if labels is None and pairs and isinstance(found, FillMask):
        found.nsp_probabilities([], [])  # refuses a model that was not trained on that, before anything is read
        return _following(prepare_predictor(found, device))
    if labels is None:
        if not isinstance(found, TextClassifier):
            hint = "; give it --labels" if isinstance(found, TextEmbedder) else ""
            hint = "; of --pairs it says which follow" if isinstance(found, FillMask) and found.has_nsp_head else hint
            raise BadInput(f"{name} is a {type(found).__name__}, not a classifier{hint}")
        return prepare_predictor(found, device)
    if not isinstance(found, TextEmbedder):
        raise BadInput(f"{name} is a {type(found).__name__}; --labels need one that makes sentence vectors, as minilm")
    return ZeroShotClassifier(prepare_predictor(found, device), labels.split(","))


def _following(filler: FillMask) -> Callable[[list[str], list[str]], list[Classes]]:
    """What says of two texts whether the second follows the first, as a classifier would."""
    from regard.modalities.classes import Classes

    def classified(texts: list[str], others: list[str]) -> list[Classes]:
        return [
            Classes.rank(NEXT_SENTENCE_LABELS, (share, 1 - share)) for share in filler.nsp_probabilities(texts, others)
        ]

    return classified


class _Processor(LineProcessor["Classes | None"]):
    """Windows of lines in, labels out; keeps count."""

    failure_message = "could not be classified: left empty ({})"

    def __init__(self, classifier: Any, pairs: bool, every: bool, as_json: bool) -> None:
        super().__init__()
        self.classifier, self.pairs, self.every, self.as_json = classifier, pairs, every, as_json

    def __call__(self, window: list[Line]) -> list[str]:
        """The output lines of a window."""
        self.check(window)
        usable = [line for line in window if line.text.strip() and self._whole(line)]
        found = dict(zip([line.number for line in usable], self.predict_with_fallback(usable, lost=None), strict=True))
        self.done += sum(each is not None for each in found.values())
        return [self._shown(line, found.get(line.number)) for line in window]

    def _whole(self, line: Line) -> bool:
        """Whether a pair is one."""
        cells = line.text.split("\t")
        if not self.pairs or (len(cells) == 2 and all(cell.strip() for cell in cells)):
            return True
        self.report_problem(line, "is no pair of texts with a tab between them: left empty")
        return False

    def predict(self, some: list[Line]) -> list[Classes | None]:
        """The label of each."""
        sides = zip(*(line.text.split("\t") if self.pairs else [line.text] for line in some), strict=True)
        return list(self.classifier(*map(list, sides)))

    def _shown(self, line: Line, found: Classes | None) -> str:
        if self.as_json:
            said = self.error(line) if found is None else asdict(found)
            return json.dumps({"number": line.number, "text": line.text, **said}, ensure_ascii=False)
        if found is None:
            return ""
        shown = found.probabilities if self.every else {found.label: found.probability}
        return "\t".join(f"{label}\t{share:.4f}" for label, share in shown.items())
