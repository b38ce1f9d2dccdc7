"""Audio: a recording handed in, as one row of samples from -1 to 1 at the rate that a model reads.

.wav, .flac, .ogg and what else libsndfile reads, of any sample rate and any number of channels: channels are averaged,
other rates resampled.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor
from regard.modalities.base import NO_LIMITS, STRING, Input, Limits, Source, is_path
from regard.modalities.image import decode_base64
from regard.tokens.frames import resample

SUFFIXES = (".wav", ".flac", ".ogg", ".oga", ".aiff", ".aif", ".au", ".mp3")
MIN_SAMPLE_RATE = 1000  # Hz; below, the header of the file is wrong
MAX_SAMPLES = 2**26  # of a recording whose length is limited
ROUNDING_ERROR = 2.0**-16  # of 16 bits: what is left of opposite channels that cancel out but for their rounding


class Audio(Input):
    """A recording: a path, the bytes of a file, or samples (an array or a tensor, one row) at the model's own rate."""

    kind = "audio"
    units = "seconds"
    media_types = ("audio/", "video/ogg")

    @classmethod
    def read(cls, source: Any, limits: Limits = NO_LIMITS, sample_rate: int | None = None) -> Any:
        """Return samples at `sample_rate`; without one the source itself, which the model reads at its own rate."""
        if not cls.is_single(source):
            wanted = "a path, the bytes of a file, an array or a tensor of samples"
            raise BadInput(f"Expected a recording ({wanted}), got {type(source).__name__}.")
        if sample_rate is None:
            return source
        if isinstance(source, (str, Path, bytes)):
            return read_audio(source, sample_rate, limits.seconds)
        wave = torch.as_tensor(source)
        if wave.ndim != 1 or not len(wave) or not bool(torch.isfinite(wave.float()).all()):
            raise BadInput(f"Samples have shape {tuple(wave.shape)}; expected one row of finite numbers.")
        return silence_constant(wave.float() if wave.is_floating_point() else wave)

    @classmethod
    def is_single(cls, given: Any) -> bool:
        return isinstance(given, (str, Path, bytes, Tensor, np.ndarray))

    @classmethod
    def sources(cls, arguments: Sequence[str]) -> Iterator[Source]:
        for word in arguments:
            if is_path(word) and Path(word).is_dir():
                files = sorted(file for file in Path(word).rglob("*") if file.suffix.lower() in SUFFIXES)
                if not files:
                    raise BadInput(f"Folder {word} contains no audio files ({', '.join(SUFFIXES)}).")
                yield from (Source(str(file), file) for file in files)
            else:
                yield Source(word, Path(word))

    @classmethod
    def from_json(cls, value: Any, limits: Limits = NO_LIMITS) -> bytes:
        """Return the bytes of a base64 string."""
        return decode_base64(value)

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        return {**STRING, "contentEncoding": "base64", "description": "the bytes of an audio file"}


def read_audio(source: str | Path | bytes, rate: int, longest: float | None = None) -> Float[Tensor, " samples"]:
    """A sound file as one row of samples from -1 to 1 at a rate: channels are averaged, other rates resampled.

    `source` is its path or its bytes. One of more than `longest` seconds is refused, and read no further than that:
    some kilobytes can hold hours of silence.
    """
    soundfile = import_soundfile()
    named = "the sound" if isinstance(source, bytes) else str(source)
    if not isinstance(source, bytes) and not Path(source).is_file():
        raise BadInput(f"there is no file {source}" if not Path(source).exists() else f"{source} is not a file")
    try:
        with (
            io.BytesIO(source)
            if isinstance(source, bytes)
            else Path(source).open("rb") as file,  # its name may be no text
            soundfile.SoundFile(file) as sound,
        ):
            own = sound.samplerate
            most = -1 if longest is None else math.ceil(longest * own) + 1
            if longest is not None and most * sound.channels > MAX_SAMPLES:
                raise BadInput(
                    f"{named} has {own:,} samples a second in {sound.channels} channels: too many to be read"
                )
            samples = sound.read(most, dtype="float32", always_2d=True)
    except (soundfile.SoundFileError, RuntimeError, OSError) as error:
        why = (getattr(error, "strerror", None) or str(error).split(": ")[-1]).strip().rstrip(".").lower()
        raise BadInput(f"{named} is not a sound that can be read ({why}); give .wav, .flac or .ogg") from None
    if own < MIN_SAMPLE_RATE:
        raise BadInput(
            f"{named} has {own} samples a second, in which nothing can be said; give {MIN_SAMPLE_RATE:,} or more"
        )
    if not len(samples):
        raise BadInput(f"{named} holds no sound: it has no samples")
    if longest is not None and len(samples) > longest * own:
        raise BadInput(f"{named} is longer than the {longest:g} seconds that are allowed")
    if not np.isfinite(samples).all():
        raise BadInput(f"{named} holds samples that are not finite numbers")
    wave, rounding = torch.from_numpy(samples.mean(1)), 0.0 if samples.shape[1] == 1 else ROUNDING_ERROR
    return resample(silence_constant(wave, rounding), own, rate)


def silence_constant(wave: Float[Tensor, " samples"], rounding: float = 0.0) -> Float[Tensor, " samples"]:
    """A wave as it is, or zeros where no sample differs from another: nothing is in it, whatever its level. What comes
    after, a change of the rate or silence at the end, would make a step of such a level that could be heard."""
    return torch.zeros_like(wave) if not len(wave) or bool(wave.max() - wave.min() <= rounding) else wave


def import_soundfile() -> Any:
    """The package that reads sound files."""
    try:
        import soundfile
    except (ImportError, OSError):  # the package, or the library it speaks to
        raise BadInput("to read sound files the package soundfile is needed: pip install soundfile") from None
    return soundfile
