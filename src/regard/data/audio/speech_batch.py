"""What all recordings share: batches of frames and what is said in them, stripes that hide some, and sound files.

    batch     frames B T F of recordings, padded with zeros, and targets <s> ... </s>, padded as well
    masked    stripes of time and of features set to the mean, which is zero (SpecAugment without its warping)
    read      .wav, .flac, .ogg of any rate and any number of channels as one row of samples

Park, Chan, Zhang, Chiu, Zoph, Cubuk, Le: SpecAugment. Interspeech 2019. arXiv:1904.08779
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from regard.core.errors import BadInput
from regard.core.shapes import Float, Int, Tensor
from regard.data.ragged import round_up
from regard.tokens.frames import resample

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

MIN_SAMPLE_RATE = 1000  # samples a second of a sound file: below, its header is wrong
MAX_SAMPLES = 2**26  # samples of a sound whose length is limited
ROUNDING_ERROR = 2.0**-16  # of 16 bits: what is left of opposite channels that cancel out but for their rounding
PAD_TO_MULTIPLE_OF = 8  # padded lengths are multiples of this


class SpeechBatch(NamedTuple):
    """A batch of recordings as frames and what is said in them, padded on the right."""

    frames: Float[Tensor, "B T F"]
    frame_lengths: Int[Tensor, " B"]
    target: Int[Tensor, "B S"]  # <s> ... </s>
    target_lengths: Int[Tensor, " B"]

    def to(self, device: torch.device | str) -> SpeechBatch:
        """The same batch on a device; from pinned memory without waiting for it."""
        return SpeechBatch(*(x.to(device, non_blocking=True) for x in self))

    def pin(self) -> SpeechBatch:
        """The same batch in page-locked memory, from which a GPU copies while it computes."""
        return SpeechBatch(*(x.pin_memory() for x in self))

    def rows(self, n: int) -> SpeechBatch:
        """Only the first n recordings (the padding stays)."""
        return SpeechBatch(*(x[:n] for x in self))


def collate_speech(frames: Sequence[Float[Tensor, "_ F"]], said: Sequence[str], tokenizer: Tokenizer) -> SpeechBatch:
    """Recordings and what is said in them as one batch."""
    ids = [[tokenizer.bos, *numbers, tokenizer.eos] for numbers in tokenizer.encode(list(said))]
    many = torch.tensor([len(row) for row in ids])
    target = torch.full((len(ids), int(many.max())), tokenizer.pad)
    for place, row in zip(target, ids, strict=True):
        place[: len(row)] = torch.tensor(row)
    return SpeechBatch(*pad_frames(frames), target, many)


def pad_frames(frames: Sequence[Float[Tensor, "_ F"]]) -> tuple[Float[Tensor, "B T F"], Int[Tensor, " B"]]:
    """Recordings padded on the right to the longest (rounded up), and their lengths."""
    lengths = torch.tensor([len(one) for one in frames])
    wide = frames[0].new_zeros(len(frames), round_up(int(lengths.max()), PAD_TO_MULTIPLE_OF), frames[0].shape[1])
    for row, one in zip(wide, frames, strict=True):
        row[: len(one)] = one
    return wide, lengths


def batch_by_frames(
    rows: Sequence[tuple[Tensor, str]], frames: int, batch: Callable[[Sequence[tuple[Tensor, str]]], SpeechBatch]
) -> Iterator[SpeechBatch]:
    """Rows that are sorted by length, longest first, about so many frames at a time."""
    at = 0
    while at < len(rows):
        many = max(1, frames // round_up(len(rows[at][0]), PAD_TO_MULTIPLE_OF))
        yield batch(rows[at : at + many])
        at += many


def count_targets(batch: SpeechBatch) -> int:
    """What a loss is divided by: the words (or letters) that are said, and the end of each recording."""
    return int(batch.target_lengths.sum()) - len(batch.target_lengths)


def spec_augment(
    x: Float[Tensor, "T F"], times: int, width: int, mels: int, high: int, rng: np.random.Generator
) -> Float[Tensor, "T F"]:
    """Frames with stripes set to the mean, which is zero: of time, together a fifth at most, and of features."""
    x = x.clone()
    for many, widest, side in ((times, min(width, len(x) // (5 * max(times, 1))), x), (mels, high, x.T)):
        for _ in range(many):
            size = int(rng.integers(0, min(widest, len(side)) + 1))
            start = int(rng.integers(0, len(side) - size + 1))
            side[start : start + size] = 0.0
    return x


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
