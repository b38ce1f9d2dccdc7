"""``regard translate``: lines in, lines out, in the same order.

A line that cannot be used leaves an empty line, so that line 7 of the output is always line 7 of the input, and one
line on stderr; the status at the end is 1. All other lines are translated whatever happens to one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.line_processor import LineProcessor
from regard.cli.options import SAMPLING, SEARCH, Device, Int8, MinP, Seed, TopK, Verbose

if TYPE_CHECKING:
    from regard.cli.lines import Line
    from regard.modalities.text import Candidate
    from regard.tasks.text.translation import Translator

MANY = 20  # lines from which the speed is told without being asked for
COMPLAINTS = 100  # lines that are complained of one by one

_files = "Files"


def translate(
    text: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT...", help="What to translate; without it, lines are read from stdin."),
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
            help="Write lines to this file; it appears when all is done.",
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
    beam_size: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=256,
            metavar="N",
            help="Outputs kept while searching; 1 is greedy.",
            show_default="4",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    num_candidates: Annotated[
        int,
        typer.Option(
            min=1,
            max=256,
            metavar="N",
            help="Translations of each line, as line number, score and text between tabs.",
            rich_help_panel=SEARCH,
        ),
    ] = 1,
    length_penalty: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            help="Scores are divided by length to this power; more favours longer outputs.",
            show_default="1",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    groups: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="Search in so many groups of beams that avoid one another's words.",
            rich_help_panel=SEARCH,
        ),
    ] = 1,
    diversity: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            metavar="X",
            help="What a word costs that another group chose.",
            show_default="0.5",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    prefix: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Every translation begins with this.", rich_help_panel=SEARCH)
    ] = None,
    must: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PHRASE",
            help="Every translation contains this; may be given several times.",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    sample: Annotated[
        bool, typer.Option("--sample", help="Draw instead of searching.", rich_help_panel=SAMPLING)
    ] = False,
    temperature: Annotated[
        float | None,
        typer.Option(
            min=0.01, metavar="X", help="Below 1 safer, above 1 wilder.", show_default="1", rich_help_panel=SAMPLING
        ),
    ] = None,
    top_k: TopK = None,
    top_p: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            max=1.0,
            metavar="X",
            help="Draw from the likeliest words that make up this much probability.",
            rich_help_panel=SAMPLING,
        ),
    ] = None,
    min_p: MinP = None,
    seed: Seed = None,
    device: Device = "auto",
    int8: Int8 = False,
    verbose: Verbose = False,
) -> int:
    """Translate text, a file or stdin, line by line.

    Output line n belongs to input line n: a line that cannot be used (no UTF-8, over 20,000 characters) is named on
    stderr, leaves an empty line, and makes the exit status 1.

    \b
      regard translate "Good morning." --to de
      regard translate --to fr --file english.txt --output french.txt
      regard translate "I saw her duck." --to de --num-candidates 4 --groups 2
    """
    given = {"--temperature": temperature, "--top-k": top_k, "--top-p": top_p, "--min-p": min_p, "--seed": seed}
    search = _settings(given, sample, beam_size, num_candidates, length_penalty, groups, diversity, prefix, must)
    if text and file is not None:
        raise typer.BadParameter("give either the text itself or --file, not both")
    from regard.cli import FAILED, lines, print_status
    from regard.cli.load_translator import describe_device, load_prepared_translator
    from regard.cli.see import check_output_files, draw_first_line

    check_output_files(attention or ())
    source = lines.read_lines(text, "text") if file is None else lines.read_batches(lines.open_lines(file))
    with lines.OutputFile(output) as out:  # a place that cannot be written is found out before anything is loaded
        translator = load_prepared_translator(model, from_, to, device, int8)
        translator.make_options(search)  # options that do not go together are refused before any line is read
        work = _Processor(translator, search, num_candidates)
        for window in source:
            out.write(work(window))
    if attention and work.first is not None:
        plain = not sample and not prefix and not must and groups == 1 and length_penalty in (None, 1.0)
        draw_first_line(
            translator, work.first[0], None if plain else work.first[1], search.get("beam_size", 4), attention
        )
    if not work.done and not work.bad:
        print_status("there is nothing to translate: the input is empty")
        return FAILED
    if work.bad > COMPLAINTS:
        print_status(f"{work.bad - COMPLAINTS:,} more lines could not be used as they stand")
    if verbose or work.done >= MANY:
        print_status(work.speed(describe_device(translator)))
    return FAILED if work.bad else 0


class _Processor(LineProcessor["list[Candidate]"]):
    """What is done to a window of lines, and what was done so far."""

    failure_message = "could not be translated: left empty ({})"
    memory_advice = "give fewer beams or shorter lines"
    most = COMPLAINTS

    def __init__(self, translator: Translator, search: dict[str, Any], num_candidates: int) -> None:
        super().__init__()
        self.translator, self.search, self.num_candidates = translator, search, num_candidates
        self.tokens = 0
        self.first: tuple[str, str] | None = None  # a line and its translation, to be looked at

    def __call__(self, window: list[Line]) -> Iterable[str]:
        """The output lines of a window."""
        from regard.modalities.text import Candidate

        self.check(window)
        found = self.predict_with_fallback(window, lost=[Candidate("", 0.0)])
        written = [candidates[0].text for candidates in found]
        self.tokens += sum(map(len, self.translator.text.encode(written)))
        for line, translation in zip(window, written, strict=True):
            if line.text.strip():
                self.done += 1
                self.first = self.first or (line.text, translation)
        return written if self.num_candidates == 1 else self._listed(window, found)

    def predict(self, some: list[Line]) -> list[list[Candidate]]:
        """Of each line its translations, best first."""
        return self.translator.candidates([line.text for line in some], first=some[0].number, **self.search)

    def _listed(self, window: list[Line], found: list[list[Candidate]]) -> Iterator[str]:
        for line, candidates in zip(window, found, strict=True):
            for candidate in candidates:
                yield f"{line.number}\t{candidate.score:.4f}\t{candidate.text}"

    def speed(self, where: str) -> str:
        """One honest line."""
        seconds = max(self.seconds, 1e-9)
        lines = f"{self.done:,} line{'s' if self.done != 1 else ''}"
        how = "drawn" if self.search.get("sample") else f"beam {self.search['beam_size']}"
        return (
            f"{lines}, {self.tokens:,} tokens written in {seconds:.1f} s: {self.tokens / seconds:,.0f} tokens/s, "
            f"{self.done / seconds:,.1f} lines/s ({where}, {how})"
        )


def _settings(
    drawing: dict[str, Any],
    sample: bool,
    beam_size: int | None,
    num_candidates: int,
    length_penalty: float | None,
    groups: int,
    diversity: float | None,
    prefix: str | None,
    must: list[str] | None,
) -> dict[str, Any]:
    """The search that the options ask for, as the translator's arguments; refuses what does not go together."""
    if not sample:
        for option, value in drawing.items():
            if value is not None:
                raise typer.BadParameter(f"{option} is about drawing; add --sample")
    if sample and (beam_size is not None or groups > 1 or must):
        raise typer.BadParameter("--sample draws; it does not go with --beam-size, --groups or --must")
    if diversity is not None and groups == 1:
        raise typer.BadParameter("--diversity is about groups of beams; add --groups 2")
    if length_penalty is not None and (sample or beam_size == 1):
        raise typer.BadParameter("--length-penalty is about beams; it does not go with --sample or --beam-size 1")
    many = -(-max(num_candidates, 4) // groups) * groups if beam_size is None else beam_size
    if num_candidates > many:
        raise typer.BadParameter(f"--num-candidates {num_candidates} needs at least --beam-size {num_candidates}")
    if many % groups:
        raise typer.BadParameter(
            f"{many} beams cannot be split into {groups} groups; give --beam-size {groups * -(-many // groups)}"
        )
    search: dict[str, Any] = {"num_candidates": num_candidates}
    if sample:
        drawn = {option[2:].replace("-", "_"): value for option, value in drawing.items() if value is not None}
        search |= {"sample": True, **drawn}
    else:
        search |= {"beam_size": many, "length_penalty": 1.0 if length_penalty is None else length_penalty}
    if groups > 1:
        search |= {"groups": groups} | ({"diversity": diversity} if diversity is not None else {})
    if prefix:
        search["prefix"] = prefix
    if must:
        search["must"] = must
    return search
