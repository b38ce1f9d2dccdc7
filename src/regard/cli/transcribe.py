"""``regard transcribe``: audio files in, what is said in them out, in the same order."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import Device, Json, make_options
from regard.core.errors import BadInput

if TYPE_CHECKING:
    from regard.cli.batch_runner import Result
    from regard.tasks.audio.speech_base import SpeechRecognizerBase

DEFAULT = "digits"


def transcribe(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILES...", help="Audio files (.wav, .flac, .ogg), of any sample rate, or folders of them."
        ),
    ],
    model: Annotated[
        str, typer.Option(metavar="NAME", help="A model by name (regard list zoo), a folder, or a run.")
    ] = DEFAULT,
    beam_size: Annotated[
        int,
        typer.Option(min=1, max=256, metavar="N", help="Hypotheses that beam search keeps; 1 is greedy."),
    ] = 8,
    as_json: Json = False,
    device: Device = "auto",
) -> int:
    """Transcribe audio files.

    The model that ships knows English digits. Output line n belongs to file n; a file that cannot be read leaves an
    empty line. JSON also has the log-probability, and the words with their times.

    \b
      regard transcribe digits.wav
      regard transcribe *.flac --json
      regard see digits.wav --output lattice.png
    """
    from regard.cli.batch_runner import BatchRunner, argument_items
    from regard.cli.prepare import prepare_predictor

    recognizer = prepare_predictor(load_transcriber(model), device)
    options = make_options(recognizer, {"beam_size": beam_size})
    runner = BatchRunner.of(recognizer, options, "transcribe", "give a shorter recording or fewer beams")
    return runner.run(argument_items(recognizer, [str(file) for file in files]), _show, as_json, also=_say_silent)


def _show(result: Result) -> list[str]:
    return [str(result.output or "")]


def _say_silent(result: Result) -> None:
    from regard.cli import print_status

    if not result.output.text:
        print_status(f"{result.item.name}: no speech recognised")


def load_transcriber(name: str) -> SpeechRecognizerBase:
    """Return the speech recognizer of a name, a folder or a run."""
    from regard.cli.prepare import load_predictor_as
    from regard.tasks.audio.speech_base import SpeechRecognizerBase

    found = load_predictor_as(SpeechRecognizerBase, name, "not one that transcribes; see regard list zoo")
    if found.preprocess is None:
        raise BadInput(f"{name} reads frames that were made elsewhere, not sound files")
    return found


def is_audio_file(text: str) -> bool:
    """Return whether a word on the command line means a sound file."""
    from regard.modalities.audio import SUFFIXES

    return text.lower().endswith(SUFFIXES) and len(text.split("\n")) == 1
