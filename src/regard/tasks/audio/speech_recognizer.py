"""The hearer: sounds in, what is said in them out, by a decoder that looks over the frames for every word it writes.

    search      greedy with one beam, else beams (decoding.beam_search), through the same code as translation
    attention   where it listened for each word, over the frames that are left
    words       from when to when that was

An output may have a word (or letter) for every four frames of the sound and a few more; then it is cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

from regard.core.decodable import Decodable
from regard.core.shapes import Float, Int, Tensor
from regard.core.trace import Trace
from regard.decoding.beam_search import Hypothesis, beam_search, greedy_search
from regard.tasks.audio.ctc_speech_recognizer import AudioInput, SpeechPredictor, TimedWord, Transcript, is_silent
from regard.tokens.frames import LogMelSpectrogram

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

FRAMES_PER_TOKEN, EXTRA_TOKENS = 4, 4  # frames a word at least, and words beyond that


class SpeechRecognizer(SpeechPredictor):
    """A model that writes what it hears, with its vocabulary, to be called. `search`: length_penalty."""

    def attention(self, sound: AudioInput, said: str | None = None, beam_size: int = 4) -> list[Trace]:
        """Where it listened while this text (by default the best one found) was written: a row a word, the end last, a
        column a frame that is left, named by its second."""
        return self.analyze(sound, said, beam_size)[1]

    def analyze(self, sound: AudioInput, said: str | None = None, beam_size: int = 4) -> tuple[str, list[Trace]]:
        """The text, as a call gives it, and where it listened while it was written (see `attention`)."""
        from regard.attention.capture.watch import watch

        frames, wide, lengths = self._alone(sound)
        words = self.best(frames, wide, lengths, beam_size).tokens if said is None else self.token_ids(said)
        target = torch.tensor([[self.text.bos, *words]], device=wide.device)
        with torch.no_grad(), watch(self.model) as seen:
            self.model(wide, target)
        traces = seen.traces("align")
        rows = self.text.pieces([*words, self.text.eos])
        return self.text.decode([words])[0], [
            trace.with_labels(rows, [f"{self.seconds * n:.2f}" for n in range(trace.weights.shape[-1])])
            for trace in traces
        ]

    def best(
        self, frames: Float[Tensor, "T F"], wide: Float[Tensor, "1 N F"], lengths: Int[Tensor, " 1"], beam_size: int
    ) -> Hypothesis:
        """The best output for one recording, given as `_locked_folder` gives it; nothing where nothing is in it."""
        if is_silent(frames):
            return Hypothesis([], 0.0, 0.0, finished=True)
        return search_recordings(self.model, wide, lengths, beam_size, self.text)[0]

    @property
    def seconds(self) -> float:
        """How long one of the frames is that are left."""
        config: Any = self.model.config
        together = getattr(config, "frame_stack", 1) * 2 ** getattr(config, "subsampling_layers", 0)
        return float((self.front or LogMelSpectrogram()).hop_ms / 1000 * together)

    def _heard(self, frames: Tensor, lengths: Tensor, beam_size: int, search: Mapping[str, Any]) -> list[Transcript]:
        found = search_recordings(self.model, frames, lengths, beam_size, self.text, **search)
        texts = self.text.decode([one.tokens for one in found])
        words = self._words(frames, lengths, [one.tokens for one in found])
        return [Transcript(*each) for each in zip(texts, (one.log_probability for one in found), words, strict=True)]

    def _words(self, frames: Tensor, lengths: Tensor, outputs: Sequence[Sequence[int]]) -> list[tuple[TimedWord, ...]]:
        """The words of every output, each from when to when it was listened for: the frames beside the one that was
        looked at most, as far as they have half of its weight."""
        from regard.attention.capture.watch import watch

        sizes = [len(one) for one in outputs]
        target = torch.full((len(outputs), max(sizes) + 1), self.text.pad)
        for row, one in zip(target, outputs, strict=True):
            row[: len(one) + 1] = torch.tensor([self.text.bos, *one])
        with watch(self.model) as seen:  # once more, now that the words are known, all of them at once
            self.model(frames, target.to(frames.device), lengths)
        looks = seen.traces("align")[-1].weights.mean(1).cpu()  # B T N, all heads
        every = []
        for one, rows in zip(outputs, looks, strict=True):
            spans = [_half_peak_range(row) for row in rows[: len(one)]]
            said = zip(one, self.text.pieces(one), spans, strict=True)
            every.append(
                tuple(TimedWord(name, *self._from_to(*span)) for i, name, span in said if i not in self._unsaid)
            )
        return every

    def _from_to(self, first: int, last: int) -> tuple[float, float]:
        return round(first * self.seconds, 3), round((last + 1) * self.seconds, 3)


def _half_peak_range(weights: Float[Tensor, " N"]) -> tuple[int, int]:
    """The first and the last of the frames beside the weightiest that have at least half of its weight."""
    peak = int(weights.argmax())
    enough = (weights >= weights[peak] / 2).tolist()
    first = last = peak
    while first and enough[first - 1]:
        first -= 1
    while last + 1 < len(enough) and enough[last + 1]:
        last += 1
    return first, last


def search_recordings(
    model: nn.Module,
    frames: Float[Tensor, "B N F"],
    lengths: Int[Tensor, " B"],
    beam_size: int,
    text: Tokenizer,
    length_penalty: float = 1.0,
) -> list[Hypothesis]:
    """The best output for each recording; how long it may become is the recording's own affair."""
    steps = cast(Decodable, model)
    banned_tokens = () if text.pad == text.eos else (text.pad,)
    limit = lengths // FRAMES_PER_TOKEN + EXTRA_TOKENS
    if beam_size == 1:
        return greedy_search(steps, frames, lengths, max_length=limit, banned_tokens=banned_tokens)
    found = beam_search(
        steps,
        frames,
        lengths,
        max_length=limit,
        beam_size=beam_size,
        length_penalty=length_penalty,
        banned_tokens=banned_tokens,
    )
    return [best for best, *_ in found]
