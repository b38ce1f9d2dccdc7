"""Connected spoken digits: recordings of single digits by one speaker, strung together with pauses.

    pause  "seven"  pause  "two"  "two"  pause          one string: 1 to 7 digits, one speaker, faint noise over all
    <s>     seven            two   two    </s>          its target

The recordings are FSDD's (3,000 of six speakers). The first five takes of every digit and speaker are for test, as the
set has it; the last five of the others are for validation. The strings of both parts are drawn once and for all. Those
to train on are drawn anew in every epoch, each from a number of its own, so that (seed, epoch, row) is all they depend
on; only they are made faster or slower, each digit louder or softer, and only of their frames stripes are hidden
(data.spoken).
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
from regard.data import home
from regard.data.batching import AlikeBatches, Stream, mixed
from regard.data.shards import chosen
from regard.data.spoken import Spoken, in_batches, masked, padded, words
from regard.tokens.frames import Frames, resample

if TYPE_CHECKING:
    from regard.tokens.text import Text

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
PARTS = ("train", "val", "test")
SPEEDS = (9, 10, 11)  # tenths


@dataclass(frozen=True)
class Digits:
    """Which strings of digits, how they are changed for training, and how many go into a batch."""

    corpus: str = "fsdd"  # or the path of a folder like it
    longest: int = 7  # digits of a string
    strings: int = 2400  # to train on, an epoch
    measured: int = 420  # strings for validation, and for test
    rows: int = 32  # in a batch, all processes together
    kind: str = "word"  # of vocabulary: word or char
    pause: float = 0.4  # seconds between two digits at most; three in ten follow at once
    quiet: tuple[float, float] = (25.0, 60.0)  # how far the noise is below the speech, in decibels
    frames: Frames = field(default_factory=Frames)
    speed: bool = True  # a third slower by a tenth, a third faster
    gain: float = 6.0  # decibels by which digits are made louder or softer, at most
    time_masks: int = 2  # stripes hidden of each string
    time_width: int = 12  # frames at most
    mel_masks: int = 2
    mel_width: int = 6  # features at most

    def __post_init__(self) -> None:
        if self.longest < 1 or self.strings < 1 or self.measured < 1 or self.rows < 1:
            raise BadInput("strings of digits, an epoch and a batch hold at least one each")

    def quick(self) -> Digits:
        """A few short strings: enough to see that everything runs."""
        return replace(self, strings=32, measured=12, longest=min(self.longest, 3), rows=min(self.rows, 8))

    def splits(self) -> list[str]:
        """The parts there are."""
        home.folder(self.corpus)
        return sorted(PARTS)

    def split(self, name: str) -> str:
        """The full name of a part; the beginning of it will do where it is the only one."""
        return chosen(name, self.splits(), self.corpus)

    @property
    def features(self) -> int:
        """Numbers a frame."""
        return self.frames.features

    @property
    def front(self) -> Frames:
        """How frames are made of sounds."""
        return self.frames

    def text(self) -> Text:
        """The ten words as a vocabulary, or their letters."""
        from regard.tokens.text import Text

        return Text.train([" ".join(WORDS)], kind=self.kind, size=64)

    def load(self, split: str, text: Text) -> Strings:
        """A part, its strings not yet made."""
        return Strings(self, self.split(split), text)


class Drawn(NamedTuple):
    """What a string is made of, before any sound is."""

    clips: np.ndarray  # which recordings, one a digit
    pauses: np.ndarray  # samples before each and after the last
    loud: np.ndarray  # factors, one a digit
    quiet: float  # decibels from the speech down to the noise
    speed: int  # tenths


class Strings:
    """One part: the recordings that belong to it, and the strings drawn of them."""

    def __init__(self, settings: Digits, split: str, text: Text) -> None:
        self.settings, self.split, self.text = settings, split, text
        self.waves, self.offsets, digit, speaker, take, test = recordings(settings.corpus)
        last = take >= 45
        own = {"test": test, "val": ~test & last, "train": ~test & ~last}[split]
        self.clips = [
            [np.flatnonzero(own & (digit == d) & (speaker == s)) for d in range(10)] for s in np.unique(speaker)
        ]
        self.digit = digit
        self.key = int.from_bytes(blake2b(f"fsdd/{split}".encode(), digest_size=7).digest(), "big")

    def __len__(self) -> int:
        return self.settings.strings if self.split == "train" else self.settings.measured

    def fingerprint(self) -> str:
        """A few letters that change when the recordings or the vocabulary do."""
        found = blake2b(self.waves.data, digest_size=8)
        found.update(repr((self.settings.kind, self.text.pieces(range(self.text.size)))).encode())
        return found.hexdigest()

    def stream(self, seed: int) -> Stream[Spoken]:
        """Training batches without end; a row's number counts through all epochs."""
        many = self.settings.strings

        def order(epoch: int) -> AlikeBatches:
            lengths = [self.samples(self.drawn(mixed(seed, epoch * many + row))) for row in range(many)]
            found = AlikeBatches(torch.tensor(lengths), self.settings.rows, mixed(seed, epoch))
            found.batches = [batch + epoch * many for batch in found.batches]
            return found

        def collate(rows: Int[Tensor, " B"]) -> Spoken:
            return self.batch([self.trained(mixed(seed, row)) for row in rows.tolist()])

        return Stream(order, collate, words)

    def in_order(self, tokens: int) -> Iterator[Spoken]:
        """Every string of a part that is measured once, longest first, about so many frames at a time."""
        strings = sorted(self.strings, key=lambda one: -len(one[0]))
        yield from in_batches(strings, tokens, self.batch)

    @cached_property
    def strings(self) -> list[tuple[Float[Tensor, "T F"], str]]:
        """The fixed strings of a part, as frames and words; of "train", some that are the same in each epoch."""
        plans = [self.drawn(mixed(self.key, row)) for row in range(len(self))]
        return [(self.settings.frames(self.sound(plan)), self.said(plan)) for plan in plans]

    # -- one string ----------------------------------------------------------------------------------------------------

    def drawn(self, key: int) -> Drawn:
        """The string that belongs to a number."""
        s, rng = self.settings, np.random.default_rng(key)
        many = int(rng.integers(1, s.longest + 1))
        own = self.clips[int(rng.integers(len(self.clips)))]
        picked = np.array([own[d][rng.integers(len(own[d]))] for d in rng.integers(10, size=many)])
        pauses = rng.uniform(0, s.pause, many + 1) * (rng.random(many + 1) > 0.3)
        trained = self.split == "train"
        gain = 10 ** (rng.uniform(-s.gain, s.gain, many) / 20) if trained else np.ones(many)
        speed = int(rng.choice(SPEEDS)) if trained and s.speed else 10
        return Drawn(picked, (pauses * s.frames.rate).astype(int), gain, float(rng.uniform(*s.quiet)), speed)

    def samples(self, plan: Drawn) -> int:
        """How long a string is."""
        clips = plan.clips
        return int((self.offsets[clips + 1] - self.offsets[clips]).sum() + plan.pauses.sum()) * 10 // plan.speed

    def sound(self, plan: Drawn) -> Float[Tensor, " samples"]:
        """The wave of a string; its noise is drawn from what it is made of."""
        parts = [np.zeros(plan.pauses[0], np.float32)]
        for clip, loud, pause in zip(plan.clips, plan.loud, plan.pauses[1:], strict=True):
            wave = self.waves[self.offsets[clip] : self.offsets[clip + 1]]
            parts += [wave * np.float32(loud / 32768), np.zeros(pause, np.float32)]
        whole = np.concatenate(parts)
        level = float(np.sqrt(np.mean(whole**2))) * 10 ** (-plan.quiet / 20)
        rng = np.random.default_rng([*plan.clips, *plan.pauses])
        whole += level * rng.standard_normal(len(whole), np.float32)
        return resample(torch.from_numpy(whole), plan.speed, 10)

    def said(self, plan: Drawn) -> str:
        """The words of a string."""
        return " ".join(WORDS[self.digit[clip]] for clip in plan.clips)

    def trained(self, key: int) -> tuple[Float[Tensor, "T F"], str]:
        """A string to train on: frames with stripes hidden, and its words."""
        plan, s = self.drawn(key), self.settings
        frames = s.frames(self.sound(plan))
        rng = np.random.default_rng([key, 1])
        return masked(frames, s.time_masks, s.time_width, s.mel_masks, s.mel_width, rng), self.said(plan)

    def batch(self, strings: Sequence[tuple[Tensor, str]]) -> Spoken:
        """Some strings side by side."""
        return padded([frames for frames, _ in strings], [said for _, said in strings], self.text)


@lru_cache(maxsize=2)
def recordings(corpus: str) -> tuple[np.ndarray, ...]:
    """All samples (int16), where each recording begins, and of each digit, speaker, take, and whether it is test."""
    import soundfile

    folder = home.folder(corpus)
    try:
        index = np.load(folder / "fsdd_index.npz")
        waves, _ = soundfile.read(folder / "fsdd_8khz.flac", dtype="int16")
    except (OSError, RuntimeError, ValueError) as error:
        raise BadInput(f"{folder} holds no digits: wanted are fsdd_8khz.flac and fsdd_index.npz ({error})") from None
    return waves, *(index[key] for key in ("offsets", "digit", "speaker", "index", "is_test"))
