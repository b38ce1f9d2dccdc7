"""The hearer: sounds in, what is said in them out, by a decoder that looks over the frames for every word it writes.

    search      greedy with one beam, else beams (tasks.search), through the same code as translation
    attention   where it listened for each word, over the frames that are left

An output may have a word (or letter) for every four frames of the sound and a few more; then it is cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

from regard.core.shapes import Float, Int, Tensor
from regard.core.steps import Steps
from regard.core.trace import Trace
from regard.tasks.search import Hypothesis, beam, greedy
from regard.tasks.transcriber import Heard, Sound, Sounds
from regard.tokens.frames import Frames

if TYPE_CHECKING:
    from regard.tokens.text import Text

EACH, MORE = 4, 4  # frames a word at least, and words beyond that


class Hearer(Sounds):
    """A model that writes what it hears, with its vocabulary, to be called. `search`: length_penalty."""

    def attention(self, sound: Sound, said: str | None = None, beams: int = 4) -> list[Trace]:
        """Where it listened while this text (by default the best one found) was written: a row a word, the end last, a
        column a frame that is left, named by its second."""
        from regard.attention.capture import watch

        _, wide, lengths = self._alone(sound)
        words = searched(self.model, wide, lengths, beams, self.text)[0].tokens if said is None else self.numbers(said)
        target = torch.tensor([[self.text.bos, *words]], device=wide.device)
        with torch.no_grad(), watch(self.model) as seen:
            self.model(wide, target)
        traces = seen.traces("align")
        rows = self.text.pieces([*words, self.text.eos])
        return [
            trace.label(rows, [f"{self.seconds * n:.2f}" for n in range(trace.weights.shape[-1])]) for trace in traces
        ]

    @property
    def seconds(self) -> float:
        """How long one of the frames is that are left."""
        config: Any = self.model.config
        together = config.stack if hasattr(config, "stack") else 2**config.halvings
        return float((self.front or Frames()).hop / 1000 * together)

    def _heard(self, frames: Tensor, lengths: Tensor, beams: int, search: Mapping[str, Any]) -> list[Heard]:
        found = searched(self.model, frames, lengths, beams, self.text, **search)
        texts = self.text.decode([one.tokens for one in found])
        return [Heard(text, one.log_probability) for text, one in zip(texts, found, strict=True)]


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
