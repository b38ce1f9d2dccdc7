"""Handwriting synthesis: a text in, the strokes of a pen out, one point after another.

    input        Text; a model of letters that do not exist takes the empty text
    output       Strokes
    loss         -log density of the mixture at the next point, and of the pen's state there, summed over points
    metrics      nats per point (of the data's unit: halving the unit adds log 4) and per line, of offsets and pen
    decoding     sampling, with a bias towards likely points: 0 is as varied as the writers, 1 or 2 neat, above 5 almost
                 deterministic. Stops when the window is past the last character and the pen is lifted
    priming      strokes and their text are read first, so that what follows resembles their hand

A density may exceed one, so a loss may be negative. A line depends on (text, seed, number of the sample) alone, not on
the other lines of the batch: every point draws four numbers of its line's own stream.

Graves: Generating Sequences With Recurrent Neural Networks. 2013. arXiv:1308.0850 (sampling: sections 5.4 and 5.5)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.core.cancellation import check_cancelled
from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor
from regard.data.batching import mix_seed
from regard.data.strokes.handwriting import HandwritingLines, HandwritingSplit, StrokeBatch
from regard.metrics.base import loss_metric
from regard.modalities.strokes import Strokes
from regard.modalities.text import Text
from regard.models.handwriting import GaussianMixture, HandwritingState, shift_right
from regard.tasks.base import SplitTask, call_with_state
from regard.tasks.predictor import Predictor

EVAL_BATCH_SIZE = 64  # lines in one batch of an evaluation
MAX_CHARACTERS = 250  # of a line: the window is kept for every point, so memory grows with the square
POINTS_PER_CHARACTER = 80  # limit, on average over a line


@dataclass(frozen=True)
class Config:
    """No options: the likelihood is the objective."""

    def build(self, data: HandwritingLines, seed: int = 0, folder: Path | None = None) -> Handwriting:
        """Return the task on these data."""
        return Handwriting(self, data, seed)


class Handwriting(SplitTask[HandwritingSplit]):
    """Train and evaluate a model of pen strokes."""

    metrics = (
        loss_metric("nats per point"),
        loss_metric("nats per point", "offset_loss", "offset loss"),
        loss_metric("nats per point", "pen_loss", "pen loss"),
        loss_metric("nats per line", "loss_per_line", "loss per line"),
    )
    unit = "points"
    split_size = "lines"
    name = "handwriting"
    ragged = True
    data: HandwritingLines

    def __init__(self, config: Config, data: HandwritingLines, seed: int = 0) -> None:
        super().__init__(data, seed)
        self.config = config

    def fit(self, config: Any) -> Any:
        return replace(config, vocab=len(self.data.letters) + 1 if self.data.letters else 0)

    def count(self, batch: StrokeBatch) -> int:
        return int(batch.lengths.sum())

    def loss(
        self, model: nn.Module, batch: StrokeBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """Return the loss summed over the points of the batch, without padding, and its parts."""
        mixture, pass_state = call_with_state(model, *model_inputs(batch))
        place, pen = (part.sum() for part in point_losses(mixture, batch))
        total = place + pen
        parts = {"loss": total.detach(), "offset_loss": place.detach(), "pen_loss": pen.detach()}
        return self.with_layer_losses(total, batch, pass_state), parts

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "letters": self.data.letters, "unit": self.data.unit}

    def card(self) -> str:
        d, train = self.data, self.dataset("train")
        said = f"of {len(train.by_writer)} writers" if d.letters else "without a text"
        return (
            f"{d.corpus}, {len(train.all):,} characters {said}, {train.points.mean():.0f} points each; lines of "
            f"{d.min_length} to {d.max_length}, {d.lines_per_epoch:,} an epoch, {d.batch_size} a batch"
        )

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """Evaluate a model on a split. Keys: loss (nats per point), offset_loss and pen_loss (its two parts),
        loss_per_line, points, lines."""
        device = next(model.parameters()).device
        model.eval()
        totals = torch.zeros(2, dtype=torch.float64, device=device)
        points = lines = 0
        for batch in self.dataset(split).eval_batches(EVAL_BATCH_SIZE):
            points, lines = points + self.count(batch), lines + len(batch.lengths)
            batch = batch.to(device)
            losses = point_losses(model(*model_inputs(batch)), batch)
            totals += torch.stack([part.sum(dtype=torch.float64) for part in losses])
        place, pen = (float(x) for x in totals)
        each = {"loss": (place + pen) / points, "offset_loss": place / points, "pen_loss": pen / points}
        return each | {"loss_per_line": (place + pen) / lines, "points": points, "lines": lines}

    @torch.no_grad()
    def report(self, model: nn.Module, split: str = "test", **search: Any) -> dict[str, Any]:
        """Evaluate a model on a split, with the loss of every line."""
        if search:
            raise BadInput(f"the evaluation of strokes has no search; leave out {', '.join(search)}")
        result, rows = self.evaluate(model, split), []
        device = next(model.parameters()).device
        for batch in self.dataset(split).eval_batches(EVAL_BATCH_SIZE):
            batch = batch.to(device)
            place, pen = point_losses(model(*model_inputs(batch)), batch)
            for i, each in enumerate((place + pen).sum(1).tolist()):
                said = "".join(self.data.letters[n] for n in batch.text[i, : batch.text_lengths[i] - 1].tolist())
                rows.append({"text": said, "points": int(batch.lengths[i]), "nats": each})
        return result | {"split": self.data.split(split), "per_line": rows}


def model_inputs(batch: StrokeBatch) -> tuple[Tensor, ...]:
    """Return the arguments of the model: the points, shifted right, and the text if there is one."""
    return shift_right(batch.points), *((batch.text, batch.text_lengths) if batch.text.shape[1] else ())


def point_losses(mixture: GaussianMixture, batch: StrokeBatch) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B T"]]:
    """Return the loss of every point in nats: of its offset, and of the pen's state; 0 in the padding."""
    real = torch.arange(batch.points.shape[1], device=batch.points.device) < batch.lengths[:, None]
    parts = -mixture.log_prob(batch.points[..., :2]), -mixture.pen_log_prob(batch.points[..., 2])
    return parts[0].masked_fill(~real, 0.0), parts[1].masked_fill(~real, 0.0)


