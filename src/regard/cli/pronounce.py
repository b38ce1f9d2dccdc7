"""``regard pronounce``: words in, their sounds out, in the same order.

A line that cannot be used leaves an empty line (of JSON: one with "error"), so that line 7 of the output is always line
7 of the input, and one line on stderr; the status at the end is 1.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.line_processor import LineProcessor
from regard.cli.options import Device, Json

if TYPE_CHECKING:
    from regard.cli.lines import Line
    from regard.modalities.text import Candidate
    from regard.tasks.text.pronunciation import Pronouncer


def pronounce(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="WORD...", help="Words to pronounce; without them, lines are read from stdin."),
    ] = None,
    model: Annotated[
        str, typer.Option(metavar="NAME", help="A pronouncer by name (regard list zoo), a folder, or a run.")
    ] = "sounds-en",
    beam_size: Annotated[int, typer.Option(min=1, max=256, metavar="N", help="Outputs kept while searching.")] = 4,
    num_candidates: Annotated[
        int,
        typer.Option(
            "-k", "--num-candidates", min=1, metavar="N", help="So many pronunciations of each word, best first."
        ),
    ] = 1,
    as_json: Json = False,
    device: Device = "auto",
) -> int:
    """Say how words sound, in the sounds of the CMU pronouncing dictionary (ARPAbet).

    Output line n belongs to input line n. Of a line of several words the sounds of each come with | between them; of
    several pronunciations each comes in a column of its own.

    \b
      regard pronounce xylophone
      regard pronounce read lead --num-candidates 2
      regard pronounce < words.txt
      regard see xylophone --model sounds-en
    """
    from regard.cli import lines
    from regard.cli.prepare import load_predictor_as, prepare_predictor
    from regard.core.errors import BadInput
    from regard.tasks.text.pronunciation import Pronouncer

    if num_candidates > beam_size:
        raise BadInput(f"{num_candidates} pronunciations of each word need at least as many beams, not {beam_size}")
    windows = lines.read_lines(words, "words")
    found = prepare_predictor(
        load_predictor_as(Pronouncer, model, "which pronounces nothing; regard list zoo names what does"), device
    )
    return _Processor(found, beam_size, num_candidates, as_json).run(windows, "pronounce")


class _Processor(LineProcessor["list[list[Candidate]]"]):
    """Windows of lines in, sounds out; keeps count."""

    failure_message = "could not be pronounced: left empty ({})"
    memory_advice = "give fewer beams or shorter words"

    def __init__(self, pronouncer: Pronouncer, beam_size: int, num_candidates: int, as_json: bool) -> None:
        super().__init__()
        self.pronouncer, self.beam_size, self.num_candidates, self.as_json = (
            pronouncer,
            beam_size,
            num_candidates,
            as_json,
        )

    def __call__(self, window: list[Line]) -> list[str]:
        """The output lines of a window."""
        self.check(window)
        usable = [line for line in window if line.text.strip()]
        found = dict(zip([line.number for line in usable], self.predict_with_fallback(usable, lost=[]), strict=True))
        self.done += sum(len(each) for each in found.values())
        return [row for line in window for row in self._shown(line, found.get(line.number, []))]

    def predict(self, some: list[Line]) -> list[list[list[Candidate]]]:
        """Of each line its words, of each word its pronunciations."""
        rows = [line.text.split() for line in some]
        flat = [word for words in rows for word in words]
        said = iter(self.pronouncer.candidates(flat, beam_size=self.beam_size, num_candidates=self.num_candidates))
        return [[next(said) for _ in words] for words in rows]

    def _shown(self, line: Line, found: list[list[Candidate]]) -> list[str]:
        if not self.as_json:
            ranks = range(max((len(word) for word in found), default=0))
            columns = [" | ".join(word[min(rank, len(word) - 1)].text for word in found) for rank in ranks]
            return ["\t".join(columns)]
        words = line.text.split() if found else []
        said: list[dict[str, Any]] = [
            {"word": word, "pronunciations": [{"phonemes": c.text.split(), "score": round(c.score, 4)} for c in each]}
            for word, each in zip(words, found, strict=True)
        ]
        wrong = {} if found else self.error(line)
        return [json.dumps({"number": line.number, "text": line.text, "words": said, **wrong}, ensure_ascii=False)]
