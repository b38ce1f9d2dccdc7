"""``regard classify``: texts or image files in, labels out, in the same order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import Device, Json
from regard.core.errors import BadInput, with_article

if TYPE_CHECKING:
    from regard.tasks.predictor import Predictor

LISTED_IN_JSON = 10  # labels of a line of JSON: ImageNet has 1,000


def classify(
    text: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT...",
            help="Texts, or files and folders of images or recordings, or files of point clouds; without them, lines "
            "are read from stdin.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="A classifier by name (regard list zoo), a folder, or a run.",
            show_default="languages; with --labels minilm; for images and point clouds the one that ships",
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(metavar="A,B,C", help="Labels of your own; the nearest in meaning is chosen, without training."),
    ] = None,
    pairs: Annotated[
        bool,
        typer.Option(
            "--pairs",
            help="Every line is two texts with a tab between them. A BERT with a pre-training head predicts whether "
            "the second follows the first.",
        ),
    ] = False,
    k: Annotated[
        int | None,
        typer.Option("-k", "--top-k", min=1, metavar="N", help="Labels to print.", show_default="1; with --json 10"),
    ] = None,
    every: Annotated[bool, typer.Option("--all", "-a", help="Print the probability of every label.")] = False,
    as_json: Json = False,
    device: Device = "auto",
) -> int:
    """Classify texts, images, recordings or point clouds: print a label and its probability for each.

    The model that ships tells English, French and German apart; with --labels, labels can be any words. Photos get one
    of ImageNet's 1,000 classes if the extra "imagenet" is installed, else one of ten kinds of clothing. Output line n
    belongs to input line n; one that cannot be used is empty. For several images, or a folder, every line begins with
    the name of the file.

    \b
      regard classify "Wo ist der Bahnhof?"
      regard classify "The keeper saved a penalty." --labels sport,politics
      regard classify --model runs/sst2 < reviews.txt
      regard classify --pairs --model runs/bert_pretrain < pairs.tsv
      regard classify photo.png more/photos --model runs/birds --all
      regard classify photo.jpg -k 5
      regard classify cone.ply cube.off
      regard classify yes.wav --model runs/words
    """
    if labels is not None and pairs:
        raise typer.BadParameter("--labels are compared with one text at a time; leave out --pairs")
    from regard.cli import file_classifier, images, lines, point_clouds
    from regard.cli.batch_runner import line_items
    from regard.cli.prepare import load_predictor
    from regard.modalities.audio import Audio

    if every and k is not None:
        raise typer.BadParameter("--all prints every label; leave out -k")
    k = None if every else k or (LISTED_IN_JSON if as_json else 1)
    if point_clouds.are_point_clouds(text):
        if labels is not None or pairs:
            raise typer.BadParameter("--labels and --pairs are for texts; leave them out for point clouds")
        return point_clouds.classify(text or (), model, k, as_json, device)
    if file_classifier.are_recordings(text):
        if labels is not None or pairs:
            raise typer.BadParameter("--labels and --pairs are for texts; leave them out for recordings")
        if model is None:
            raise BadInput(
                "no model that classifies recordings ships: train one (regard train audio words) and give it: --model"
            )
        return file_classifier.classify_files(text or (), model, Audio, "recording", k, as_json, device)
    are_images = images.are_images(text)
    if are_images and (labels is not None or pairs):
        raise typer.BadParameter("--labels and --pairs are for texts; leave them out for images")
    name = model or ("languages" if labels is None else "minilm")
    found = None if are_images and model is None else load_predictor(name)
    if file_classifier.takes_recordings(found):  # of a folder
        return file_classifier.classify_files(text or (), name, Audio, "recording", k, as_json, device)
    if are_images or (labels is None and not pairs and images.takes_images(found)):
        return images.classify(text, model, found, k, as_json, device)
    source = lines.read_lines(text, "texts")
    classifier = load_classifier(found, name, labels, device, pairs)
    runner = file_classifier.label_runner(classifier, k)
    return runner.run(line_items(source, lambda line: _read(classifier, line)), file_classifier.show_labels, as_json)


def load_classifier(found: Any, name: str, labels: str | None, device: str = "auto", pairs: bool = False) -> Predictor:
    """Return a loaded model as a classifier of texts, made ready: with `labels` from its text embeddings, with `pairs`
    of pairs of texts."""
    from regard.cli.prepare import prepare_predictor
    from regard.modalities.classes import Classes
    from regard.tasks.predictor import Predictor
    from regard.tasks.text.classification import TextClassifier, TextPairClassifier
    from regard.tasks.text.embedder import TextEmbedder
    from regard.tasks.text.masked_lm import FillMask, NextSentenceClassifier
    from regard.tasks.text.zero_shot_classifier import ZeroShotClassifier

    kind = type(found).__name__
    if labels is not None:
        if not isinstance(found, TextEmbedder):
            raise BadInput(f"{name} is {with_article(kind)}; --labels needs a model of text embeddings, such as minilm")
        return ZeroShotClassifier(prepare_predictor(found, device), labels.split(","))
    if pairs and isinstance(found, FillMask):
        return NextSentenceClassifier(prepare_predictor(found, device))
    if not isinstance(found, Predictor) or found.outputs is not Classes:
        hint = "; give it --labels" if isinstance(found, TextEmbedder) else ""
        hint = "; with --pairs it predicts which texts follow" if getattr(found, "has_nsp_head", False) else hint
        raise BadInput(f"{name} is {with_article(kind)}, not a classifier{hint}")
    if pairs and type(found) is TextClassifier:
        found = TextPairClassifier(found.model, found.text, found.labels, found.max_length)
    return prepare_predictor(found, device)


def _read(classifier: Predictor, line: str) -> Any:
    """Return what a classifier takes: the text of a line, or the texts that tabs separate."""
    cells = [line] if len(classifier.inputs) == 1 else line.split("\t")
    if len(cells) != len(classifier.inputs) or not all(cell.strip() for cell in cells):
        raise BadInput("not a pair of texts with a tab between them")
    return classifier.read_item(dict(zip(classifier.inputs, cells, strict=True)))
