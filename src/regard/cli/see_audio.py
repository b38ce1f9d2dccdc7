"""``regard see`` for an audio file: draw which audio each word was recognised from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.cli.transcribe import load_transcriber


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
