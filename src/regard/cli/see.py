"""``regard see``: run a model on one input and draw what it attends to, or its output where it shows nothing else.

The predictor's inspection (interpret.inspection) names its figure (interpret.figures), and the figure its views.
"""

from __future__ import annotations

import logging
import shutil
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import print_domain_note
from regard.cli.output_files import check_output_files, describe_write, free_name
from regard.core.errors import BadInput, Unsupported, oom_advice

if TYPE_CHECKING:
    from regard.interpret.figures import FigureOptions, InspectionFigure
    from regard.tasks.text.translation import Translator


class View(StrEnum):
    """What a picture shows."""

    cross = "cross"  # output tokens attending to input tokens
    heads = "heads"  # every head of a layer
    encoder = "encoder"  # input tokens attending to input tokens
    decoder = "decoder"  # output tokens attending to those before them
    layers = "layers"  # every layer and head, small
    rollout = "rollout"  # all layers as one map
    path = "path"  # the position of an aligner at every step, or the glimpses of an image
    class_ = "class"  # of an image: from the token that the head reads
    relevance = "relevance"  # of an image: attention x gradient for a label
    pooling = "pooling"  # of an image: from a pooling that attends, at every depth that has one
    gates = "gates"  # of an image: weights of channels
    gradcam = "gradcam"  # of an image: where a network of convolutions finds a label
    points = "points"  # of a point cloud: the weight that each point gets
    labels = "labels"  # of a point cloud: the label of each point


def see(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...",
            help="A text, or a file with an image, a recording or a point cloud; "
            "for a model with several inputs, one argument for each.",
        ),
    ],
    to: Annotated[
        str | None, typer.Option("--to", metavar="LANGUAGE", help="Language to translate to.", show_default="de")
    ] = None,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="LANGUAGE", help="Language to translate from.", show_default="en")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="A model by name (regard list zoo) or a folder.",
            show_default="by input: a translator, a classifier, a speech recognizer, or one that answers questions",
        ),
    ] = None,
    target_text: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Show this translation, transcript or continuation, not the model's own."),
    ] = None,
    max_new_tokens: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Tokens that a language model generates; 0: show the text alone.",
            show_default="24",
        ),
    ] = None,
    view: Annotated[
        View | None,
        typer.Option(
            "--view",
            metavar="VIEW",
            help="Text: cross, heads (output to input; mean or every head), encoder, decoder (within one side), "
            "layers (all), rollout (all layers as one), path (of an aligner). "
            "Image: class (from the token that the head reads), heads, layers, rollout, relevance (for a label), "
            "pooling (of a head that pools by attention), gates (of channels), path (of glimpses), gradcam (of "
            "convolutions). "
            "Objects in an image: cross (of every object), heads, encoder (from a point), rollout. "
            "Point cloud: points (the weight that each gets), labels (of a segmentation).",
            show_default="cross, or heads without cross-attention; class or gradcam for an image",
        ),
    ] = None,
    layer: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N", help="Which layer, from 0.", show_default="the last but one; the last for an image"
        ),
    ] = None,
    head: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Which head, from 0.", show_default="their mean")
    ] = None,
    no_special_tokens: Annotated[
        bool,
        typer.Option(
            "--no-special-tokens",
            help="Leave out the marks of the beginning and the end, [CLS], [SEP] and </s>, and scale rows up.",
        ),
    ] = False,
    words: Annotated[
        bool,
        typer.Option("--words", help="Merge subwords into words: their columns are added, their rows averaged."),
    ] = False,
    query: Annotated[
        str | None,
        typer.Option(metavar="Y,X", help="Image: attention from this point, in pixels of what the model sees."),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(
            "--label", metavar="LABEL", help="Image: relevance for this label.", show_default="the predicted label"
        ),
    ] = None,
    mechanisms: Annotated[
        bool,
        typer.Option(
            "--mechanisms",
            help="No model: a page with the matrix of every attention mechanism on this sentence (and image).",
        ),
    ] = False,
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where to draw: .png, .svg, or .html for a page with all maps; may be repeated.",
            show_default="attention.png, or attention-2.png if that exists",
        ),
    ] = None,
    beam_size: Annotated[
        int | None, typer.Option(min=1, max=64, metavar="N", help="Beam size of the search.", show_default="4")
    ] = None,
) -> int:
    """Run a model on one input and draw what it attends to.

    A small drawing is printed, the picture is written to a file. A model without attention maps has its output drawn.

    \b
      regard see "Two dogs are playing in the snow." --to de
      regard see "Where is the station?" --to fr --view heads -o heads.png
      regard see "Good morning." --to de --output page.html
      regard see "A little boy is riding a horse." --to de --words
      regard see "The animal was too tired." --view encoder --layer 2 --head 5
      regard see "The animal was too tired." --model minilm --no-special-tokens
      regard see "ROMEO: I love" --model shakespeare --view layers
      regard see "Mary went to the hallway." "Where is Mary?"
      regard see scene.png "How many red digits?"
      regard see xylophone --model sounds-en
      regard see digits.wav --output lattice.png
      regard see cone.ply --model runs/shapes --output cone.png
      regard see photo.jpg --model runs/birds --view rollout
      regard see street.jpg --model runs/detector --output boxes.png
      regard see "The animal was tired." --mechanisms -o gallery.html
    """
    from regard.cli import print_status
    from regard.cli.lines import read_lines
    from regard.cli.prepare import prepare_predictor
    from regard.interpret.figures import FigureOptions, figure_class, make_figure
    from regard.interpret.inspection import inspect, inspection_class
    from regard.serve.http.model_pool import parse_model_argument

    if mechanisms:
        return draw_mechanisms(inputs, output[0] if output else free_name(Path("mechanisms.html")))
    if inputs == ["-"]:
        inputs = ["\n".join(line.text for window in read_lines(inputs, "text") for line in window)]
    files = output or [free_name(Path("attention.png"))]
    check_output_files(files)
    name, found = _load(model, inputs, from_, to)
    predictor = prepare_predictor(found, "cpu", gradients=True)
    kind = inspection_class(type(predictor))
    options = FigureOptions(view and view.value, layer, head, not no_special_tokens, words, query, label)
    more = {"target_text": target_text, "max_new_tokens": max_new_tokens, "beam_size": beam_size}
    more = {option: value for option, value in more.items() if value is not None}
    _check_options(name, figure_class(kind), options, [o for o in more if o not in kind.fields(type(predictor))[1]])
    values = _read(name, predictor, inputs) | more
    with oom_advice("use a smaller --beam-size or a shorter input"):
        inspection = inspect(predictor, values, name=parse_model_argument(name)[0])
    print_domain_note(inspection.warning)
    figure = make_figure(inspection, options, Path(inputs[0]).name)
    if figure.note:
        print_status(figure.note)
    width = shutil.get_terminal_size((100, 24)).columns if sys.stdout.isatty() else 100
    print(figure.text(width), end="\n\n")
    for line in draw(figure, files):
        print(line)
    return 0


