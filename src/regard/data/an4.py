"""AN4: read names, addresses, numbers and commands as frames of mel cepstra, about 48 minutes.

    mfcc (13) + slopes (13) + slopes of slopes (13) = 39 numbers, 100 frames a second; normalised over each recording
    "P I T T S B U R G H"  "TWO SIX EIGHT FOUR FOUR ONE EIGHT"  "ENTER SIX TWO FOUR"

The sounds themselves are not there, only the cepstra that Sphinx made of them. The split into 948 recordings to train
on and 130 to test is the official one; every tenth of the former, in an order of its own, is for validation. After two
halvings every recording still has as many frames as its letters need, after three it may not.

CMU Speech Group: the AN4 (census) database, 1991
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch

from regard.core.errors import BadInput
from regard.core.shapes import Float, Int, Tensor
from regard.data import home
from regard.data.batching import AlikeBatches, Stream, mixed
from regard.data.labelled import held_out
from regard.data.shards import chosen
from regard.data.spoken import Spoken, in_batches, masked, padded, words
from regard.tokens.frames import Frames, normal, with_deltas

if TYPE_CHECKING:
    from regard.tokens.text import Text

PARTS = ("train", "val", "test")


@dataclass(frozen=True)
class AN4:
    """How recordings become batches, and what is hidden of them in training."""

    corpus: str = "an4"  # or the path of a folder like it
    kind: str = "char"  # of vocabulary: char or word
    rows: int = 32  # in a batch, all processes together
    deltas: int = 2  # 1: slopes too, 2: slopes of slopes too
    time_masks: int = 2  # stripes hidden of each recording
    time_width: int = 20  # frames at most
    mel_masks: int = 2
    mel_width: int = 4  # features at most
    limit: int | None = None  # only the first so many recordings of every part

    def quick(self) -> AN4:
        """A few recordings: enough to see that everything runs."""
        return replace(self, limit=16, rows=min(self.rows, 8))

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
        return 13 * (1 + self.deltas)

    @property
    def front(self) -> Frames | None:
        """How frames are made of sounds: not by us."""
        return None

    def text(self) -> Text:
        """The letters of the training part, or its words."""
        from regard.tokens.text import Text

        return Text.train([said for _, said in recordings(self.corpus)["train"]], kind=self.kind, size=200)

    def load(self, split: str, text: Text) -> Recorded:
        """A part as frames and words."""
        return Recorded(self, recordings(self.corpus)[self.split(split)][: self.limit], text)


class Recorded:
    """One part: recordings as normalised frames, and what is said in them."""

    def __init__(self, settings: AN4, rows: Sequence[tuple[np.ndarray, str]], text: Text) -> None:
        self.settings, self.text = settings, text
        self.rows = [
            (with_deltas(normal(torch.from_numpy(frames.astype(np.float32))), settings.deltas), said)
            for frames, said in rows
        ]

    def __len__(self) -> int:
        return len(self.rows)

    def fingerprint(self) -> str:
        """A few letters that change when the recordings or the vocabulary do."""
        found = blake2b(digest_size=8)
        for frames, said in self.rows:
            found.update(frames.numpy().data)
            found.update(repr(self.text.encode_one(said)).encode())
        return found.hexdigest()

    def stream(self, seed: int) -> Stream[Spoken]:
        """Training batches without end; a row's number counts through all epochs, for what is hidden of it."""
        many, lengths = len(self), torch.tensor([len(frames) for frames, _ in self.rows])

        def order(epoch: int) -> AlikeBatches:
            found = AlikeBatches(lengths, self.settings.rows, mixed(seed, epoch))
            found.batches = [batch + epoch * many for batch in found.batches]
            return found

        def collate(rows: Int[Tensor, " B"]) -> Spoken:
            return self.batch([self.trained(mixed(seed, row), row % many) for row in rows.tolist()])

        return Stream(order, collate, words)

    def trained(self, key: int, row: int) -> tuple[Float[Tensor, "T F"], str]:
        """A recording to train on: with stripes hidden, which depend on the key."""
        s, (frames, said) = self.settings, self.rows[row]
        rng = np.random.default_rng(key)
        return masked(frames, s.time_masks, s.time_width, s.mel_masks, s.mel_width, rng), said

    def in_order(self, frames: int) -> Iterator[Spoken]:
        """Every recording once, longest first, about so many frames at a time."""
        yield from in_batches(sorted(self.rows, key=lambda one: -len(one[0])), frames, self.batch)

    def batch(self, rows: Sequence[tuple[Tensor, str]]) -> Spoken:
        """Some recordings side by side."""
        return padded([frames for frames, _ in rows], [said for _, said in rows], self.text)


@lru_cache(maxsize=2)
def recordings(corpus: str) -> dict[str, list[tuple[np.ndarray, str]]]:
    """Cepstra T 13 and words of every recording, by part."""
    file = home.folder(corpus) / "an4_mfcc.npz"
    try:
        held = np.load(file)
        found = {part: _cut(held, part) for part in ("train", "test")}
    except (OSError, KeyError, ValueError) as error:
        raise BadInput(f"{file} holds no recordings of AN4: {error}") from None
    return held_out(found, corpus, 0)


def _cut(held: np.lib.npyio.NpzFile, part: str) -> list[tuple[np.ndarray, str]]:
    frames, offsets = held[f"{part}_mfcc"], held[f"{part}_offsets"]
    said = [str(text) for text in held[f"{part}_text"]]
    return [(frames[a:b], text) for (a, b), text in zip(pairwise(offsets), said, strict=True)]
