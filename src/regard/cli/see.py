"""``regard see``: translate a sentence, read it or write on from it, and look at what each word looked at; or an image,
and look at what a model looked at in it."""

from __future__ import annotations

import logging
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.core.errors import BadInput, oom_advice

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from regard.core.trace import Trace
    from regard.tasks.image.image_classifier import ImageClassifier
    from regard.tasks.text.extractive_qa import QuestionAnswerer
    from regard.tasks.text.text_generator import TextGenerator
    from regard.tasks.text.translation import Translator


class View(StrEnum):
    """What a picture shows."""

    cross = "cross"  # one large map: output words looking at input words
    heads = "heads"  # the same layer, every head; where nothing is written, input words looking at one another
    encoder = "encoder"  # input words looking at one another
    decoder = "decoder"  # output words looking at those before them
    layers = "layers"  # every layer and head of the cross-attention, small
    rollout = "rollout"  # output words looking at input words, through all layers of the encoder
    path = "path"  # where an aligner stands over the input words, step by step
    class_ = "class"  # of an image: what the token looks at that the answer is read from
    relevance = "relevance"  # of an image: what spoke for an answer


MAX_PAGE_BEAMS = 64  # with which a page is searched for; what more of them find is given to it
IMAGE_VIEWS = (View.class_, View.heads, View.layers, View.rollout, View.relevance)  # the views of an image


