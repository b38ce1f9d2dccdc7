"""Writing by hand: texts in, strokes out, one point of the pen after another.

    bias     0: as varied as the writers it learned from; 1 or 2: neat; above 5 hardly anything is left to chance
    prime    strokes of a hand and what they say: they are read first, so that what follows tends to look like them
    stop     when the window rests on the mark after the last character and the pen is in the air

A line depends on (text, seed, number of the sample) alone: whatever else is written with it, the same seed gives the
same strokes. Every point draws four numbers of its line's own stream, whichever way it goes.

Graves: Generating Sequences With Recurrent Neural Networks. 2013. arXiv:1308.0850 (sections 5.4 and 5.5)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import nn

from regard.core.errors import BadInput
from regard.core.shapes import Float, Int, Tensor
from regard.data.batching import mix_seed
from regard.models.handwriting import HandwritingState

POINTS_PER_CHARACTER = 80  # points at most, on average over a line


@dataclass(frozen=True, eq=False)
class HandwrittenLine:
    """A written line. Lengths are in heights of a character, x to the right and y down."""

    text: str
    points: Float[Tensor, "T 3"]  # dx, dy, 1 where the pen is lifted after the point
    window: Float[Tensor, "T U"]  # how much each point looked at each character, and last at the end of the text
    finished: bool = True  # False: cut off before the window had reached the end

    @property
    def read(self) -> Int[Tensor, " T"]:
        """Which character of the text each point belongs to: where the window was; nothing where there is no text."""
        window = self.window[:, : len(self.text)]
        return window.argmax(-1) if self.text else window.new_zeros(0, dtype=torch.long)

    def strokes(self) -> list[Float[Tensor, "N 2"]]:
        """The places of the pen, one tensor for each time it was down."""
        return list(self.points[:, :2].cumsum(0).split(self._strokes()))

    def characters(self) -> list[list[Float[Tensor, "N 2"]]]:
        """The strokes of each character of the text: a stroke belongs to the one its points looked at most."""
        found: list[list[Tensor]] = [[] for _ in self.text]
        for stroke, looked in zip(self.strokes(), self.window.split(self._strokes()), strict=True):
            found[int(looked[:, : len(self.text)].sum(0).argmax())].append(stroke)
        return found

    def _strokes(self) -> list[int]:
        """The points of each stroke; the last may lack its end."""
        ends = [0, *(self.points[:, 2].nonzero()[:, 0] + 1).tolist()]
        ends = ends if ends[-1] == len(self.points) else [*ends, len(self.points)]
        return [after - before for before, after in pairwise(ends)]


class HandwritingSynthesizer:
    """A network that writes: ``scribe(["31415", "27"], bias=1.0)`` gives a `HandwrittenLine` line for each text.

    `letters` are what a text can be made of, `bits_to_unit` is what the model counts as 1, in heights of a character.
    """

    def __init__(self, model: nn.Module, letters: str = "0123456789", unit: float = 0.14) -> None:
        self.model, self.letters, self.unit = model.eval(), letters, unit

    def __call__(
        self,
        texts: str | Sequence[str],
        *,
        num_samples: int = 1,
        bias: float = 2.0,
        seed: int = 0,
        prime: HandwrittenLine | None = None,
        max_points: int | None = None,
    ) -> list[HandwrittenLine]:
        """Write every text `samples` times, those of one text together; at most `longest` points each."""
        texts = [texts] if isinstance(texts, str) else list(texts)
        if not self.letters:
            raise BadInput(
                "this model writes without a text: leave the text out; scribe.sample_unconditional(points=300) in Python"
            )
        self._check(texts, num_samples, bias)
        if prime is not None:
            if not isinstance(prime, HandwrittenLine):
                what = f"a {type(prime).__name__}, not a line that was written"
                raise BadInput(f"the prime is {what}; give one of those that a scribe gives back: scribe('1')[0]")
            self._check([prime.text], num_samples, bias)
        asked = [text for text in texts for _ in range(num_samples)]
        before = "" if prime is None else prime.text
        numbers = [[self.letters.index(c) for c in before + text] + [len(self.letters)] for text in asked]
        room = max(map(len, numbers))
        said = torch.tensor([row + [len(self.letters)] * (room - len(row)) for row in numbers])
        limit = POINTS_PER_CHARACTER * (max(map(len, asked)) + 1) if max_points is None else max_points
        chances = [point_noise(seed, i % num_samples, limit) for i in range(len(asked))]
        drawn = self._write(torch.stack(chances), bias, said, torch.tensor([len(row) for row in numbers]), prime)
        return [self._penned(text, len(before), *line) for text, line in zip(asked, drawn, strict=True)]

    def sample_unconditional(
        self, points: int = 300, *, num_samples: int = 1, bias: float = 0.5, seed: int = 0
    ) -> list[HandwrittenLine]:
        """Write so many points of whatever comes, where the model knows no text."""
        if self.letters:
            raise BadInput(f"this model writes texts: give it one, made of {self.letters}")
        self._check(["-"] if points > 0 else [""], num_samples, bias)
        chances = torch.stack([point_noise(seed, i, points) for i in range(num_samples)])
        return [self._penned("", 0, *line) for line in self._write(chances, bias)]

    @torch.no_grad()
    def _write(
        self,
        chances: Float[Tensor, "B T 4"],
        bias: float,
        text: Tensor | None = None,
        lengths: Tensor | None = None,
        prime: HandwrittenLine | None = None,
    ) -> list[tuple[Tensor, Tensor, bool]]:
        """The points of every line, the weights of the window at each, and whether the end was reached."""
        like = next(self.model.parameters())
        lines, limit, chances = len(chances), chances.shape[1], chances.to(like)
        read = torch.tensor([[[0.0, 0.0, 1.0]]]).to(like).expand(lines, 1, 3)
        text, lengths = (None if x is None else x.to(like.device) for x in (text, lengths))
        if prime is not None:
            before = (prime.points * torch.tensor([1 / self.unit, 1 / self.unit, 1.0])).to(like)
            read = torch.cat([read, before.expand(lines, -1, 3)], 1)
        state: HandwritingState = self.model.start(read, text, lengths)  # type: ignore[operator]
        if read.shape[1] > 1:
            _, state = self.model.read(read[:, :-1], state)  # type: ignore[operator]
        point, alive = read[:, -1], torch.arange(lines, device=like.device)
        places = 0 if text is None else text.shape[1]
        points, windows = like.new_zeros(lines, limit, 3), like.new_zeros(lines, limit, places)
        ends = torch.full((lines,), limit, device=like.device)
        for t in range(limit):
            said, state = self.model.step(point, state)  # type: ignore[operator]
            if state.window_weights is not None and lengths is not None:
                looked = state.window_weights[:, 0]
                going = (looked.argmax(-1) < lengths[alive] - 1) | (point[:, 2] < 0.5)
                if not bool(going.all()):
                    ends[alive[~going]] = t
                    kept = going.nonzero()[:, 0]
                    alive, state, looked = alive[kept], state.select_rows(kept), looked[kept]
                    said = type(said)(*(x[kept] for x in said))
                    if not len(alive):
                        break
                windows[alive, t] = looked
            point = said.sharpened(bias).sample(chances[alive, t])
            points[alive, t] = point
        return [(points[i, :n], windows[i, :n], n < limit or not places) for i, n in enumerate(ends.tolist())]

    def _penned(self, text: str, before: int, points: Tensor, window: Tensor, finished: bool) -> HandwrittenLine:
        """A line in heights of a character; what was primed with is not part of it."""
        scale = torch.tensor([self.unit, self.unit, 1.0])
        own = window[:, before : before + len(text) + 1] if text else window
        return HandwrittenLine(text, points.float().cpu() * scale, own.float().cpu(), finished)

    def _check(self, texts: Sequence[str], num_samples: int, bias: float) -> None:
        if not texts or not all(texts):
            raise BadInput("there is nothing to write: the text is empty")
        if self.letters and (unknown := sorted({c for text in texts for c in text} - set(self.letters))):
            said = ", ".join(repr(c) for c in unknown[:8])
            raise BadInput(f"this model cannot write {said}; it knows the characters {self.letters}")
        if num_samples < 1:
            raise BadInput(f"{num_samples} samples cannot be written; give 1 or more")
        if not (math.isfinite(bias) and bias >= 0):
            raise BadInput(f"a bias of {bias} cannot be used; give 0 (as varied as the data) or more")


def point_noise(seed: int, sample: int, points: int) -> Float[Tensor, "T 4"]:
    """What chance says to each point of a line: uniform, two normal, uniform. A longer line begins with the same."""
    generator = torch.Generator().manual_seed(mix_seed(seed, sample))
    uniform = torch.rand(points, 4, generator=generator, dtype=torch.float64)
    # normal numbers of two uniform ones (Box and Muller), so that every point uses exactly four
    radius, angle = (-2 * torch.log1p(-uniform[:, 1])).sqrt(), 2 * math.pi * uniform[:, 2]
    return torch.stack([uniform[:, 0], radius * angle.cos(), radius * angle.sin(), uniform[:, 3]], -1)
