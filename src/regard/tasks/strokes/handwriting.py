"""Handwriting: of a text and what the pen did so far, where it goes next.

    objective    minus the logarithm of the mixture's density at the next point and of what the pen does there, summed
    metric       nats per point (of the data's unit: halving the unit adds log 4), of a whole line, and of the pen alone
    decoding     one point after another, drawn by chance, with a bias towards the likely (tasks.strokes.handwriting_synthesizer)
    predict      `HandwritingSynthesizer`: texts in, strokes out

A density may exceed one, so a loss may be negative.

Graves: Generating Sequences With Recurrent Neural Networks. 2013. arXiv:1308.0850
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor
from regard.data.strokes.handwriting import HandwritingLines, HandwritingSplit, StrokeBatch
from regard.models.handwriting import shift_right
from regard.tasks.base import SplitTask

EVAL_BATCH_SIZE = 64  # lines measured at a time


@dataclass(frozen=True)
class Config:
    """There is nothing to choose: the likelihood is the objective."""

    def build(self, data: HandwritingLines, seed: int = 0, folder: Path | None = None) -> Handwriting:
        """The task on these data."""
        return Handwriting(self, data, seed)


class Handwriting(SplitTask[HandwritingSplit]):
    """What the training loop trains: the loss, and the lines it is measured on."""

    headline = "loss"  # the lower the better
    unit = "points"
    name = "handwriting"
    ragged = True
    data: HandwritingLines

    def __init__(self, config: Config, data: HandwritingLines, seed: int = 0) -> None:
        super().__init__(data, seed)
        self.config = config

    def fit(self, config: Any) -> Any:
        """A model's Config with what only the data know: how many letters a text can have, and the end."""
        return replace(config, vocab=len(self.data.letters) + 1 if self.data.letters else 0)

    def count(self, batch: StrokeBatch) -> int:
        """The number of points."""
        return int(batch.lengths.sum())

    def loss(
        self, model: nn.Module, batch: StrokeBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """The loss summed over the points of the batch; padding adds nothing."""
        place, pen = (part.sum() for part in point_losses(model, batch))
        total = place + pen
        return total, {name: x.detach() for name, x in {"loss": total, "offset_loss": place, "pen_loss": pen}.items()}

    def describe(self) -> dict[str, Any]:
        """The task as plain values, to stand beside a saved model."""
        return {"name": self.name, "letters": self.data.letters, "unit": self.data.unit}

    def card(self) -> str:
        """One line on the data, for the run's first line."""
        d, train = self.data, self.dataset("train")
        said = f"of {len(train.by_hand)} writers" if d.letters else "without a text"
        return (
            f"{d.corpus}, {len(train.all):,} characters {said}, {train.points.mean():.0f} points each; lines of "
            f"{d.min_length} to {d.max_length}, {d.lines_per_epoch:,} an epoch, {d.batch_size} a batch"
        )

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """How good a model is on a part of the data. Keys: loss (nats per point), place and pen (its two parts), line
        (nats per line), points, lines."""
        device = next(model.parameters()).device
        model.eval()
        totals = torch.zeros(2, dtype=torch.float64, device=device)
        points = lines = 0
        for batch in self.dataset(split).eval_batches(EVAL_BATCH_SIZE):
            points, lines = points + self.count(batch), lines + len(batch.lengths)
            totals += torch.stack([part.sum(dtype=torch.float64) for part in point_losses(model, batch.to(device))])
        place, pen = (float(x) for x in totals)
        each = {"loss": (place + pen) / points, "offset_loss": place / points, "pen_loss": pen / points}
        return each | {"loss_per_line": (place + pen) / lines, "points": points, "lines": lines}

    @torch.no_grad()
    def report(self, model: nn.Module, split: str = "test", **search: Any) -> dict[str, Any]:
        """Everything there is to say about a model on one part: `evaluate`'s numbers and the nats of every line."""
        if search:
            raise BadInput(f"nothing is searched for when measuring strokes; leave out {', '.join(search)}")
        result, rows = self.evaluate(model, split), []
        device = next(model.parameters()).device
        for batch in self.dataset(split).eval_batches(EVAL_BATCH_SIZE):
            place, pen = point_losses(model, batch.to(device))
            for i, each in enumerate((place + pen).sum(1).tolist()):
                said = "".join(self.data.letters[n] for n in batch.text[i, : batch.text_lengths[i] - 1].tolist())
                rows.append({"text": said, "points": int(batch.lengths[i]), "nats": each})
        return result | {"split": self.data.split(split), "per_line": rows}


def point_losses(model: nn.Module, batch: StrokeBatch) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B T"]]:
    """The nats of every point: where it lies, and what the pen does; 0 in the padding."""
    said = model(shift_right(batch.points), *((batch.text, batch.text_lengths) if batch.text.shape[1] else ()))
    real = torch.arange(batch.points.shape[1], device=batch.points.device) < batch.lengths[:, None]
    parts = -said.log_prob(batch.points[..., :2]), -said.pen_log_prob(batch.points[..., 2])
    return parts[0].masked_fill(~real, 0.0), parts[1].masked_fill(~real, 0.0)