def see(
    text: Annotated[
        str,
        typer.Argument(
            metavar="TEXT", help="A sentence to translate, to read or to write on from; an image or a sound file."
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
        typer.Option(metavar="NAME", help="A model by name (regard list zoo; minilm), or a folder; else a translator."),
    ] = None,
    translation: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Look at this translation (transcript) instead of the model's own."),
    ] = None,
    max_new_tokens: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="A language model writes so many more tokens; 0: only look at the text.",
            show_default="24",
        ),
    ] = None,
    view: Annotated[
        View | None,
        typer.Option(
            help="cross, heads: output to input, mean or every head; encoder, decoder: within one side; "
            "layers: all at once; rollout: through the encoder (of a language model: through all of it); "
            "path: where it walks over the input. Of an image: class (what the answer is read from), heads, layers, "
            "rollout, relevance (what spoke for the answer).",
            show_default="cross; heads of what only reads, decoder of a language model, class of an image",
        ),
    ] = None,
    layer: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N", help="Which layer, from 0.", show_default="the last but one; of images the last"
        ),
    ] = None,
    head: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Which head, from 0.", show_default="their mean")
    ] = None,
    special_tokens: Annotated[
        bool,
        typer.Option(
            "--special-tokens/--no-special-tokens",
            help="Whether special tokens are drawn of a model that only reads: [CLS] outshines all.",
        ),
    ] = True,
    words: Annotated[
        bool,
        typer.Option(
            "--words",
            help="Draw words instead of pieces: weights on the pieces of a word are added, its rows averaged.",
        ),
    ] = False,
    question: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Of a model that finds answers: what is asked about the text.")
    ] = None,
    query: Annotated[
        str | None,
        typer.Option(metavar="Y,X", help="Of an image: what is looked at from there, in pixels as the model sees it."),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(metavar="LABEL", help="Of an image: relevance to this label.", show_default="the likeliest"),
    ] = None,
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where the picture goes: .png, .svg, or .html for a page with everything in it; may be repeated.",
            show_default="attention.png",
        ),
    ] = None,
    beam_size: Annotated[int, typer.Option(min=1, max=256, metavar="N", help="Outputs kept while searching.")] = 4,
) -> int:
    """Translate a sentence, read it or write on from it, and draw who looked at whom; of an image, what was looked at.

    A small drawing comes to the terminal, the picture to a file.

    \b
      regard see "Two dogs are playing in the snow." --to de
      regard see "I saw her duck." --to fr --view heads --layer 1 --output duck.png
      regard see "Good morning." --to de --output page.html
      regard see "An unbelievably fluffy dog." --to de --words
      regard see "The animal didn't cross the street because it was too tired." --model minilm --view rollout
      regard see "ROMEO: I love" --model shakespeare --view layers
      regard see "Mary went to the hallway." --question "Where is Mary?" --model runs/babi
      regard see xylophone --model sounds-en
      regard see digits.wav --output lattice.png
      regard see photo.jpg --model runs/birds --view rollout
      regard see street.jpg --model runs/detector --output boxes.png
    """
    from regard.cli import html_page, images, lines, transcribe
    from regard.cli.prepare import load_predictor
    from regard.cli.see_audio import see_audio
    from regard.cli.see_output import has_own_view, see_output
    from regard.see import merge_subwords
    from regard.tasks.image.image_classifier import ImageClassifier
    from regard.tasks.text.encoder_base import EncoderPredictor
    from regard.tasks.text.extractive_qa import QuestionAnswerer
    from regard.tasks.text.text_generator import TextGenerator

    files = output or [Path("attention.png")]
    check_output_files(files)
    if model is not None and not has_own_view(model):
        shown = {"--to": to, "--from": from_, "--translation": translation, "--max-new-tokens": max_new_tokens}
        shown |= {"--view": view, "--layer": layer, "--head": head, "--words": words or None, "--question": question}
        return see_output(text, model, {**shown, "--query": query, "--label": label}, files)
    if transcribe.is_audio_file(text):
        given = {
            "--to": to,
            "--from": from_,
            "--max-new-tokens": max_new_tokens,
            "--view": view,
            "--layer": layer,
            "--head": head,
        }
        given |= {"--question": question, "--words": words or None}
        if ignored := [option for option, value in given.items() if value is not None]:
            raise BadInput(f"{text} is a sound, of which there is one picture: leave out {', '.join(ignored)}")
        return see_audio(Path(text), model or transcribe.DEFAULT, translation, beam_size, files)
    of_texts = {
        "--to": to,
        "--from": from_,
        "--max-new-tokens": max_new_tokens,
        "--translation": translation,
        "--question": question,
    }
    of_texts["--words"] = words or None
    if images.are_images([text]):
        return _image(text, model, None, view, layer, head, query, label, files, of_texts)
    (window,) = lines.lines_from_arguments([text])
    if len(window) != 1 or not window[0].text.strip():
        why = next((f"it {line.problem.split(':')[0]}" for line in window if line.problem), "give one line of text")
        raise BadInput(f"cannot look at this text: {why}")
    line = window[0].text
    found = None if model is None else load_predictor(model)
    if isinstance(found, ImageClassifier):
        return _image(line, model, found, view, layer, head, query, label, files, of_texts)
    if view in (View.class_, View.relevance) or query is not None or label is not None:
        what = "--query" if query is not None else "--label" if label is not None else f"--view {view}"
        raise BadInput(f"{what} is for images, and this is a text; regard see photo.jpg looks at one")
    if isinstance(found, (EncoderPredictor, TextGenerator)) and (to or from_ or translation is not None):
        raise BadInput(f"{model} translates nothing: leave out --to, --from and --translation")
    if max_new_tokens is not None and not isinstance(found, TextGenerator):
        raise BadInput("--max-new-tokens is for language models")
    if question is None and isinstance(found, QuestionAnswerer):
        raise BadInput(f"{model} finds answers in texts: say what is asked, with --question")
    if question is not None and not isinstance(found, QuestionAnswerer):
        raise BadInput("--question is for a model that finds answers in texts: name one with --model")
    predictor: Any = found
    many = 24 if max_new_tokens is None else max_new_tokens
    if isinstance(found, QuestionAnswerer):
        view, (said, traces) = view or View.heads, _answered(found, line, question or "")
    elif isinstance(found, EncoderPredictor):
        view, said, traces = view or View.heads, [line.strip()], found.attention(line)
    elif isinstance(found, TextGenerator):
        view, (said, traces) = view or View.decoder, _written(found, line, many)
    else:
        predictor = _translator(model, from_, to)
        view, (said, traces) = view or View.cross, _translated(predictor, line, translation, beam_size)
    seen = select_traces(traces, view, layer)
    title = "  →  ".join(said)
    options = {"max_new_tokens": many, "beam_size": beam_size, "question": question} | _page_output(
        said[-1], translation, beam_size
    )
    paged = html_page.text_page(_name(model, predictor), predictor, line, traces, title, **options)
    if isinstance(found, EncoderPredictor) and not special_tokens:  # after a rollout was taken through them
        traces, seen = ([_without_special_tokens(trace) for trace in some] for some in (traces, seen))
        paged = html_page.traces_page(traces, title)
    if words:  # likewise: layers are multiplied piece by piece
        traces, seen = ([merge_subwords(trace, predictor.text) for trace in some] for some in (traces, seen))
        paged = html_page.traces_page(traces, title)
    print(*said, sep="\n", end="\n\n")
    for trace in seen[:1] if view != View.layers else []:
        width = shutil.get_terminal_size((100, 24)).columns if sys.stdout.isatty() else 100
        print(_drawing(trace, head, width), end="\n\n")
    for file in draw(seen, view, head, files, paged):
        print(f"drawn: {file}")
    return 0


