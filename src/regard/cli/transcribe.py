"""``regard transcribe``: sound files in, what is said in them out, in the same order.

A file that cannot be used leaves an empty line, so that line 7 of the output is always the seventh file, and one line
on stderr, which JSON has as "error"; the status at the end is 1. One in which nothing is heard leaves an empty line
too, and is no error.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import Device, Json
from regard.core.errors import BadInput, RegardError, oom_advice

if TYPE_CHECKING:
    from collections.abc import Sequence

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


def see_audio(file: Path, model: str, said: str | None, beam_size: int, pictures: Sequence[Path]) -> int:
    """Hear a sound, draw where each word was heard, and say where the pictures are: for ``regard see``."""
    from regard.serve.http.model_pool import parse_model_argument
    from regard.tasks.audio.speech_recognition import SpeechRecognizer

    found = load_transcriber(model)
    return (_see_attention if isinstance(found, SpeechRecognizer) else _lattice)(
        found, parse_model_argument(model)[0], file, said, beam_size, pictures
    )


def _lattice(hear: Any, name: str, file: Path, said: str | None, beam_size: int, pictures: Sequence[Path]) -> int:
    from regard import see
    from regard.cli import html_page

    seen = hear.analyze(file, beam_size, said)
    print(seen.transcript.text)
    for word in seen.transcript.words:
        print(f"    {word.start:6.2f} s   {word.word}")
    title = f"{file.name}: {seen.transcript.text or 'nothing is heard'}"
    for picture in pictures:
        if html_page.is_page(picture):
            html_page.write_page(picture, name, hear, _given(file, said, beam_size), title)
        else:
            see.ctc_lattice(
                seen.frames.numpy(),
                seen.probabilities.numpy(),
                seen.share.numpy(),
                seen.path.numpy(),
                seen.states,
                seen.labels,
                seen.seconds,
                title,
                picture,
            )
        print(f"drawn: {picture}")
    return 0


def _see_attention(hear: Any, name: str, file: Path, said: str | None, beam_size: int, pictures: Sequence[Path]) -> int:
    from regard import see
    from regard.cli import html_page

    text, (trace,) = hear.analyze(file, said, beam_size)
    print(text)
    title = f"{file.name}: {text or 'nothing is heard'}"
    for picture in pictures:
        if html_page.is_page(picture):
            html_page.write_page(picture, name, hear, _given(file, said, beam_size), title)
        else:
            spectrum, weights = hear.frames(file).numpy(), trace.weights[0, 0].numpy()
            see.audio_alignment(spectrum, weights, trace.rows, hear.seconds, title, picture)
        print(f"drawn: {picture}")
    return 0


def _given(file: Path, said: str | None, beam_size: int) -> dict[str, Any]:
    """A sound as a look takes it."""
    return {"sound": file.read_bytes(), "beam_size": beam_size} | ({} if said is None else {"said": said})


def _shown(file: Path, heard: Transcript | None, why: str | None, as_json: bool) -> str:
    if not as_json:
        return "" if heard is None else heard.text
    return json.dumps({"file": str(file), **({"error": why} if heard is None else heard.to_json())}, ensure_ascii=False)
