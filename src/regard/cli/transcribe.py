"""``regard transcribe``: sound files in, what is said in them out, in the same order.

A file that cannot be used leaves an empty line, so that line 7 of the output is always the seventh file, and one line
on stderr, which JSON has as "error"; the status at the end is 1. One in which nothing is heard leaves an empty line
too, and is no error.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import Device, Json
from regard.core.errors import BadInput, RegardError, oom_advice

if TYPE_CHECKING:
    from regard.modalities.transcript import Transcript
    from regard.tasks.audio.speech_base import SpeechRecognizerBase

DEFAULT = "digits"


def transcribe(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILES...", help="Sound files: .wav, .flac, .ogg, of any rate, mono or stereo."),
    ],
    model: Annotated[
        str, typer.Option(metavar="NAME", help="A model by name (regard list zoo), a folder, or a run.")
    ] = DEFAULT,
    beam_size: Annotated[
        int,
        typer.Option(min=1, max=256, metavar="N", help="Texts kept while searching; 1: the likeliest label each time."),
    ] = 8,
    as_json: Json = False,
    device: Device = "auto",
) -> int:
    """Write down what is said in sound files.

    The model that ships knows English digits, one after another. Output line n belongs to file n; as JSON it holds the
    log-probability, and the words with their times, too.

    \b
      regard transcribe digits.wav
      regard transcribe *.flac --json
      regard see digits.wav --output lattice.png
    """
    from regard.cli import FAILED, print_status
    from regard.cli.prepare import prepare_predictor

    hear = prepare_predictor(load_transcriber(model), device)
    bad = 0
    for file in files:
        heard: Transcript | None = None
        why: str | None = None
        try:
            with oom_advice(f"{file} is to be shorter, or the beams fewer"):
                heard = hear(file, beam_size=beam_size)
        except RegardError as error:
            bad, why = bad + 1, str(error)
            print_status(why)
        if heard is not None and not heard.text:
            print_status(f"{file}: nothing is heard in it")
        print(_shown(file, heard, why, as_json), flush=True)
    return FAILED if bad else 0


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


def _shown(file: Path, heard: Transcript | None, why: str | None, as_json: bool) -> str:
    if not as_json:
        return "" if heard is None else heard.text
    return json.dumps({"file": str(file), **({"error": why} if heard is None else heard.to_json())}, ensure_ascii=False)
