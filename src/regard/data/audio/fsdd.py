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
from collections.abc import Iterable
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
from regard.data.audio.speech_batch import Example, SpeechSplit, spec_augment
from regard.data.base import Dataset
from regard.data.batching import mix_seed
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


class SpokenDigitsSplit(SpeechSplit):
    """One split: its recordings, and the strings made of them."""

    def __init__(self, settings: SpokenDigits, split: str, tokenizer: Tokenizer) -> None:
        self.settings, self.split, self.tokenizer, self.batch_size = settings, split, tokenizer, settings.batch_size
        self.waves, self.offsets, digit, speaker, take, test = read_recordings(settings.corpus)
        is_last = take >= 45
        in_split = {"test": test, "val": ~test & is_last, "train": ~test & ~is_last}[split]
        self.clips = [  # by speaker and digit
            [np.flatnonzero(in_split & (digit == d) & (speaker == s)) for d in range(10)] for s in np.unique(speaker)
        ]
        self.digit = digit
        self.key = int.from_bytes(blake2b(f"fsdd/{split}".encode(), digest_size=7).digest(), "big")

    def __len__(self) -> int:
        count = self.settings.train_strings if self.split == "train" else self.settings.eval_strings
        return count if self.settings.limit is None else min(count, self.settings.limit)

    def contents(self) -> Iterable[np.ndarray]:
        pieces = self.tokenizer.pieces(range(self.tokenizer.size))
        return self.waves, np.frombuffer(repr((self.settings.tokenizer, pieces)).encode(), np.uint8)

    @cached_property
    def examples(self) -> list[Example]:  # type: ignore[override]
        """The fixed strings of a split, as frames and transcripts."""
        plans = [self.plan(mix_seed(self.key, row)) for row in range(len(self))]
        return [(self.settings.preprocess(self.waveform(plan)), self.transcript(plan)) for plan in plans]

    def lengths(self, seed: int, epoch: int) -> Int[Tensor, " rows"]:
        first = epoch * len(self)
        return torch.tensor([self.samples(self.plan(mix_seed(seed, first + row))) for row in range(len(self))])

    def training_example(self, row: int, key: int) -> Example:
        """Return a new string: frames with SpecAugment masks, and its transcript."""
        plan, s = self.plan(key), self.settings
        frames = s.preprocess(self.waveform(plan))
        rng = np.random.default_rng([key, 1])
        return spec_augment(frames, s.time_masks, s.time_width, s.mel_masks, s.mel_width, rng), self.transcript(plan)

    # -- one string ----------------------------------------------------------------------------------------------------

    def plan(self, key: int) -> DigitStringPlan:
        """Return the composition of the string with this key."""
        s, rng, is_training = self.settings, np.random.default_rng(key), self.split == "train"
        count = int(rng.integers(1, s.max_digits + 1))
        speaker = self.clips[int(rng.integers(len(self.clips)))]
        clips = np.array([speaker[d][rng.integers(len(speaker[d]))] for d in rng.integers(10, size=count)])
        pauses = rng.uniform(0, s.max_pause, count + 1) * (rng.random(count + 1) > 0.3)
        gain = 10 ** (rng.uniform(-s.max_gain_db, s.max_gain_db, count) / 20) if is_training else np.ones(count)
        speed = int(rng.choice(SPEEDS)) if is_training and s.speed_perturbation else 10
        snr = float(rng.uniform(*s.snr_db))
        return DigitStringPlan(clips, (pauses * s.preprocess.sample_rate).astype(int), gain, snr, speed)

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
        string = np.concatenate(parts)
        level = float(np.sqrt(np.mean(string**2))) * 10 ** (-plan.snr_db / 20)
        rng = np.random.default_rng([*plan.clips, *plan.pauses])
        string += level * rng.standard_normal(len(string), np.float32)
        return resample(torch.from_numpy(string), plan.speed, 10)

    def transcript(self, plan: DigitStringPlan) -> str:
        return " ".join(WORDS[self.digit[clip]] for clip in plan.clips)


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
