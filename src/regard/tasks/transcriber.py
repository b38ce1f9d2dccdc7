"""The transcriber: sounds in, what is said in them out, in the same order.

    sounds      files (any rate, any number of channels), or waves at the model's own rate
    search      greedy with one beam, else a beam over prefixes (tasks.ctc_search), with a language model where given
    times       of each word when it begins and ends, by the likeliest alignment of its labels (tasks.ctc)

A sound's company never changes what is heard in it. In one that never changes (digital silence, a hundredth of a
second) nothing is heard, whatever the model: it was never taught to say nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from regard.core.config import from_dict
from regard.core.errors import BadInput, each_of
from regard.core.shapes import Float, Int, Tensor
from regard.data import spoken
from regard.tasks.ctc import align, occupied
from regard.tasks.ctc_search import Found, searched
from regard.tokens.frames import Frames

if TYPE_CHECKING:
    from regard.tokens.text import Text

FRAMES = 60_000  # that go through the model at a time

Sound = str | Path | Tensor | np.ndarray


@dataclass(frozen=True)
class Word:
    """A word (or a letter) and the seconds from which to which frames say it: of CTC a moment of it, for it is free to
    choose any; of a decoder when it listened for it."""

    word: str
    start: float
    end: float


@dataclass(frozen=True)
class Heard:
    """What is said in a sound, how likely (log-probability), and when each of its words."""

    text: str
    score: float
    words: tuple[Word, ...] = ()


class Sounds:
    """A model that reads frames, with its vocabulary and its way of making frames, to be called. Left to do: `_heard`.

    `frames` holds the fields of `tokens.frames.Frames`; None for a model of frames that were made elsewhere, which
    takes them through `hear`.
    """

    def __init__(self, model: nn.Module, text: Text, frames: Mapping[str, Any] | None = None) -> None:
        self.model, self.text = model, text
        self.frames = None if frames is None else dict(frames)
        self.front = None if frames is None else from_dict(Frames, frames)

    def __call__(self, sounds: Sequence[Sound], beams: int = 1, **search: Any) -> list[Heard]:
        """What is said in every sound."""
        return self.hear(self.framed(sounds), beams, **search)

    def framed(self, sounds: Sequence[Sound]) -> list[Float[Tensor, "_ F"]]:
        """Sounds as the frames that the model reads."""
        if isinstance(sounds, (str, Path, bytes, Tensor, np.ndarray)):
            raise BadInput("give a list of sounds, not a single one")
        if self.front is None:
            raise BadInput("this model reads frames that were made elsewhere, not sounds; give it those: hear(frames)")
        given = enumerate(each_of(sounds, "sounds"), 1)
        return [self.front(_wave(one, self.front.rate, number)) for number, one in given]

    @torch.inference_mode()
    def hear(self, frames: Sequence[Float[Tensor, "_ F"]], beams: int = 1, **search: Any) -> list[Heard]:
        """What is said in recordings that are frames already."""
        if beams < 1:
            raise BadInput(f"{beams} beams find nothing; give 1 or more")
        self.model.eval()
        _refuse_infinite(frames)
        found = [Heard("", 0.0)] * len(frames)
        heard = [row for row, one in enumerate(frames) if not still(one)]
        for rows, wide, lengths in self._batches([frames[row] for row in heard]):
            for row, each in zip(rows, self._heard(wide, lengths, beams, search), strict=True):
                found[heard[row]] = each
        return found

    def numbers(self, said: str) -> list[int]:
        """A text as the numbers of its words; one that the model cannot say is refused."""
        found = self.text.encode_one(said)
        if self.text.unk in found:
            raise BadInput(f"this model cannot say all of {said!r:.60}: it has not learned every word of it")
        return found

    def _heard(self, frames: Tensor, lengths: Tensor, beams: int, search: Mapping[str, Any]) -> list[Heard]:
        raise NotImplementedError

    @property
    def _unsaid(self) -> set[int]:
        """What stands in no text, and so is no word of one."""
        return {self.text.pad, self.text.bos, self.text.eos, self.text.unk}

    def _alone(self, sound: Sound) -> tuple[Float[Tensor, "T F"], Float[Tensor, "1 T F"], Int[Tensor, " 1"]]:
        """One sound (or its frames, T F) to look at: its frames, the same as a batch on the model's device, and how
        many there are."""
        frames = sound if isinstance(sound, Tensor) and sound.ndim == 2 else self.framed([sound])[0]
        self.model.eval()
        _refuse_infinite([frames])
        ((_, wide, lengths),) = self._batches([frames])
        return frames, wide[:, : len(frames)], lengths

    def _batches(self, frames: Sequence[Tensor]) -> Iterator[tuple[list[int], Tensor, Tensor]]:
        """Recordings of about the same length side by side, on the model's device, and which they are."""
        device = next(self.model.parameters()).device
        order = sorted(range(len(frames)), key=lambda row: -len(frames[row]))
        while order:
            many = max(1, FRAMES // max(1, len(frames[order[0]])))
            rows, order = order[:many], order[many:]
            wide, lengths = spoken.side_by_side([frames[row] for row in rows])
            yield rows, wide.to(device), lengths.to(device)


def still(frames: Float[Tensor, "T F"]) -> bool:
    """Whether a recording never changes, so that nothing is said in it."""
    return bool((frames == frames[:1]).all())


def _wave(sound: Any, rate: int, number: int) -> Float[Tensor, " samples"]:
    """One sound as samples in the numbers that models are made of."""
    if isinstance(sound, (str, Path, bytes)):
        return spoken.read(sound, rate)
    if not isinstance(sound, Tensor) and not (isinstance(sound, np.ndarray) and sound.dtype.kind in "fiu"):
        what = f"an array of {sound.dtype}" if isinstance(sound, np.ndarray) else f"a {type(sound).__name__}"
        raise BadInput(f"sound {number} is {what}; give a file, or a tensor or numpy array of samples from -1 to 1")
    wave = sound if isinstance(sound, Tensor) else torch.tensor(sound)
    return spoken.level(wave.float() if wave.is_floating_point() else wave)


def _refuse_infinite(frames: Sequence[Tensor]) -> None:
    for number, one in enumerate(frames, 1):
        if not one.isfinite().all():
            raise BadInput(f"sound {number} holds samples that are not finite numbers")


@dataclass(frozen=True, eq=False)
class Looked:
    """One sound as CTC sees it: for pictures (see.lattice)."""

    frames: Float[Tensor, "T F"]  # what the model read
    probabilities: Float[Tensor, "N V"]  # of every label and, last, the blank, at every frame that is left
    share: Float[Tensor, "N L"]  # of all ways of saying the text: where they are at each frame
    path: Int[Tensor, " N"]  # the likeliest way: its state at each frame
    states: tuple[str, ...]  # what the L states are called; "-" is the blank
    labels: tuple[str, ...]  # what the V labels are called
    seconds: float  # a frame that is left
    heard: Heard


class Transcriber(Sounds):
    """A network that labels frames: CTC. `search` goes to tasks.ctc_search.beam: scorer, weight, bonus, ends."""

    @torch.inference_mode()
    def look(self, sound: Sound, beams: int = 1, said: str | None = None, **search: Any) -> Looked:
        """One sound (or its frames, T F) with everything that CTC knows of it; `said`: look at this text instead of the
        model's own."""
        frames, wide, many = self._alone(sound)
        logp, lengths = self._labelled(wide, many)
        found = searched(logp, lengths, self.text.size, beams, **search)[0]
        if still(frames):
            found = Found((), 0.0)
        if said is not None:
            found = Found(tuple(self.numbers(said)), found.score)
        target = torch.tensor([found.labels], dtype=torch.long, device=logp.device).reshape(1, -1)
        asked = logp, target, lengths, torch.full_like(lengths, target.shape[1]), self.text.size
        share, total = occupied(*asked)
        if total.isinf():
            raise BadInput(f"this sound has {int(lengths)} frames left, too few to say {said!r}")
        heard = self._told(logp, lengths, [found], many)[0]
        if said is not None:
            heard = Heard(heard.text, float(total), heard.words)
        states = ("-", *(name for one in self.text.pieces(found.labels) for name in (one, "-")))
        return Looked(
            frames,
            logp[0].exp().cpu(),
            share[0].cpu(),
            align(*asked)[0][0].cpu(),
            states,
            (*self.text.pieces(range(self.text.size)), "-"),
            self._seconds(many, lengths)[0],
            heard,
        )

    def _heard(self, frames: Tensor, lengths: Tensor, beams: int, search: Mapping[str, Any]) -> list[Heard]:
        logp, left = self._labelled(frames, lengths)
        return self._told(logp, left, searched(logp, left, self.text.size, beams, **search), lengths)

    def _labelled(self, frames: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        logits, left = self.model(frames, lengths)
        return logits.float().log_softmax(-1), left

    def _told(self, logp: Tensor, left: Tensor, found: Sequence[Found], lengths: Tensor) -> list[Heard]:
        """Texts with the times of their words."""
        sizes = torch.tensor([len(one.labels) for one in found])
        target = torch.zeros(len(found), int(sizes.max()), dtype=torch.long)
        for row, one in zip(target, found, strict=True):
            row[: len(one.labels)] = torch.tensor(one.labels)
        path, _ = align(logp, target.to(logp.device), left, sizes.to(logp.device), self.text.size)
        heard = []
        for one, way, second in zip(found, path.cpu(), self._seconds(lengths, left), strict=True):
            words = []
            for i, name in enumerate(self.text.pieces(one.labels)):
                if one.labels[i] in self._unsaid:
                    continue
                at = (way == 2 * i + 1).nonzero()[:, 0].tolist()
                words.append(Word(name, round(at[0] * second, 3), round((at[-1] + 1) * second, 3)))
            heard.append(Heard(self.text.decode([one.labels])[0], one.score, tuple(words)))
        return heard

    def _seconds(self, frames: Tensor, left: Tensor) -> list[float]:
        """How long one of the frames is that are left: a power of two times what it was."""
        hop = (self.front or Frames()).hop / 1000
        return [hop * 2 ** round(math.log2(n / m)) for n, m in zip(frames.tolist(), left.tolist(), strict=True)]
