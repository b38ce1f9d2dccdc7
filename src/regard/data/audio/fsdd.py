"""Connected spoken digits: recordings of single digits by one speaker, strung together with pauses.

    pause  "seven"  pause  "two"  "two"  pause          one string: 1 to 7 digits, one speaker, faint noise over all
    <s>     seven            two   two    </s>          its target

The recordings are FSDD's (3,000 of six speakers). The first five takes of every digit and speaker are for test, as the
set has it; the last five of the others are for validation. The strings of both parts are drawn once and for all. Those
to train on are drawn anew in every epoch, each from a number of its own, so that (seed, epoch, row) is all they depend
on. Only they are made faster or slower, each digit louder or softer; and only of their frames stripes are
hidden (data.spoken).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from regard.core.errors import BadInput
from regard.core.shapes import Float, Int, Tensor
from regard.data import data_dir
from regard.data.audio.speech_batch import (
    SpeechBatch,
    batch_by_frames,
    collate_speech,
    count_targets,
    spec_augment,
)
from regard.data.batching import BatchStream, LengthBucketedBatches, mix_seed
from regard.data.shards.token_shards import resolve_split
from regard.modalities.audio import import_soundfile
from regard.tokens.frames import LogMelSpectrogram, resample

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
SPLITS = ("train", "val", "test")
SPEEDS = (9, 10, 11)  # tenths


@dataclass(frozen=True)
class SpokenDigits:
    """Which strings of digits, how they are changed for training, and how many go into a batch."""

    corpus: str = "fsdd"  # or the path of a folder like it
    max_digits: int = 7  # digits of a string
    train_strings: int = 2400  # to train on, an epoch
    eval_strings: int = 420  # strings for validation, and for test
    batch_size: int = 32  # in a batch, all processes together
    tokenizer: str = "word"  # of vocabulary: word or char
    max_pause: float = 0.4  # seconds between two digits at most; three in ten follow at once
    snr_db: tuple[float, float] = (25.0, 60.0)  # how far the noise is below the speech, in decibels
    frames: LogMelSpectrogram = field(default_factory=LogMelSpectrogram)
    speed_perturbation: bool = True  # a third slower by a tenth, a third faster
    max_gain_db: float = 6.0  # decibels by which digits are made louder or softer, at most
    time_masks: int = 2  # stripes hidden of each string
    time_width: int = 12  # frames at most
    mel_masks: int = 2
    mel_width: int = 6  # features at most
    limit: int | None = None  # only the first so many strings of every part

    def __post_init__(self) -> None:
        if self.max_digits < 1 or self.train_strings < 1 or self.eval_strings < 1 or self.batch_size < 1:
            raise BadInput("strings of digits, an epoch and a batch hold at least one each")

    def quick(self) -> SpokenDigits:
        """A few short strings: enough to see that everything runs."""
        return replace(
            self,
            train_strings=32,
            eval_strings=12,
            max_digits=min(self.max_digits, 3),
            batch_size=min(self.batch_size, 8),
        )

    def splits(self) -> list[str]:
        """The parts there are."""
        data_dir.find_dataset(self.corpus)
        return sorted(SPLITS)

    def split(self, name: str) -> str:
        """The full name of a part; the beginning of it will do where it is the only one."""
        return resolve_split(name, self.splits(), self.corpus)

    @property
    def features(self) -> int:
        """Numbers a frame."""
        return self.frames.features

    @property
    def front(self) -> LogMelSpectrogram:
        """How frames are made of sounds."""
        return self.frames

    def build_tokenizer(self) -> Tokenizer:
        """The ten words as a vocabulary, or their letters."""
        from regard.tokens.tokenizer import Tokenizer

        return Tokenizer.train([" ".join(WORDS)], kind=self.tokenizer, size=64)

    def load(self, split: str, tokenizer: Tokenizer) -> SpokenDigitsSplit:
        """A part, its strings not yet made."""
        return SpokenDigitsSplit(self, self.split(split), tokenizer)


class DigitStringPlan(NamedTuple):
    """What a string is made of, before any sound is."""

    clips: np.ndarray  # which recordings, one a digit
    pauses: np.ndarray  # samples before each and after the last
    gains: np.ndarray  # factors, one a digit
    snr_db: float  # decibels from the speech down to the noise
    speed: int  # tenths


class SpokenDigitsSplit:
    """One part: the recordings that belong to it, and the strings drawn of them."""

    def __init__(self, settings: SpokenDigits, split: str, tokenizer: Tokenizer) -> None:
        self.settings, self.split, self.tokenizer = settings, split, tokenizer
        self.waves, self.offsets, digit, speaker, take, test = read_recordings(settings.corpus)
        last = take >= 45
        own = {"test": test, "val": ~test & last, "train": ~test & ~last}[split]
        self.clips = [
            [np.flatnonzero(own & (digit == d) & (speaker == s)) for d in range(10)] for s in np.unique(speaker)
        ]
        self.digit = digit
        self.key = int.from_bytes(blake2b(f"fsdd/{split}".encode(), digest_size=7).digest(), "big")

    def __len__(self) -> int:
        many = self.settings.train_strings if self.split == "train" else self.settings.eval_strings
        return many if self.settings.limit is None else min(many, self.settings.limit)

    def fingerprint(self) -> str:
        """A few letters that change when the recordings or the vocabulary do."""
        found = blake2b(self.waves.data, digest_size=8)
        found.update(repr((self.settings.tokenizer, self.tokenizer.pieces(range(self.tokenizer.size)))).encode())
        return found.hexdigest()

    def stream(self, seed: int) -> BatchStream[SpeechBatch]:
        """Training batches without end; a row's number counts through all epochs."""
        many = len(self)

        def order(epoch: int) -> LengthBucketedBatches:
            lengths = [self.samples(self.plan(mix_seed(seed, epoch * many + row))) for row in range(many)]
            found = LengthBucketedBatches(torch.tensor(lengths), self.settings.batch_size, mix_seed(seed, epoch))
            found.batches = [batch + epoch * many for batch in found.batches]
            return found

        def collate(rows: Int[Tensor, " B"]) -> SpeechBatch:
            return self.batch([self.training_example(mix_seed(seed, row)) for row in rows.tolist()])

        return BatchStream(order, collate, count_targets)

    def eval_batches(self, tokens: int) -> Iterator[SpeechBatch]:
        """Every string of a part that is measured once, longest first, about so many frames at a time."""
        strings = sorted(self.strings, key=lambda one: -len(one[0]))
        yield from batch_by_frames(strings, tokens, self.batch)

    @cached_property
    def strings(self) -> list[tuple[Float[Tensor, "T F"], str]]:
        """The fixed strings of a part, as frames and words; of "train", some that are the same in each epoch."""
        plans = [self.plan(mix_seed(self.key, row)) for row in range(len(self))]
        return [(self.settings.frames(self.waveform(plan)), self.transcript(plan)) for plan in plans]

    # -- one string ----------------------------------------------------------------------------------------------------

    def plan(self, key: int) -> DigitStringPlan:
        """The string that belongs to a number."""
        s, rng, trained = self.settings, np.random.default_rng(key), self.split == "train"
        many = int(rng.integers(1, s.max_digits + 1))
        own = self.clips[int(rng.integers(len(self.clips)))]
        picked = np.array([own[d][rng.integers(len(own[d]))] for d in rng.integers(10, size=many)])
        pauses = rng.uniform(0, s.max_pause, many + 1) * (rng.random(many + 1) > 0.3)
        gain = 10 ** (rng.uniform(-s.max_gain_db, s.max_gain_db, many) / 20) if trained else np.ones(many)
        speed = int(rng.choice(SPEEDS)) if trained and s.speed_perturbation else 10
        quiet = float(rng.uniform(*s.snr_db))
        return DigitStringPlan(picked, (pauses * s.frames.sample_rate).astype(int), gain, quiet, speed)

    def samples(self, plan: DigitStringPlan) -> int:
        """How long a string is."""
        clips = plan.clips
        return int((self.offsets[clips + 1] - self.offsets[clips]).sum() + plan.pauses.sum()) * 10 // plan.speed

    def waveform(self, plan: DigitStringPlan) -> Float[Tensor, " samples"]:
        """The wave of a string; its noise is drawn from what it is made of."""
        parts = [np.zeros(plan.pauses[0], np.float32)]
        for clip, loud, pause in zip(plan.clips, plan.gains, plan.pauses[1:], strict=True):
            wave = self.waves[self.offsets[clip] : self.offsets[clip + 1]]
            parts += [wave * np.float32(loud / 32768), np.zeros(pause, np.float32)]
        whole = np.concatenate(parts)
        level = float(np.sqrt(np.mean(whole**2))) * 10 ** (-plan.snr_db / 20)
        rng = np.random.default_rng([*plan.clips, *plan.pauses])
        whole += level * rng.standard_normal(len(whole), np.float32)
        return resample(torch.from_numpy(whole), plan.speed, 10)

    def transcript(self, plan: DigitStringPlan) -> str:
        """The words of a string."""
        return " ".join(WORDS[self.digit[clip]] for clip in plan.clips)

    def training_example(self, key: int) -> tuple[Float[Tensor, "T F"], str]:
        """A string to train on: frames with stripes hidden, and its words."""
        plan, s = self.plan(key), self.settings
        frames = s.frames(self.waveform(plan))
        rng = np.random.default_rng([key, 1])
        return spec_augment(frames, s.time_masks, s.time_width, s.mel_masks, s.mel_width, rng), self.transcript(plan)

    def batch(self, strings: Sequence[tuple[Tensor, str]]) -> SpeechBatch:
        """Some strings side by side."""
        return collate_speech([frames for frames, _ in strings], [said for _, said in strings], self.tokenizer)


@lru_cache(maxsize=2)
def read_recordings(corpus: str) -> tuple[np.ndarray, ...]:
    """All samples (int16), where each recording begins, and of each digit, speaker, take, and whether it is test."""
    folder, soundfile = data_dir.find_dataset(corpus), import_soundfile()
    try:
        index = np.load(folder / "fsdd_index.npz")
        waves, _ = soundfile.read(folder / "fsdd_8khz.flac", dtype="int16")
    except (OSError, RuntimeError, ValueError) as error:
        raise BadInput(f"{folder} holds no digits: wanted are fsdd_8khz.flac and fsdd_index.npz ({error})") from None
    return waves, *(index[key] for key in ("offsets", "digit", "speaker", "index", "is_test"))
