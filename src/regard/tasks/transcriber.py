"""The transcriber: sounds in, what is said in them out, in the same order.

    sounds      files (any rate, any number of channels), or waves at the model's own rate
    search      greedy with one beam, else a beam over prefixes (tasks.ctc_search), with a language model where given
    times       of each word when it begins and ends, by the likeliest alignment of its labels (tasks.ctc)

A sound's company never changes what is heard in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from regard.core.config import from_dict
from regard.core.errors import BadInput
from regard.core.shapes import Float, Int, Tensor
from regard.data import speech
from regard.tasks.ctc import align, occupied
from regard.tasks.ctc_search import Found, Scorer, beam, greedy
from regard.tokens.frames import Frames

if TYPE_CHECKING:
    from regard.tokens.text import Text

FRAMES = 60_000  # that go through the model at a time

Sound = str | Path | Tensor


@dataclass(frozen=True)
class Word:
    """A word (or a letter) and the seconds from which to which it was heard."""

    word: str
    start: float
    end: float


@dataclass(frozen=True)
class Heard:
    """What is said in a sound, how likely (log-probability), and when each of its words."""

    text: str
    score: float
    words: tuple[Word, ...]


@dataclass(frozen=True, eq=False)
class Looked:
    """One sound as CTC sees it: for pictures."""

    frames: Float[Tensor, "T F"]  # what the model read
    probabilities: Float[Tensor, "N V"]  # of every label and, last, the blank, at every frame that is left
    share: Float[Tensor, "N L"]  # of all ways of saying the text: where they are at each frame
    path: Int[Tensor, " N"]  # the likeliest way: its state at each frame
    states: tuple[str, ...]  # what the L states are called; "-" is the blank
    labels: tuple[str, ...]  # what the V labels are called
    seconds: float  # a frame that is left
    heard: Heard


class Transcriber:
    """A network that labels frames, with its vocabulary and its way of making frames, to be called.

    `frames` holds the fields of `tokens.frames.Frames`; None for a network that reads frames made elsewhere, which takes
    them through `hear`.
    """

    def __init__(self, model: nn.Module, text: Text, frames: Mapping[str, Any] | None = None) -> None:
        self.model, self.text = model, text
        self.frames = None if frames is None else dict(frames)
        self.front = None if frames is None else from_dict(Frames, frames)

    def __call__(self, sounds: Sequence[Sound], beams: int = 1, **search: Any) -> list[Heard]:
        """What is said in every sound; `search` goes to tasks.ctc_search.beam: scorer, weight, bonus."""
        return self.hear(self.framed(sounds), beams, **search)

    def framed(self, sounds: Sequence[Sound]) -> list[Float[Tensor, "T F"]]:
        """Sounds as the frames that the model reads."""
        if isinstance(sounds, (str, Path, Tensor)):
            raise BadInput("give a list of sounds, not a single one")
        if self.front is None:
            raise BadInput("this model reads frames that were made elsewhere, not sounds; give it those: hear(frames)")
        front = self.front
        waves = [one if isinstance(one, Tensor) else speech.read(one, front.rate) for one in sounds]
        return [front(wave) for wave in waves]

    @torch.inference_mode()
    def hear(self, frames: Sequence[Float[Tensor, "_ F"]], beams: int = 1, **search: Any) -> list[Heard]:
        """What is said in recordings that are frames already."""
        found: list[Heard | None] = [None] * len(frames)
        for rows, logp, lengths in self._read(frames):
            texts = self._search(logp, lengths, beams, search)
            for row, heard in zip(rows, self._told(logp, lengths, texts, frames, rows), strict=True):
                found[row] = heard
        return [each for each in found if each is not None]

    @torch.inference_mode()
    def look(self, sound: Sound | Tensor, beams: int = 1, said: str | None = None, **search: Any) -> Looked:
        """One sound with everything that CTC knows of it; `said`: look at this text instead of the model's own."""
        frames = sound if isinstance(sound, Tensor) and sound.ndim == 2 else self.framed([sound])[0]
        (_, logp, lengths), *_ = self._read([frames])
        found = self._search(logp, lengths, beams, search)[0]
        if said is not None:
            found = Found(tuple(self.text.encode_one(said)), found.score)
        target = torch.tensor([found.labels], dtype=torch.long).reshape(1, -1)
        asked = logp.cpu(), target, lengths.cpu(), torch.tensor([target.shape[1]]), self._blank
        share, total = occupied(*asked)
        if said is not None:
            if total.isinf():
                raise BadInput(f"this sound has {int(lengths)} frames left, too few to say {said!r}")
            found = Found(found.labels, float(total))
        heard = self._told(logp, lengths, [found], [frames], [0])[0]
        names = self.text.pieces(found.labels)
        states = ["-"] + [name for one in names for name in (one, "-")]
        labels = (*self.text.pieces(range(self._blank)), "-")
        path = align(*asked)[0][0]
        return Looked(
            frames, logp[0].exp().cpu(), share[0], path, tuple(states), labels, self._seconds(len(frames), lengths), heard
        )

    # -- inside --------------------------------------------------------------------------------------------------------

    @property
    def _blank(self) -> int:
        return self.text.size

    def _read(self, frames: Sequence[Tensor]) -> Iterator[tuple[list[int], Tensor, Tensor]]:
        """Log-probabilities B T V of recordings of about the same length together, and how many frames are left."""
        model: Any = self.model
        device = next(model.parameters()).device
        model.eval()
        order = sorted(range(len(frames)), key=lambda row: -len(frames[row]))
        while order:
            many = max(1, FRAMES // max(1, len(frames[order[0]])))
            rows, order = order[:many], order[many:]
            batch = speech.padded([frames[row] for row in rows], [""] * len(rows), self.text)
            logits, lengths = model(batch.frames.to(device), batch.frame_lengths.to(device))
            yield rows, logits.float().log_softmax(-1), lengths

    def _search(self, logp: Tensor, lengths: Tensor, beams: int, search: Mapping[str, Any]) -> list[Found]:
        if beams == 1 and not search:
            return greedy(logp, lengths, self._blank)
        many = lengths.tolist()
        return [beam(row[:n], self._blank, beams, **search)[0] for row, n in zip(logp.cpu(), many, strict=True)]

    def _told(
        self, logp: Tensor, lengths: Tensor, found: Sequence[Found], frames: Sequence[Tensor], rows: Sequence[int]
    ) -> list[Heard]:
        """Texts with the times of their words."""
        target = torch.zeros(len(found), max((len(one.labels) for one in found), default=0), dtype=torch.long)
        for row, one in zip(target, found, strict=True):
            row[: len(one.labels)] = torch.tensor(one.labels)
        sizes = torch.tensor([len(one.labels) for one in found])
        path, _ = align(logp, target.to(logp.device), lengths, sizes.to(logp.device), self._blank)
        heard = []
        for one, way, size, row in zip(found, path.cpu(), lengths, rows, strict=True):
            second = self._seconds(len(frames[row]), size)
            names = self.text.pieces(one.labels)
            words = []
            for i, name in enumerate(names):
                at = (way == 2 * i + 1).nonzero()[:, 0].tolist() or [0]
                words.append(Word(name, round(at[0] * second, 3), round((at[-1] + 1) * second, 3)))
            heard.append(Heard(self.text.decode([one.labels])[0], one.score, tuple(words)))
        return heard

    def _seconds(self, frames: int, left: Tensor | int) -> float:
        """How long a frame is that is left."""
        hop = (self.front or Frames()).hop / 1000
        return hop * 2 ** round(torch.log2(torch.tensor(max(frames, 1) / max(int(left), 1))).item())
