"""The transcriber: sounds in, what is said in them out, in the same order.

    sounds      files (any rate, any number of channels), or waves at the model's own rate
    search      greedy with one beam, else a beam over prefixes (decoding.ctc_search), with a language model where given
    times       of each word when it begins and ends, by the likeliest alignment of its labels (losses.ctc)

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
from regard.core.errors import BadInput, require_iterable
from regard.core.shapes import Float, Int, Tensor
from regard.data.audio.speech_batch import pad_frames
from regard.decoding.ctc_search import CTCHypothesis, ctc_decode
from regard.losses.ctc import forced_align, state_posteriors
from regard.modalities import audio
from regard.tokens.frames import LogMelSpectrogram

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

BATCH_FRAMES = 60_000  # that go through the model at a time

AudioInput = str | Path | Tensor | np.ndarray


@dataclass(frozen=True)
class TimedWord:
    """A word (or a letter) and the seconds from which to which frames say it: of CTC a moment of it, for it is free to
    choose any; of a decoder when it listened for it."""

    word: str
    start: float
    end: float


@dataclass(frozen=True)
class Transcript:
    """What is said in a sound, how likely (log-probability), and when each of its words."""

    text: str
    score: float
    words: tuple[TimedWord, ...] = ()


class SpeechPredictor:
    """A model that reads frames, with its vocabulary and its way of making frames, to be called. Left to do: `_heard`.

    `frames` holds the fields of `tokens.frames.LogMelSpectrogram`; None for a model of frames that were made elsewhere, which
    takes them through `hear`.
    """

    def __init__(self, model: nn.Module, text: Tokenizer, frames: Mapping[str, Any] | None = None) -> None:
        self.model, self.text = model, text
        self.frames = None if frames is None else dict(frames)
        self.front = None if frames is None else from_dict(LogMelSpectrogram, frames)

    def __call__(self, sounds: Sequence[AudioInput], beam_size: int = 1, **search: Any) -> list[Transcript]:
        """What is said in every sound."""
        return self.transcribe_frames(self.to_frames(sounds), beam_size, **search)

    def to_frames(self, sounds: Sequence[AudioInput]) -> list[Float[Tensor, "_ F"]]:
        """Sounds as the frames that the model reads."""
        if isinstance(sounds, (str, Path, bytes, Tensor, np.ndarray)):
            raise BadInput("give a list of sounds, not a single one")
        if self.front is None:
            raise BadInput("this model reads frames that were made elsewhere, not sounds; give it those: hear(frames)")
        given = enumerate(require_iterable(sounds, "sounds"), 1)
        return [self.front(_read_wave(one, self.front.sample_rate, number)) for number, one in given]

    @torch.inference_mode()
    def transcribe_frames(
        self, frames: Sequence[Float[Tensor, "_ F"]], beam_size: int = 1, **search: Any
    ) -> list[Transcript]:
        """What is said in recordings that are frames already."""
        if beam_size < 1:
            raise BadInput(f"{beam_size} beams find nothing; give 1 or more")
        self.model.eval()
        _check_finite(frames)
        found = [Transcript("", 0.0)] * len(frames)
        heard = [row for row, one in enumerate(frames) if not is_silent(one)]
        for rows, wide, lengths in self._batches([frames[row] for row in heard]):
            for row, each in zip(rows, self._heard(wide, lengths, beam_size, search), strict=True):
                found[heard[row]] = each
        return found

    def token_ids(self, said: str) -> list[int]:
        """A text as the numbers of its words; one that the model cannot say is refused."""
        found = self.text.encode_one(said)
        if self.text.unk in found:
            raise BadInput(f"this model cannot say all of {said!r:.60}: it has not learned every word of it")
        return found

    def _heard(self, frames: Tensor, lengths: Tensor, beam_size: int, search: Mapping[str, Any]) -> list[Transcript]:
        raise NotImplementedError

    @property
    def _unsaid(self) -> set[int]:
        """What stands in no text, and so is no word of one."""
        return {self.text.pad, self.text.bos, self.text.eos, self.text.unk}

    def _alone(self, sound: AudioInput) -> tuple[Float[Tensor, "T F"], Float[Tensor, "1 T F"], Int[Tensor, " 1"]]:
        """One sound (or its frames, T F) to look at: its frames, the same as a batch on the model's device, and how
        many there are."""
        frames = sound if isinstance(sound, Tensor) and sound.ndim == 2 else self.to_frames([sound])[0]
        self.model.eval()
        _check_finite([frames])
        ((_, wide, lengths),) = self._batches([frames])
        return frames, wide[:, : len(frames)], lengths

    def _batches(self, frames: Sequence[Tensor]) -> Iterator[tuple[list[int], Tensor, Tensor]]:
        """Recordings of about the same length side by side, on the model's device, and which they are."""
        device = next(self.model.parameters()).device
        order = sorted(range(len(frames)), key=lambda row: -len(frames[row]))
        while order:
            many = max(1, BATCH_FRAMES // max(1, len(frames[order[0]])))
            rows, order = order[:many], order[many:]
            wide, lengths = pad_frames([frames[row] for row in rows])
            yield rows, wide.to(device), lengths.to(device)


def is_silent(frames: Float[Tensor, "T F"]) -> bool:
    """Whether a recording never changes, so that nothing is said in it."""
    return bool((frames == frames[:1]).all())


def _read_wave(sound: Any, rate: int, number: int) -> Float[Tensor, " samples"]:
    """One sound as samples in the numbers that models are made of."""
    if isinstance(sound, (str, Path, bytes)):
        return audio.read_audio(sound, rate)
    if not isinstance(sound, Tensor) and not (isinstance(sound, np.ndarray) and sound.dtype.kind in "fiu"):
        what = f"an array of {sound.dtype}" if isinstance(sound, np.ndarray) else f"a {type(sound).__name__}"
        raise BadInput(f"sound {number} is {what}; give a file, or a tensor or numpy array of samples from -1 to 1")
    wave = sound if isinstance(sound, Tensor) else torch.tensor(sound)
    return audio.silence_constant(wave.float() if wave.is_floating_point() else wave)


def _check_finite(frames: Sequence[Tensor]) -> None:
    for number, one in enumerate(frames, 1):
        if not one.isfinite().all():
            raise BadInput(f"sound {number} holds samples that are not finite numbers")


@dataclass(frozen=True, eq=False)
class CTCAnalysis:
    """One sound as CTC sees it: for pictures (see.ctc_lattice)."""

    frames: Float[Tensor, "T F"]  # what the model read
    probabilities: Float[Tensor, "N V"]  # of every label and, last, the blank, at every frame that is left
    share: Float[Tensor, "N L"]  # of all ways of saying the text: where they are at each frame
    path: Int[Tensor, " N"]  # the likeliest way: its state at each frame
    states: tuple[str, ...]  # what the L states are called; "-" is the blank
    labels: tuple[str, ...]  # what the V labels are called
    seconds: float  # a frame that is left
    heard: Transcript


class CTCSpeechRecognizer(SpeechPredictor):
    """A network that labels frames: CTC. `search` goes to decoding.ctc_search.beam: scorer, weight, bonus, ends."""

    @torch.inference_mode()
    def analyze(self, sound: AudioInput, beam_size: int = 1, said: str | None = None, **search: Any) -> CTCAnalysis:
        """One sound (or its frames, T F) with everything that CTC knows of it; `said`: look at this text instead of the
        model's own."""
        frames, wide, many = self._alone(sound)
        logp, lengths = self._labelled(wide, many)
        found = ctc_decode(logp, lengths, self.text.size, beam_size, **search)[0]
        if is_silent(frames):
            found = CTCHypothesis((), 0.0)
        if said is not None:
            found = CTCHypothesis(tuple(self.token_ids(said)), found.score)
        target = torch.tensor([found.labels], dtype=torch.long, device=logp.device).reshape(1, -1)
        asked = logp, target, lengths, torch.full_like(lengths, target.shape[1]), self.text.size
        share, total = state_posteriors(*asked)
        if total.isinf():
            raise BadInput(f"this sound has {int(lengths)} frames left, too few to say {said!r}")
        heard = self._told(logp, lengths, [found], many)[0]
        if said is not None:
            heard = Transcript(heard.text, float(total), heard.words)
        states = ("-", *(name for one in self.text.pieces(found.labels) for name in (one, "-")))
        return CTCAnalysis(
            frames,
            logp[0].exp().cpu(),
            share[0].cpu(),
            forced_align(*asked)[0][0].cpu(),
            states,
            (*self.text.pieces(range(self.text.size)), "-"),
            self._seconds(many, lengths)[0],
            heard,
        )

    def _heard(self, frames: Tensor, lengths: Tensor, beam_size: int, search: Mapping[str, Any]) -> list[Transcript]:
        logp, left = self._labelled(frames, lengths)
        return self._told(logp, left, ctc_decode(logp, left, self.text.size, beam_size, **search), lengths)

    def _labelled(self, frames: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        logits, left = self.model(frames, lengths)
        return logits.float().log_softmax(-1), left

    def _told(self, logp: Tensor, left: Tensor, found: Sequence[CTCHypothesis], lengths: Tensor) -> list[Transcript]:
        """Texts with the times of their words."""
        sizes = torch.tensor([len(one.labels) for one in found])
        target = torch.zeros(len(found), int(sizes.max()), dtype=torch.long)
        for row, one in zip(target, found, strict=True):
            row[: len(one.labels)] = torch.tensor(one.labels)
        path, _ = forced_align(logp, target.to(logp.device), left, sizes.to(logp.device), self.text.size)
        heard = []
        for one, way, second in zip(found, path.cpu(), self._seconds(lengths, left), strict=True):
            words = []
            for i, name in enumerate(self.text.pieces(one.labels)):
                if one.labels[i] in self._unsaid:
                    continue
                at = (way == 2 * i + 1).nonzero()[:, 0].tolist()
                words.append(TimedWord(name, round(at[0] * second, 3), round((at[-1] + 1) * second, 3)))
            heard.append(Transcript(self.text.decode([one.labels])[0], one.score, tuple(words)))
        return heard

    def _seconds(self, frames: Tensor, left: Tensor) -> list[float]:
        """How long one of the frames is that are left: a power of two times what it was."""
        hop = (self.front or LogMelSpectrogram()).hop_ms / 1000
        return [hop * 2 ** round(math.log2(n / m)) for n, m in zip(frames.tolist(), left.tolist(), strict=True)]