def draw_mechanisms(inputs: Sequence[str], file: Path) -> int:
    """Write the gallery of all mechanisms: of a sentence, of an image, or of both."""
    from regard import see
    from regard.cli import images
    from regard.cli.html_page import is_page
    from regard.interpret.mechanism_gallery import image_subject, mechanism_gallery, sentence_subject
    from regard.modalities.decode_image import open_image
    from regard.see.html_export import render_gallery
    from regard.serve.explorer.lab import word_vectors

    if not is_page(file) or not file.parent.is_dir():
        raise BadInput(f"--mechanisms writes a page; end the name of {file} in .html, in a folder that exists.")
    subjects, title = [], "Attention mechanisms"
    for word in inputs:
        if images.are_images([word]):
            subjects.append(image_subject(open_image(word)))
        else:
            tokens, title = _one_line(word).split(), word
            subjects += [sentence_subject(tokens, word_vectors(), causal) for causal in (False, True)]
    found, line = mechanism_gallery(subjects), describe_write(file)
    see.save(render_gallery(found, title), file)
    for family in found["families"]:
        print(f"{family['name']:22} {', '.join(each['spec'] for each in family['mechanisms'])}")
    print(line)
    return 0


def draw(figure: InspectionFigure, files: Iterable[Path]) -> list[str]:
    """Write a figure to each file, and return the line about each; a kind of output without a drawing is said on
    stderr."""
    from regard.cli import print_status
    from regard.cli.html_page import is_page, write_page

    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it reports about its font cache
    drawn: dict[Path, str] = {}
    for file in files:
        line = describe_write(file)
        try:
            (write_page if is_page(file) else type(figure).save)(figure, file)
        except Unsupported as error:
            print_status(str(error))
        else:
            drawn[file] = line
    if figure.page_traces is None and figure.options.given and any(map(is_page, drawn)):
        print_status("A page contains all layers, heads and positions; --view and its options are for .png and .svg.")
    return [*drawn.values()]


