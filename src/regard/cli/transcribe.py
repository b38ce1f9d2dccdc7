"""``regard transcribe``: sound files in, what is said in them out, in the same order.

A file that cannot be used leaves an empty line, so that line 7 of the output is always the seventh file, and one line
on stderr, which JSON has as "error"; the status at the end is 1. One in which nothing is heard leaves an empty line
too, and is no error.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import Device, Json
from regard.core.errors import BadInput, RegardError, sparing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from regard.tasks.transcriber import Heard, Sounds

SOUNDS = (".wav", ".flac", ".ogg", ".oga", ".aiff", ".aif", ".au", ".mp3")  # what `regard see` takes for a sound
DEFAULT = "digits"


def transcribe(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILES...", help="Sound files: .wav, .flac, .ogg, of any rate, mono or stereo."),
    ],
    model: Annotated[
        str, typer.Option(metavar="NAME", help="A model by name (regard list zoo), a folder, or a run.")
    ] = DEFAULT,
    beams: Annotated[
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
    from regard.cli import FAILED, say
    from regard.cli.ready import ready

    hear = ready(opened(model), device)
    bad = 0
    for file in files:
        heard: Heard | None = None
        why: str | None = None
        try:
            with sparing(f"{file} is to be shorter, or the beams fewer"):
                heard = hear([file], beams=beams)[0]
        except RegardError as error:
            bad, why = bad + 1, str(error)
            say(why)
        if heard is not None and not heard.text:
            say(f"{file}: nothing is heard in it")
        print(_shown(file, heard, why, as_json), flush=True)
    return FAILED if bad else 0


def opened(name: str) -> Sounds:
    """The transcriber of a name, a folder or a run."""
    from regard.cli.ready import opened_as
    from regard.tasks.transcriber import Sounds

    found = opened_as(Sounds, name, "not one that transcribes; see regard list zoo")
    if found.front is None:
        raise BadInput(f"{name} reads frames that were made elsewhere, not sound files")
    return found


def is_sound(text: str) -> bool:
    """Whether a word on the command line means a sound file."""
    return text.lower().endswith(SOUNDS) and len(text.split("\n")) == 1


def look(file: Path, model: str, said: str | None, beams: int, pictures: Sequence[Path]) -> int:
    """Hear a sound, draw where each word was heard, and say where the pictures are: for ``regard see``."""
    from regard.serve.host import named
    from regard.tasks.hearer import Hearer

    found = opened(model)
    return (_listened if isinstance(found, Hearer) else _lattice)(found, named(model)[0], file, said, beams, pictures)


def _lattice(hear: Any, name: str, file: Path, said: str | None, beams: int, pictures: Sequence[Path]) -> int:
    from regard import see
    from regard.cli import page

    seen = hear.look(file, beams, said)
    print(seen.heard.text)
    for word in seen.heard.words:
        print(f"    {word.start:6.2f} s   {word.word}")
    title = f"{file.name}: {seen.heard.text or 'nothing is heard'}"
    for picture in pictures:
        if page.is_page(picture):
            page.write(picture, name, hear, _given(file, said, beams), title)
        else:
            see.lattice(
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


def _listened(hear: Any, name: str, file: Path, said: str | None, beams: int, pictures: Sequence[Path]) -> int:
    from regard import see
    from regard.cli import page

    text, (trace,) = hear.look(file, said, beams)
    print(text)
    title = f"{file.name}: {text or 'nothing is heard'}"
    for picture in pictures:
        if page.is_page(picture):
            page.write(picture, name, hear, _given(file, said, beams), title)
        else:
            spectrum, weights = hear.framed([file])[0].numpy(), trace.weights[0, 0].numpy()
            see.listened(spectrum, weights, trace.rows, hear.seconds, title, picture)
        print(f"drawn: {picture}")
    return 0


def _given(file: Path, said: str | None, beams: int) -> dict[str, Any]:
    """A sound as a look takes it."""
    return {"sound": file.read_bytes(), "beams": beams} | ({} if said is None else {"said": said})


def _shown(file: Path, heard: Heard | None, why: str | None, as_json: bool) -> str:
    if not as_json:
        return "" if heard is None else heard.text
    return json.dumps({"file": str(file), **({"error": why} if heard is None else asdict(heard))}, ensure_ascii=False)
