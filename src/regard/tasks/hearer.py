"""The hearer: sounds in, what is said in them out, by a decoder that looks over the frames for every word it writes.

    search      greedy with one beam, else beams (tasks.search), through the same code as translation
    attention   where it listened for each word, over the frames that are left
    words       from when to when that was

An output may have a word (or letter) for every four frames of the sound and a few more; then it is cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

from regard.core.shapes import Float, Int, Tensor
from regard.core.steps import Steps
from regard.core.trace import Trace
from regard.tasks.search import Hypothesis, beam, greedy
from regard.tasks.transcriber import Heard, Sound, Sounds, Word, still
from regard.tokens.frames import Frames

if TYPE_CHECKING:
    from regard.tokens.text import Text

EACH, MORE = 4, 4  # frames a word at least, and words beyond that


class Hearer(Sounds):
    """A model that writes what it hears, with its vocabulary, to be called. `search`: length_penalty."""

    def attention(self, sound: Sound, said: str | None = None, beams: int = 4) -> list[Trace]:
        """Where it listened while this text (by default the best one found) was written: a row a word, the end last, a
        column a frame that is left, named by its second."""
        return self.look(sound, said, beams)[1]

    def look(self, sound: Sound, said: str | None = None, beams: int = 4) -> tuple[str, list[Trace]]:
        """The text, as a call gives it, and where it listened while it was written (see `attention`)."""
        from regard.attention.capture import watch

        frames, wide, lengths = self._alone(sound)
        words = self.best(frames, wide, lengths, beams).tokens if said is None else self.numbers(said)
        target = torch.tensor([[self.text.bos, *words]], device=wide.device)
        with torch.no_grad(), watch(self.model) as seen:
            self.model(wide, target)
        traces = seen.traces("align")
        rows = self.text.pieces([*words, self.text.eos])
        return self.text.decode([words])[0], [
            trace.label(rows, [f"{self.seconds * n:.2f}" for n in range(trace.weights.shape[-1])]) for trace in traces
        ]

    def best(
        self, frames: Float[Tensor, "T F"], wide: Float[Tensor, "1 N F"], lengths: Int[Tensor, " 1"], beams: int
    ) -> Hypothesis:
        """The best output for one recording, given as `_alone` gives it; nothing where nothing is in it."""
        if still(frames):
            return Hypothesis([], 0.0, 0.0, finished=True)
        return searched(self.model, wide, lengths, beams, self.text)[0]

    @property
    def seconds(self) -> float:
        """How long one of the frames is that are left."""
        config: Any = self.model.config
        together = getattr(config, "stack", 1) * 2 ** getattr(config, "halvings", 0)
        return float((self.front or Frames()).hop / 1000 * together)

    def _heard(self, frames: Tensor, lengths: Tensor, beams: int, search: Mapping[str, Any]) -> list[Heard]:
        found = searched(self.model, frames, lengths, beams, self.text, **search)
        texts = self.text.decode([one.tokens for one in found])
        words = self._words(frames, lengths, [one.tokens for one in found])
        return [Heard(*each) for each in zip(texts, (one.log_probability for one in found), words, strict=True)]

    def _words(self, frames: Tensor, lengths: Tensor, outputs: Sequence[Sequence[int]]) -> list[tuple[Word, ...]]:
        """The words of every output, each from when to when it was listened for: the frames beside the one that was
        looked at most, as far as they have half of its weight."""
        from regard.attention.capture import watch

        sizes = [len(one) for one in outputs]
        target = torch.full((len(outputs), max(sizes) + 1), self.text.pad)
        for row, one in zip(target, outputs, strict=True):
            row[: len(one) + 1] = torch.tensor([self.text.bos, *one])
        with watch(self.model) as seen:  # once more, now that the words are known, all of them at once
            self.model(frames, target.to(frames.device), lengths)
        looks = seen.traces("align")[-1].weights.mean(1).cpu()  # B T N, all heads
        every = []
        for one, rows in zip(outputs, looks, strict=True):
            spans = [_around(row) for row in rows[: len(one)]]
            said = zip(one, self.text.pieces(one), spans, strict=True)
            every.append(tuple(Word(name, *self._from_to(*span)) for i, name, span in said if i not in self._unsaid))
        return every

    def _from_to(self, first: int, last: int) -> tuple[float, float]:
        return round(first * self.seconds, 3), round((last + 1) * self.seconds, 3)


def _around(weights: Float[Tensor, " N"]) -> tuple[int, int]:
    """The first and the last of the frames beside the weightiest that have at least half of its weight."""
    peak = int(weights.argmax())
    enough = (weights >= weights[peak] / 2).tolist()
    first = last = peak
    while first and enough[first - 1]:
        first -= 1
    while last + 1 < len(enough) and enough[last + 1]:
        last += 1
    return first, last


def searched(
    model: nn.Module,
    frames: Float[Tensor, "B N F"],
    lengths: Int[Tensor, " B"],
    beams: int,
    text: Text,
    length_penalty: float = 1.0,
) -> list[Hypothesis]:
    """The best output for each recording; how long it may become is the recording's own affair."""
    steps = cast(Steps, model)
    ban = () if text.pad == text.eos else (text.pad,)
    limit = lengths // EACH + MORE
    if beams == 1:
        return greedy(steps, frames, lengths, max_length=limit, ban=ban)
    found = beam(steps, frames, lengths, max_length=limit, beams=beams, length_penalty=length_penalty, ban=ban)
    return [best for best, *_ in found]