def _image(
    file: str,
    model: str | None,
    found: ImageClassifier | None,
    view: View | None,
    layer: int | None,
    head: int | None,
    query: str | None,
    label: str | None,
    files: Sequence[Path],
    of_texts: Mapping[str, object],
) -> int:
    """An image file, and what a model looks at in it."""
    from regard.cli import images
    from regard.cli.see_image import see_image

    if not images.is_image(file) and not images.path_exists(file):
        raise BadInput(f"{model} looks at images, and there is no file '{file[:60]}'")
    if ignored := [option for option, value in of_texts.items() if value is not None]:
        raise BadInput(f"{file} is an image: leave out {', '.join(ignored)}")
    if view is not None and view not in IMAGE_VIEWS:
        raise BadInput(f"--view {view} is for texts; an image has {', '.join(IMAGE_VIEWS)}")
    return see_image(file, model, found, view or View.class_, layer, head, query, label, files)


def _answered(found: QuestionAnswerer, line: str, question: str) -> tuple[list[str], list[Trace]]:
    """What was asked and what was answered, and the maps of both texts side by side."""
    return [question.strip(), found(line, question).text], found.attention(line, question)


def _without_special_tokens(trace: Trace) -> Trace:
    """A map without the marks at both ends of a text; its rows then sum to less than one."""
    assert trace.rows is not None
    assert trace.columns is not None
    inner = trace.weights[..., 1:-1, 1:-1]
    return replace(trace, weights=inner, rows=trace.rows[1:-1], columns=trace.columns[1:-1])


def _translator(model: str | None, source: str | None, to: str | None) -> Translator:
    from regard.cli.load_translator import load_translator

    return load_translator(model, source, to if to or model else "de")


def _name(model: str | None, predictor: Any) -> str:
    """What a page calls a model: never by where it lies."""
    from regard.serve.http.model_pool import parse_model_argument

    return f"{predictor.source}-{predictor.target}" if model is None else parse_model_argument(model)[0]


def _page_output(written: str, translation: str | None, beam_size: int) -> dict[str, Any]:
    """What a page is to show as written: what was asked for, or what more beams have found than it searches with."""
    if translation is None and beam_size <= MAX_PAGE_BEAMS:
        return {}
    return {"translation": written, "answer": written, "beam_size": None}


def _translated(
    translator: Translator, line: str, translation: str | None, beam_size: int
) -> tuple[list[str], list[Trace]]:
    """The line and its translation, and the maps of it."""
    with oom_advice("give fewer beams or a shorter text"):
        written = translation if translation is not None else str(translator([line], beam_size=beam_size)[0])
        return [line.strip(), written], translator.attention(line, translation, beam_size=beam_size)


def _written(writer: TextGenerator, line: str, tokens: int) -> tuple[list[str], list[Trace]]:
    """The line and what a language model writes on from it, and the maps of both."""
    if not tokens:
        return [line.strip()], writer.attention(line, "")
    return [line.strip(), writer([line], max_new_tokens=tokens, temperature=0)[0]], writer.attention(
        line, max_new_tokens=tokens
    )