def draw_first_line(
    translator: Translator, line: str, translation: str | None, beam_size: int, files: Sequence[Path]
) -> None:
    """Draw the attention of one line, for ``regard translate --attention``, and say on stderr where it is."""
    from regard.cli import print_status
    from regard.interpret.figures import make_figure
    from regard.interpret.inspection import inspect

    given = {"beam_size": min(beam_size, 64)} if translation is None else {"target_text": translation}
    inspection = inspect(translator, {"text": line, **given}, name=f"{translator.source}-{translator.target}")
    for line in draw(make_figure(inspection), files):
        print_status(f"attention of the first line {line}")


def _load(model: str | None, inputs: Sequence[str], source: str | None, target: str | None) -> tuple[str, Any]:
    """Return the name and the predictor of a model; without a name, the one for these kinds of input."""
    from regard.cli import images, point_clouds, print_status, transcribe
    from regard.cli.answer import DEFAULT as STORIES
    from regard.cli.load_translator import load_translator
    from regard.cli.photos import default_photo_model
    from regard.cli.prepare import load_predictor_as
    from regard.modalities.classes import Classes
    from regard.tasks.predictor import Predictor

    word, is_question = inputs[0], len(inputs) == 2 and not (source or target)
    if model is None and is_question and images.are_images([word]):
        model = default_photo_model("ask", Classes, asks=True)
    elif model is None and is_question:
        model = STORIES
    elif model is None and transcribe.is_audio_file(word):
        model = transcribe.DEFAULT
    elif model is None and point_clouds.are_point_clouds([word]):
        model = point_clouds.default_classifier()
    elif model is None and images.are_images([word]):
        model = images.default_image_classifier()
        if hint := images.photo_hint():
            print_status(hint)
    if model is not None and not source and not target:
        bare = "the bare model without a task; in Python, regard.watch(model) shows its attention"
        return model, load_predictor_as(Predictor, model, bare)
    translator = load_translator(model, source, target if target or model else "de")
    return model or f"{translator.source}-{translator.target}", translator


def _check_options(name: str, figure: type[InspectionFigure], options: FigureOptions, others: Sequence[str]) -> None:
    """Refuse a view that a figure does not have, and options that neither the view nor the model follows."""
    if options.view is not None and options.view not in figure.views:
        known = f"it has {', '.join(figure.views)}" if figure.views else "it has one picture"
        raise BadInput(f"{name} has no such view; {known}: leave out --view {options.view}.")
    view = options.view or next(iter(figure.views), "")
    unused = [option for option in options.given if option != "view" and option not in figure.views.get(view, ())]
    for option in [*others, *unused]:
        flag = "--no-special-tokens" if option == "special_tokens" else f"--{option.replace('_', '-')}"
        views = [each for each, follows in figure.views.items() if option in follows]
        if views:
            raise BadInput(f"{flag} is for --view {' and '.join(views)}; leave it out with --view {view}.")
        raise BadInput(f"{name} does not use {flag}: leave out {flag}.")


def _read(name: str, predictor: Any, words: Sequence[str]) -> dict[str, Any]:
    """Return the inputs of an inspection: texts, and the bytes of files; an error names the file."""
    from regard.cli import images, transcribe

    if len(words) != len(predictor.inputs):
        wanted = " ".join(field.upper() for field in predictor.inputs)
        raise BadInput(f"{name} takes {len(predictor.inputs)} input(s), got {len(words)}: regard see {wanted}.")
    values: dict[str, Any] = {}
    for (field, kind), word in zip(predictor.inputs.items(), words, strict=True):
        if kind.media_types and Path(word).is_dir():
            raise BadInput(f"{word} is a folder; give one of the files in it.")
        if kind.kind == "text" and (images.are_images([word]) or transcribe.is_audio_file(word)):
            raise BadInput(f"{word} is a file of images or audio; {name}, a {type(predictor).__name__}, takes text.")
        values[field] = next(iter(kind.sources([word]))).value if kind.kind != "text" else _one_line(word)
    predictor.read_item(values)
    return {field: value.read_bytes() if isinstance(value, Path) else value for field, value in values.items()}


def _one_line(text: str) -> str:
    from regard.cli.lines import check_no_file, lines_from_arguments

    check_no_file(text, how="")
    (window,) = lines_from_arguments([text])
    if len(window) != 1 or not window[0].text.strip():
        why = next((f"it {line.problem.split(':')[0]}" for line in window if line.problem), "give one line of text")
        raise BadInput(f"cannot look at this text: {why}")
    return window[0].text
