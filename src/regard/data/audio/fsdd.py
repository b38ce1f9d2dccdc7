"""Connected spoken digits: recordings of single digits by one speaker, concatenated with pauses.

    pause  "seven"  pause  "two"  "two"  pause          one string: 1 to 7 digits, one speaker, faint noise over all
    <s>     seven            two   two    </s>          its target

The recordings are FSDD's (3,000 by six speakers). The first five takes of every digit and speaker are for test, as in
the dataset; the last five of the others for validation. The strings of both splits are fixed. Training strings are
sampled anew in every epoch, from (seed, epoch, row) alone; only they get speed and gain perturbation and SpecAugment
masks (data.audio.speech_batch).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.shapes import Float, Int, Tensor
from regard.core.validation import validate
from regard.data import data_dir
from regard.data.audio.speech_batch import (
    SpeechBatch,
    batch_by_frames,
    collate_speech,
    count_targets,
    spec_augment,
)
from regard.data.base import Dataset
from regard.data.batching import BatchStream, LengthBucketedBatches, mix_seed
from regard.modalities.audio import AudioPreprocess, import_soundfile
from regard.tokens.frames import resample

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
SPLITS = ("train", "val", "test")
SPEEDS = (9, 10, 11)  # tenths of the original speed


@dataclass(frozen=True)
class SpokenDigits(Dataset):
    """Settings of the dataset: strings of digits, perturbations and batches."""

    corpus: str = "fsdd"  # or the path of such a folder
    max_digits: int = 7  # most digits per string
    train_strings: int = 2400  # training strings per epoch
    eval_strings: int = 420  # strings of the validation split, and of the test split
    batch_size: int = 32  # rows per batch over all processes
    tokenizer: str = "word"  # word or char
    max_pause: float = field(0.4, low=0)  # longest pause in seconds; three in ten digits follow without one
    snr_db: tuple[float, float] = (25.0, 60.0)  # range of the signal-to-noise ratio
    preprocess: AudioPreprocess = dataclasses.field(default_factory=AudioPreprocess)
    speed_perturbation: bool = True  # a third 10 % slower, a third 10 % faster
    max_gain_db: float = field(6.0, low=0)  # largest change of a digit's volume
    time_masks: int = field(2, low=0)  # masks per string
    time_width: int = field(12, low=0)  # largest width in frames
    mel_masks: int = field(2, low=0)
    mel_width: int = field(6, low=0)  # largest width in features
    limit: int | None = None  # use only the first strings of every split

    def __post_init__(self) -> None:
        validate(self, "data.")

    quick_settings = {"train_strings": 32, "eval_strings": 12, "max_digits": 3, "batch_size": 8}  # noqa: RUF012

    def splits(self) -> list[str]:
        data_dir.find_dataset(self.corpus)  # raises if it is missing
        return super().splits()

    @property
    def features(self) -> int:
        return self.preprocess.features

    def build_tokenizer(self) -> Tokenizer:
        """Build a tokenizer of the ten words, or of their letters."""
        from regard.tokens.tokenizer import Tokenizer

        return Tokenizer.train([" ".join(WORDS)], kind=self.tokenizer, size=64)

    def load(self, split: str, tokenizer: Tokenizer) -> SpokenDigitsSplit:
        """Return a split; its strings are made when they are needed."""
        return SpokenDigitsSplit(self, self.split(split), tokenizer)


class DigitStringPlan(NamedTuple):
    """The composition of a string, before any audio is made."""

    clips: np.ndarray  # recording of each digit
    pauses: np.ndarray  # samples before each digit and after the last
    gains: np.ndarray  # factor of each digit
    snr_db: float  # signal-to-noise ratio
    speed: int  # tenths


class SpokenDigitsSplit:
    """One split: its recordings, and the strings made of them."""

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
        count = self.settings.train_strings if self.split == "train" else self.settings.eval_strings
        return count if self.settings.limit is None else min(count, self.settings.limit)

    def fingerprint(self) -> str:
        found = blake2b(self.waves.data, digest_size=8)
        found.update(repr((self.settings.tokenizer, self.tokenizer.pieces(range(self.tokenizer.size)))).encode())
        return found.hexdigest()

    def stream(self, seed: int) -> BatchStream[SpeechBatch]:
        """Return endless training batches; row numbers continue over epochs."""
        count = len(self)

        def order(epoch: int) -> LengthBucketedBatches:
            lengths = [self.samples(self.plan(mix_seed(seed, epoch * count + row))) for row in range(count)]
            found = LengthBucketedBatches(torch.tensor(lengths), self.settings.batch_size, mix_seed(seed, epoch))
            found.batches = [batch + epoch * count for batch in found.batches]
            return found

        def collate(rows: Int[Tensor, " B"]) -> SpeechBatch:
            return self.batch([self.training_example(mix_seed(seed, row)) for row in rows.tolist()])

        return BatchStream(order, collate, count_targets)

    def eval_batches(self, tokens: int) -> Iterator[SpeechBatch]:
        """Yield every fixed string once, longest first, about `tokens` frames per batch."""
        strings = sorted(self.strings, key=lambda one: -len(one[0]))
        yield from batch_by_frames(strings, tokens, self.batch)

    @cached_property
    def strings(self) -> list[tuple[Float[Tensor, "T F"], str]]:
        """The fixed strings of a split, as frames and transcripts."""
        plans = [self.plan(mix_seed(self.key, row)) for row in range(len(self))]
        return [(self.settings.preprocess(self.waveform(plan)), self.transcript(plan)) for plan in plans]

    # -- one string ----------------------------------------------------------------------------------------------------

    def plan(self, key: int) -> DigitStringPlan:
        """Return the composition of the string with this key."""
        s, rng, trained = self.settings, np.random.default_rng(key), self.split == "train"
        count = int(rng.integers(1, s.max_digits + 1))
        own = self.clips[int(rng.integers(len(self.clips)))]
        picked = np.array([own[d][rng.integers(len(own[d]))] for d in rng.integers(10, size=count)])
        pauses = rng.uniform(0, s.max_pause, count + 1) * (rng.random(count + 1) > 0.3)
        gain = 10 ** (rng.uniform(-s.max_gain_db, s.max_gain_db, count) / 20) if trained else np.ones(count)
        speed = int(rng.choice(SPEEDS)) if trained and s.speed_perturbation else 10
        snr = float(rng.uniform(*s.snr_db))
        return DigitStringPlan(picked, (pauses * s.preprocess.sample_rate).astype(int), gain, snr, speed)

    def samples(self, plan: DigitStringPlan) -> int:
        """Return the length of a string in samples."""
        clips = plan.clips
        return int((self.offsets[clips + 1] - self.offsets[clips]).sum() + plan.pauses.sum()) * 10 // plan.speed

    def waveform(self, plan: DigitStringPlan) -> Float[Tensor, " samples"]:
        """Return the waveform of a string; its noise is seeded by its composition."""
        parts = [np.zeros(plan.pauses[0], np.float32)]
        for clip, gain_factor, pause in zip(plan.clips, plan.gains, plan.pauses[1:], strict=True):
            wave = self.waves[self.offsets[clip] : self.offsets[clip + 1]]
            parts += [wave * np.float32(gain_factor / 32768), np.zeros(pause, np.float32)]
        whole = np.concatenate(parts)
        level = float(np.sqrt(np.mean(whole**2))) * 10 ** (-plan.snr_db / 20)
        rng = np.random.default_rng([*plan.clips, *plan.pauses])
        whole += level * rng.standard_normal(len(whole), np.float32)
        return resample(torch.from_numpy(whole), plan.speed, 10)

    def transcript(self, plan: DigitStringPlan) -> str:
        return " ".join(WORDS[self.digit[clip]] for clip in plan.clips)

    def training_example(self, key: int) -> tuple[Float[Tensor, "T F"], str]:
        """Return a training string: frames with SpecAugment masks, and its transcript."""
        plan, s = self.plan(key), self.settings
        frames = s.preprocess(self.waveform(plan))
        rng = np.random.default_rng([key, 1])
        return spec_augment(frames, s.time_masks, s.time_width, s.mel_masks, s.mel_width, rng), self.transcript(plan)

    def batch(self, strings: Sequence[tuple[Tensor, str]]) -> SpeechBatch:
        return collate_speech([frames for frames, _ in strings], [said for _, said in strings], self.tokenizer)


@lru_cache(maxsize=2)
def read_recordings(corpus: str) -> tuple[np.ndarray, ...]:
    """Return all samples (int16), recording offsets, and digit, speaker, take and test flag of each recording."""
    folder, soundfile = data_dir.find_dataset(corpus), import_soundfile()
    try:
        index = np.load(folder / "fsdd_index.npz")
        waves, _ = soundfile.read(folder / "fsdd_8khz.flac", dtype="int16")
    except (OSError, RuntimeError, ValueError) as error:
        raise BadInput(
            f"{folder} is not an FSDD folder: fsdd_8khz.flac and fsdd_index.npz are needed ({error})"
        ) from None
    return waves, *(index[key] for key in ("offsets", "digit", "speaker", "index", "is_test"))
