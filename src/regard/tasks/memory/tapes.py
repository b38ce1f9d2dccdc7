"""Tapes: write bit vectors to a memory and read them back; copy, repeat copy, associative recall.

    input        Text: "10110010 01100101", a word of bits for each vector ("... x3", "a b c , d e f ? a b c")
    output       Text: the vectors of the answer
    loss         binary cross-entropy of every bit of the answer, summed
    metrics      wrong bits per sequence, over all lengths and for each; loss (nats per bit)
    decoding     every bit by itself: 1 where its probability is above a half

Trained on short tapes, tested on long ones (data.synthetic.tapes): does the model have a rule, or a table?
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from regard.core.cancellation import check_cancelled
from regard.core.config import from_dict, to_dict
from regard.core.shapes import Float, Tensor
from regard.core.spec import resolve
from regard.data import DATA
from regard.data.synthetic.tapes import Size, TapeBatch, TapeDataset, TapeSplit
from regard.metrics.base import Metric, loss_metric
from regard.modalities.text import Text
from regard.tasks.base import SplitTask
from regard.tasks.predictor import Predictor

log = logging.getLogger("regard")


@dataclass(frozen=True)
class Config:
    """No settings."""

    def build(self, data: TapeDataset, seed: int = 0, folder: Path | None = None) -> Tapes:
        """Return the task on these data."""
        return Tapes(data, seed)


class Tapes(SplitTask[TapeSplit]):
    """Train and evaluate a model that answers with what it was given."""

    metrics = (
        Metric("wrong_bits", "wrong bits", "per sequence", higher_is_better=False),
        loss_metric("nats per bit"),
    )
    name = "tapes"
    unit = "bits"
    split_size = "sequences"
    data: TapeDataset

    def fit(self, config: Any) -> Any:
        longest = self.data.vectors(Size(self.data.max_length))
        if longest > (cells := getattr(config, "cells", longest)):
            log.warning(_too_long(longest, cells))
        return replace(config, input_dim=self.data.input_dim, output_dim=self.data.output_dim)

    def count(self, batch: TapeBatch) -> int:
        return batch.targets.numel()

    def loss(
        self, model: nn.Module, batch: TapeBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        total = _nats(answer_logits(model, batch), batch)
        return total, {"loss": total.detach()}

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """Return loss (nats per bit), wrong_bits (per sequence) and wrong_bits_<size> for each size."""
        part, device = self.dataset(split), next(model.parameters()).device
        model.eval()
        nats = torch.zeros((), dtype=torch.float64, device=device)
        bits, wrong = 0, dict[str, float]()
        for size in self.data.eval_sizes(part.part):
            found = torch.zeros((), dtype=torch.int64, device=device)
            for batch in part.batches_of(size):
                bits, here = bits + self.count(batch), batch.to(device)
                logits = answer_logits(model, here)
                nats += _nats(logits, here)
                found += ((logits > 0) != (here.targets > 0.5)).sum()
            wrong[f"wrong_bits_{self.data.describe_size(size)}"] = int(found) / self.data.eval_examples
        mean = sum(wrong.values()) / len(wrong)
        return {"wrong_bits": mean, "loss": float(nats) / bits, **wrong, self.split_size: len(part)}

    def describe(self) -> dict[str, Any]:
        where = type(self.data).__module__, type(self.data).__qualname__
        known = next(name for name, entry in DATA.items() if entry == where)
        return {"name": self.name, "data": known, "settings": to_dict(self.data)}

    def card(self) -> str:
        d = self.data
        return f"{d.title()}, {d.min_length} to {d.max_length} vectors of {d.bits} bits; {d.batch_size} rows a batch"


def answer_logits(model: nn.Module, batch: TapeBatch) -> Float[Tensor, "B A O"]:
    """Return the logits of the answer: those of the last steps."""
    logits: Tensor = model(batch.inputs)[:, -batch.targets.shape[1] :]
    return logits


def _nats(logits: Float[Tensor, "B A O"], batch: TapeBatch) -> Float[Tensor, ""]:
    return F.binary_cross_entropy_with_logits(logits.float(), batch.targets, reduction="sum")


def _too_long(vectors: int, cells: int) -> str:
    return f"a tape of {vectors} vectors does not fit a memory of {cells} cells: it cannot be copied in full"


class TapePredictor(Predictor):
    """Tapes as text: ``copy("101 011")`` returns ``"101 011"`` from a model that has learned to copy."""

    inputs = {"text": Text}  # noqa: RUF012
    outputs = Text
    examples = ("10110010 01100101 11110000",)

    def __init__(self, model: nn.Module, data: str = "copy_tape", settings: Mapping[str, Any] | None = None) -> None:
        self.model, self.data, self.settings = model.eval(), data, settings
        self.tape: TapeDataset = from_dict(resolve(DATA, data, "data"), settings or {})
        self.examples = (self.tape.example,)  # type: ignore[misc]  # of the width of this model

    def predict(self, batch: list[Any], options: Any) -> list[Text]:
        return [Text(self.answer(line)) for line in batch]

    @torch.no_grad()
    def answer(self, line: str) -> str:
        """Return the answer to one tape, a word of bits for each vector."""
        check_cancelled()
        tape = self.tape.read_line(line).to(next(self.model.parameters()).device)
        told = [word for word in line.partition("?")[0].split() if word.strip("01") == ""]
        if (cells := getattr(self.model.config, "cells", None)) is not None and len(told) > cells:
            log.warning(_too_long(len(told), cells))
        bits = (answer_logits(self.model, tape)[0, :, : self.tape.bits] > 0).long().tolist()
        return " ".join("".join(map(str, word)) for word in bits)
