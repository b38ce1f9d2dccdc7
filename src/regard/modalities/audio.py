"""Audio: a recording handed in, as one row of samples from -1 to 1, and `AudioPreprocess`, the way to a model's frames.

.wav, .flac, .ogg and what else libsndfile reads, of any sample rate and any number of channels: channels are averaged,
other rates resampled. `AudioPreprocess` is one value, saved with the model and shared by training, prediction and the
explorer: sample rate, window, hop, mel bins, deltas.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor
from regard.modalities.base import NO_LIMITS, STRING, Input, Limits, Source, file_sources
from regard.modalities.image import decode_base64
from regard.tokens.frames import LogMelSpectrogram, resample

SUFFIXES = (".wav", ".flac", ".ogg", ".oga", ".aiff", ".aif", ".au", ".mp3")
MIN_SAMPLE_RATE = 1000  # Hz; below, the header of the file is wrong
MAX_SAMPLES = 2**26  # of a recording whose length is limited
ROUNDING_ERROR = 2.0**-16  # of 16 bits: what is left of opposite channels that cancel out but for their rounding


@dataclass(frozen=True, eq=False)
class Audio(Input):
    """A recording, read from a path, the bytes of a file, or samples (an array or a tensor, one row)."""

    samples: Float[Tensor, " samples"]
    sample_rate: int | None = None  # Hz; None: that of the model that reads it

    kind = "audio"
    units = "seconds"
    media_types = ("audio/", "video/ogg")

    @classmethod
    def read(cls, source: Any, limits: Limits = NO_LIMITS) -> Audio:
        """Return the decoded recording. Samples without a file are taken to have the model's own rate."""
        if isinstance(source, Audio):
            if limits.seconds is not None and cls.size(source) > limits.seconds:
                raise BadInput(f"the sound is longer than the {limits.seconds:g} seconds that are allowed")
            return source
        if not cls.is_single(source):
            wanted = "a path, the bytes of a file, an array or a tensor of samples"
            raise BadInput(f"Expected a recording ({wanted}), got {type(source).__name__}.")
        if isinstance(source, (str, Path, bytes)):
            return cls(*decode_audio(source, limits.seconds))
        if isinstance(source, np.ndarray) and source.dtype.kind not in "fiu":
            raise BadInput(f"Samples have dtype {source.dtype}; expected floating-point numbers from -1 to 1.")
        wave = torch.as_tensor(source)
        if wave.ndim != 1 or not wave.is_floating_point():
            kind = str(wave.dtype).removeprefix("torch.")
            raise BadInput(f"Samples must be one row of floating-point numbers, got {kind} of {tuple(wave.shape)}.")
        if not bool(wave.isfinite().all()):
            raise BadInput("Samples must be finite numbers; found infinity or NaN.")
        return cls(silence_constant(wave.float()))

    def at(self, sample_rate: int) -> Float[Tensor, " samples"]:
        """Return the samples at a rate."""
        return self.samples if self.sample_rate is None else resample(self.samples, self.sample_rate, sample_rate)

    @classmethod
    def is_single(cls, given: Any) -> bool:
        return isinstance(given, (str, Path, bytes, Tensor, np.ndarray, Audio))

    @classmethod
    def sources(cls, arguments: Sequence[str]) -> Iterator[Source]:
        return file_sources(arguments, SUFFIXES, "audio files")

    @classmethod
    def from_json(cls, value: Any, limits: Limits = NO_LIMITS) -> Audio:
        """Return the recording of a base64 string, of the bytes of an upload, or one that is decoded already."""
        return cls.read(value if isinstance(value, (bytes, Audio)) else decode_base64(value), limits)

    @classmethod
    def size(cls, value: Audio) -> float:
        return len(value.samples) / value.sample_rate if value.sample_rate else 0

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        return {**STRING, "contentEncoding": "base64", "description": "the bytes of an audio file"}


@dataclass(frozen=True)
class AudioPreprocess(LogMelSpectrogram):
    """The audio preprocessing of a model: sample rate and log-mel frames."""

    def frames(self, recording: Any) -> Float[Tensor, "T F"]:
        """Return the frames of a recording: an `Audio`, a path, the bytes of a file, or samples."""
        return self(Audio.read(recording).at(self.sample_rate))


def read_audio(source: str | Path | bytes, rate: int, longest: float | None = None) -> Float[Tensor, " samples"]:
    """Return the samples of a sound file at a rate; see `decode_audio`."""
    samples, own = decode_audio(source, longest)
    return resample(samples, own, rate)


def decode_audio(source: str | Path | bytes, longest: float | None = None) -> tuple[Float[Tensor, " samples"], int]:
    """Return the samples of a sound file, from -1 to 1, the mean of its channels, and their rate in Hz.

    `source` is its path or its bytes. A file of more than `longest` seconds is refused, and no more than that is read:
    some kilobytes can decompress to hours of silence.
    """
    soundfile = import_soundfile()
    named = "the sound" if isinstance(source, bytes) else str(source)
    if not isinstance(source, bytes) and not Path(source).is_file():
        raise BadInput(f"there is no file {source}" if not Path(source).exists() else f"{source} is not a file")
    try:
        with (
            io.BytesIO(source)
            if isinstance(source, bytes)
            else Path(source).open("rb") as file,  # a name that is not valid text works too
            soundfile.SoundFile(file) as sound,
        ):
            own = sound.samplerate
            most = -1 if longest is None else math.ceil(longest * own) + 1
            if longest is not None and most * sound.channels > MAX_SAMPLES:
                raise BadInput(f"{named} has too many samples to read: {own:,} a second in {sound.channels} channels")
            samples = sound.read(most, dtype="float32", always_2d=True)
    except (soundfile.SoundFileError, RuntimeError, OSError) as error:
        why = (getattr(error, "strerror", None) or str(error).split(": ")[-1]).strip().rstrip(".").lower()
        raise BadInput(f"{named} is not a sound that can be read ({why}); give .wav, .flac or .ogg") from None
    if own < MIN_SAMPLE_RATE:
        raise BadInput(
            f"{named} has a sample rate of {own} Hz, too low for speech; expected at least {MIN_SAMPLE_RATE:,}"
        )
    if not len(samples):
        raise BadInput(f"{named} has no samples")
    if longest is not None and len(samples) > longest * own:
        raise BadInput(f"{named} is longer than the {longest:g} seconds that are allowed")
    if not np.isfinite(samples).all():
        raise BadInput(f"{named} has samples that are not finite numbers")
    wave, rounding = torch.from_numpy(samples.mean(1)), 0.0 if samples.shape[1] == 1 else ROUNDING_ERROR
    return silence_constant(wave, rounding), own


def silence_constant(wave: Float[Tensor, " samples"], rounding: float = 0.0) -> Float[Tensor, " samples"]:
    """Return a wave, or zeros if all its samples are equal: resampling would turn a constant into an audible step."""
    return torch.zeros_like(wave) if not len(wave) or bool(wave.max() - wave.min() <= rounding) else wave


def import_soundfile() -> Any:
    """Return the module soundfile; raise `BadInput` if it is not installed."""
    try:
        import soundfile
    except (ImportError, OSError):  # the package, or the library that it needs
        raise BadInput("reading sound files needs the package soundfile: pip install soundfile") from None
    return soundfile