def check_output_files(files: Iterable[Path], page: bool = True) -> None:
    """Refuse a kind of file that cannot be drawn before any work is done; `page`: whether one of HTML can be."""
    kinds = {".png", ".svg", ".html", ".htm"} if page else {".png", ".svg"}
    known = ".png, .svg or .html" if page else ".png or .svg"
    for file in files:
        if file.suffix.lower() not in kinds:
            raise BadInput(f"cannot draw to {file}; end the name in {known}")
        if not file.parent.is_dir():
            raise BadInput(f"cannot draw to {file}: there is no folder {file.parent}")


def draw_first_line(
    translator: Translator, line: str, translation: str | None, beam_size: int, files: Sequence[Path]
) -> None:
    """The attention of one line, as ``regard translate --attention`` draws it; says on stderr where it is."""
    from regard.cli import html_page, print_status

    traces = translator.attention(line, translation, beam_size=beam_size)
    options = {"beam_size": min(beam_size, MAX_PAGE_BEAMS)} | (
        {} if translation is None else _page_output(translation, translation, 1)
    )
    name = f"{translator.source}-{translator.target}"
    paged = html_page.text_page(name, translator, line, traces, line.strip(), **options)
    for file in draw(select_traces(traces, View.cross, None), View.cross, None, files, paged):
        print_status(f"attention of the first line drawn: {file}")


def select_traces(traces: Sequence[Trace], view: View, layer: int | None) -> list[Trace]:
    """The traces that a view shows."""
    from regard.see import cross_rollout, rollout

    cross = [t for t in traces if t.kind in ("cross", "align")]
    # a hard choice before the chances it was taken from, which belong to a part of the part that chose
    names = [f"{t.name}." for t in cross if t.name]
    cross.sort(key=lambda t: any(t.name.startswith(name) for name in names))
    encoder = [t for t in traces if t.kind == "self" and not t.name.startswith("decoder")]
    decoder = [t for t in traces if t.kind == "self" and t.name.startswith("decoder")]
    own = encoder or decoder  # where nothing reads across, words look at one another
    if view == View.layers:
        return _some(cross or own, view)
    if view == View.rollout and not cross:
        return [rollout(_some(own, view)[: None if layer is None else layer + 1])]
    if view == View.rollout:
        return [cross_rollout(_one(cross, view, layer), rollout(_some(encoder, view)))]
    views = {View.encoder: encoder, View.decoder: decoder, View.heads: cross or own}
    return [_one(views.get(view, cross), view, layer)]


def draw(
    seen: Sequence[Trace], view: View, head: int | None, files: Iterable[Path], paged: Callable[[Path], None]
) -> list[Path]:
    """Write the picture of a view to each file; `paged` writes those that are pages."""
    from regard import see
    from regard.cli.html_page import is_page

    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it likes to talk about its font cache
    for file in files:
        if is_page(file):
            paged(file)
        else:
            see.save(_figure(seen, view, head), file)
    return list(files)


def _figure(seen: Sequence[Trace], view: View, head: int | None) -> Figure:
    from regard import see

    if view == View.layers:
        return see.layers(seen)
    if view == View.path:
        return see.alignment_path(seen[0])
    if view == View.heads or (view in (View.encoder, View.decoder) and head is None):
        return see.heads(seen[0])
    return see.alignment(seen[0], head)


def _drawing(trace: Trace, head: int | None, width: int) -> str:
    from regard.see import text_map

    return text_map(trace, head, width)


def _some(traces: Sequence[Trace], view: View) -> list[Trace]:
    if not traces:
        raise BadInput(f"this model has nothing to show for --view {view}")
    return list(traces)


def _one(traces: Sequence[Trace], view: View, layer: int | None) -> Trace:
    """One layer; by default the last but one, which aligns words best in the translators that ship."""
    found = _some(traces, view)
    if layer is None:
        return found[max(0, len(found) - 2)]
    if layer >= len(found):
        raise BadInput(f"there is no layer {layer} in the {view} view; there are 0 to {len(found) - 1}")
    return found[layer]
