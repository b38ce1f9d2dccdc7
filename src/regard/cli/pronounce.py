"""``regard pronounce``: words in, their phonemes out, in the same order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import Device, Json, make_options, with_options
from regard.decoding.generation_config import GenerationConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from regard.cli.batch_runner import Result
    from regard.modalities.text import Text


@with_options(GenerationConfig, ("num_candidates", "beam_size"), num_candidates="-k")
def pronounce(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="WORD...", help="Words to pronounce; without them, lines are read from stdin."),
    ] = None,
    model: Annotated[
        str, typer.Option(metavar="NAME", help="A pronouncer by name (regard list zoo), a folder, or a run.")
    ] = "sounds-en",
    *,
    options: dict[str, Any],
    as_json: Json = False,
    device: Device = "auto",
) -> int:
    """Print the pronunciation of words, in the phonemes of the CMU pronouncing dictionary (ARPAbet).

    Output line n belongs to input line n; one that cannot be used is empty. The words of a line are separated by |,
    several pronunciations by tabs.

    \b
      regard pronounce xylophone
      regard pronounce read lead --num-candidates 2
      regard pronounce < words.txt
      regard see xylophone --model sounds-en
    """
    from regard.cli import lines
    from regard.cli.batch_runner import BatchRunner, line_items
    from regard.cli.prepare import load_predictor_as, prepare_predictor
    from regard.tasks.text.pronunciation import Pronouncer

    source = lines.read_lines(words, "words")
    found = load_predictor_as(Pronouncer, model, "not a pronouncer; see regard list zoo")
    pronouncer, search = prepare_predictor(found, device), make_options(found, options)

    def predict(rows: list[list[str]], numbers: Sequence[int]) -> list[Text]:
        said = iter(pronouncer.predict([word for row in rows for word in row], search))
        return [_join_words([next(said) for _ in row]) for row in rows]

    runner = BatchRunner(predict, "pronounce", "give fewer beams or shorter words")
    return runner.run(line_items(source, str.split), _show, as_json)


def _join_words(words: Sequence[Text]) -> Text:
    """Return the pronunciations of a line: of every word the best, of every word the second, and so on."""
    from regard.modalities.text import Candidate, Text

    columns = []
    for rank in range(max(len(word.candidates) for word in words)):
        chosen = [word.candidates[min(rank, len(word.candidates) - 1)] for word in words]
        score = sum(each.score for each in chosen) / len(chosen)
        columns.append(Candidate(" | ".join(each.text for each in chosen), score))
    return Text.from_candidates(columns)


def _show(result: Result) -> list[str]:
    return ["" if result.output is None else "\t".join(each.text for each in result.output.candidates)]