# -- the predictor -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Options:
    """Options of sampling."""

    bias: float | None = field(
        None, low=0, high=20, help="0: as varied as the data; 2: neat. Default: 2, without a text 0.5"
    )
    seed: int = field(0, low=0, help="the same seed writes the same line")
    max_points: int | None = field(
        None, low=1, high=20_000, help="points of a line at most; without a text that many, by default 300"
    )


class HandwritingSynthesizer(Predictor):
    """A network that writes by hand.

        write = regard.load("pen-digits")
        write("31415", bias=1.0)                              Strokes
        write.samples(["31", "27"], num_samples=3)            three lines of each text
        write.samples(["31"], prime=write("59"))              in the hand of another line

    `letters` are the characters of its texts; `unit` is the model's unit of length, in character heights.
    """

    inputs = {"text": Text}  # noqa: RUF012
    outputs = Strokes
    options = Options
    examples = ("31415", "2718")

    def __init__(self, model: nn.Module, letters: str = "0123456789", unit: float = 0.14) -> None:
        self.model, self.letters, self.unit = model.eval(), letters, unit

    def predict(self, batch: list[Any], options: Any) -> list[Strokes]:
        if not batch:
            return []
        if self.letters:
            return self.samples(batch, bias=options.bias, seed=options.seed, max_points=options.max_points)
        if any(batch):
            raise BadInput(
                "this model writes without a text: give the empty text; in Python sample_unconditional(points=300)"
            )
        line = self.sample_unconditional(options.max_points or 300, bias=options.bias, seed=options.seed)
        return line * len(batch)

    def samples(
        self,
        texts: Sequence[str],
        num_samples: int = 1,
        *,
        bias: float | None = None,
        seed: int = 0,
        prime: Strokes | None = None,
        max_points: int | None = None,
    ) -> list[Strokes]:
        """Write every text `num_samples` times, those of one text together; at most `max_points` points each."""
        if not self.letters:
            raise BadInput(
                "this model writes without a text: leave the text out; in Python sample_unconditional(points=300)"
            )
        bias = 2.0 if bias is None else bias
        self._check(texts, num_samples, bias)
        if prime is not None:
            if not isinstance(prime, Strokes):
                raise BadInput(f"prime must be Strokes, such as this model writes, got {type(prime).__name__}.")
            self._check([prime.text], num_samples, bias)
        lines = [text for text in texts for _ in range(num_samples)]
        before = "" if prime is None else prime.text
        ids = [[self.letters.index(c) for c in before + text] + [len(self.letters)] for text in lines]
        longest = max(map(len, ids))
        padded = torch.tensor([row + [len(self.letters)] * (longest - len(row)) for row in ids])
        limits = [POINTS_PER_CHARACTER * (len(text) + 1) if max_points is None else max_points for text in lines]
        noise = [point_noise(seed, i % num_samples, max(limits)) for i in range(len(lines))]
        drawn = self._write(torch.stack(noise), bias, padded, torch.tensor([len(row) for row in ids]), prime)
        return [
            self._strokes(text, len(before), points[:limit], window[:limit], finished and len(points) < limit)
            for text, limit, (points, window, finished) in zip(lines, limits, drawn, strict=True)
        ]

    def sample_unconditional(
        self, points: int = 300, *, num_samples: int = 1, bias: float | None = None, seed: int = 0
    ) -> list[Strokes]:
        """Write that many points with a model that takes no text."""
        if self.letters:
            raise BadInput(f"this model writes texts: give it one, made of {self.letters}")
        bias = 0.5 if bias is None else bias
        self._check(["-"] if points > 0 else [""], num_samples, bias)
        noise = torch.stack([point_noise(seed, i, points) for i in range(num_samples)])
        return [self._strokes("", 0, *line) for line in self._write(noise, bias)]

    @torch.no_grad()
    def _write(
        self,
        noise: Float[Tensor, "B T 4"],
        bias: float,
        text: Tensor | None = None,
        lengths: Tensor | None = None,
        prime: Strokes | None = None,
    ) -> list[tuple[Tensor, Tensor, bool]]:
        """Return the points of every line, the window's weights at each, and whether the end was reached."""
        like = next(self.model.parameters())
        lines, limit, noise = len(noise), noise.shape[1], noise.to(like)
        read = torch.tensor([[[0.0, 0.0, 1.0]]]).to(like).expand(lines, 1, 3)
        text, lengths = (None if x is None else x.to(like.device) for x in (text, lengths))
        if prime is not None:
            before = (prime.points * torch.tensor([1 / self.unit, 1 / self.unit, 1.0])).to(like)
            read = torch.cat([read, before.expand(lines, -1, 3)], 1)
        state: HandwritingState = self.model.start(read, text, lengths)  # type: ignore[operator]
        if read.shape[1] > 1:
            _, state = self.model.read(read[:, :-1], state)  # type: ignore[operator]
        point, alive = read[:, -1], torch.arange(lines, device=like.device)
        columns = 0 if text is None else text.shape[1]
        points, windows = like.new_zeros(lines, limit, 3), like.new_zeros(lines, limit, columns)
        ends = torch.full((lines,), limit, device=like.device)
        for t in range(limit):
            check_cancelled()
            mixture, state = self.model.step(point, state)  # type: ignore[operator]
            if state.window_weights is not None and lengths is not None:
                window = state.window_weights[:, 0]
                going = (window.argmax(-1) < lengths[alive] - 1) | (point[:, 2] < 0.5)
                if not bool(going.all()):
                    ends[alive[~going]] = t
                    rows = going.nonzero()[:, 0]
                    alive, state, window = alive[rows], state.select_rows(rows), window[rows]
                    mixture = type(mixture)(*(x[rows] for x in mixture))
                    if not len(alive):
                        break
                windows[alive, t] = window
            point = mixture.sharpened(bias).sample(noise[alive, t])
            points[alive, t] = point
        return [(points[i, :n], windows[i, :n], n < limit or not columns) for i, n in enumerate(ends.tolist())]

    def _strokes(self, text: str, before: int, points: Tensor, window: Tensor, finished: bool) -> Strokes:
        """Return a line in character heights, without the prime."""
        scale = torch.tensor([self.unit, self.unit, 1.0])
        own = window[:, before : before + len(text) + 1] if text else window
        return Strokes(str(text), points.float().cpu() * scale, own.float().cpu(), finished)

    def _check(self, texts: Sequence[str], num_samples: int, bias: float) -> None:
        if not texts or not all(texts):
            raise BadInput("there is nothing to write: the text is empty")
        if self.letters and (unknown := sorted({c for text in texts for c in text} - set(self.letters))):
            shown = ", ".join(repr(c) for c in unknown[:8])
            raise BadInput(f"this model cannot write {shown}; it knows the characters {self.letters}")
        if (longest := max(map(len, texts))) > MAX_CHARACTERS:
            allowed = f"at most {MAX_CHARACTERS} characters can be written in one line"
            raise BadInput(f"{allowed}, got {longest:,}; write several lines")
        if num_samples < 1:
            raise BadInput(f"num_samples must be at least 1, got {num_samples}")
        if not (math.isfinite(bias) and bias >= 0):
            raise BadInput(f"bias must be 0 (as varied as the data) or more, got {bias}")


def point_noise(seed: int, sample: int, points: int) -> Float[Tensor, "T 4"]:
    """Return the random numbers of each point: uniform, two normal, uniform. A longer line begins with the same."""
    generator = torch.Generator().manual_seed(mix_seed(seed, sample))
    uniform = torch.rand(points, 4, generator=generator, dtype=torch.float64)
    # two normal numbers from two uniform ones (Box and Muller), so that every point uses exactly four
    radius, angle = (-2 * torch.log1p(-uniform[:, 1])).sqrt(), 2 * math.pi * uniform[:, 2]
    return torch.stack([uniform[:, 0], radius * angle.cos(), radius * angle.sin(), uniform[:, 3]], -1)
