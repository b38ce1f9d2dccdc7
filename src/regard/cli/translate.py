"""``regard translate``: lines in, lines out, in the same order."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import Device, Int8, Json, Verbose, make_options, with_options
from regard.decoding.generation_config import GenerationConfig
from regard.modalities.text import Candidate

if TYPE_CHECKING:
    from regard.cli.batch_runner import Result

MANY = 20  # lines from which the speed is printed without --verbose
OPTIONS = ("num_candidates", "max_new_tokens", "beam_size", "length_penalty", "groups", "diversity", "prefix", "must",
           "sample", "temperature", "top_k", "top_p", "min_p", "seed")  # fmt: skip

_files = "Files"


def _widen_beam(options: dict[str, Any], beam_size: int = GenerationConfig.beam_size) -> dict[str, Any]:
    """Return the options with as many beams as the candidates and groups need, where no number of beams was given.

    `beam_size` is the default of the model.
    """
    if "beam_size" in options or options.get("sample") or not options.keys() & {"num_candidates", "groups"}:
        return options
    groups = options.get("groups", 1)
    beam_size = max(beam_size, options.get("num_candidates", 1))
    return {**options, "beam_size": groups * -(-beam_size // groups)}


@with_options(GenerationConfig, OPTIONS, complete=_widen_beam)
def translate(
    text: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT...", help="Text to translate; without it, lines are read from stdin."),
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="LANGUAGE", help="Language to translate to: de, fr.")
    ] = None,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="LANGUAGE", help="Language to translate from.", show_default="en")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="A translator by name (regard list zoo), or a folder.", show_default="by the languages"
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", metavar="FILE", help="Read lines from this file.", rich_help_panel=_files),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write lines to this file; it appears when all lines are done.",
            rich_help_panel=_files,
        ),
    ] = None,
    attention: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Also draw the attention of the first line: .png, .svg, or a page, .html.",
            rich_help_panel=_files,
        ),
    ] = None,
    *,
    options: dict[str, Any],
    as_json: Json = False,
    device: Device = "auto",
    int8: Int8 = False,
    verbose: Verbose = False,
) -> int:
    """Translate text, a file or stdin, line by line.

    Output line n belongs to input line n. A line that cannot be used (not UTF-8, over 20,000 characters) is named on
    stderr, leaves an empty line, and makes the exit status 1. With --num-candidates every translation is a line: line
    number, score and text, separated by tabs.

    \b
      regard translate "Good morning." --to de
      regard translate --to fr --file english.txt --output french.txt
      regard translate "Where is the station?" --to de --num-candidates 4
    """
    if text and file is not None:
        raise typer.BadParameter("give either the text itself or --file, not both")
    from regard.cli import lines, print_status
    from regard.cli.batch_runner import BatchRunner, line_items
    from regard.cli.load_translator import check_language, load_prepared_translator
    from regard.cli.output_files import check_output_files
    from regard.cli.see import draw_first_line

    check_output_files(attention or ())
    check_language(model, to)
    source = lines.read_lines(text, "text") if file is None else lines.read_batches(lines.open_lines(file))
    with lines.OutputFile(output) as out:  # a file that cannot be written is refused before anything is loaded
        translator = load_prepared_translator(model, from_, to, device, int8)
        beam_size = translator.option_defaults.get("beam_size", GenerationConfig.beam_size)
        search = make_options(translator, _widen_beam(options, beam_size))
        runner = BatchRunner.of(translator, search, "translate", "give fewer beams or shorter lines")
        show = _show_text if search.num_candidates == 1 else _show_candidates
        status = runner.run(line_items(source, lambda line: translator.read_item({"text": line})), show, as_json, out)
    if attention and runner.first is not None:
        line, found, beam_size = runner.first.value, str(runner.first.output), search.beam_size
        is_plain = search == GenerationConfig(beam_size=beam_size, num_candidates=search.num_candidates)
        draw_first_line(translator, line, None if is_plain else found, beam_size, attention)
    if runner.done and (verbose or runner.done >= MANY):
        print_status(runner.speed(translator))
    return status


def _show_text(result: Result) -> list[str]:
    return [str(result.output or "")]


def _show_candidates(result: Result) -> list[str]:
    found = result.output.candidates if result.output is not None else (Candidate("", 0.0),)
    return [f"{result.item.number}\t{each.score:.4f}\t{each.text}" for each in found]
