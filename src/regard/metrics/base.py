"""Metric: a number that a task reports, declared once beside the task.

    metrics = (error_rate("wer", "WER", scale=100), loss_metric("nats per label"))

The first metric of a task is its primary one. ``regard eval``, the training log, the terminal plot, the training curve
and the results page take names, units and directions from here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Metric:
    """One number of an evaluation.

    Args:
        key: its key in reports and in metrics.jsonl.
        name: its usual name.
        unit: "%", "nats per token", "bits per byte", ...; "" for a pure number.
        higher_is_better: the direction; None for a number that is neither good nor bad.
        low, high: the range of the stored value; None: unbounded.
        scale: the stored value times this is shown: 100 for a fraction that is shown in per cent.
        digits: decimal places shown.
    """

    key: str
    name: str
    unit: str = ""
    higher_is_better: bool | None = True
    low: float | None = 0.0
    high: float | None = None
    scale: float = 1.0
    digits: int = 2

    @property
    def label(self) -> str:
        """Name and unit, as the head of a column: "WER %", "loss (nats per token)"."""
        return (
            f"{self.name} {self.unit}" if self.unit == "%" else f"{self.name} ({self.unit})" if self.unit else self.name
        )

    def format(self, value: float, unit: bool = True) -> str:
        """Return a stored value as people read it: "4.31 %", "3.2147 nats per token"."""
        if value is None or not math.isfinite(value):
            return "not finite"
        shown = round(value * self.scale, self.digits) + 0.0  # no minus before a zero
        text = f"{shown:,.{self.digits}f}"
        return f"{text} {self.unit}" if unit and self.unit else text

    def best(self, values: Sequence[float] | np.ndarray) -> int | None:
        """Return the index of the best value; None where the metric has no direction."""
        if self.higher_is_better is None or not len(values):
            return None
        pick = max if self.higher_is_better else min
        return pick(range(len(values)), key=lambda i: values[i])

    def is_better(self, new: float, old: float) -> bool:
        """Return whether a value is better than another."""
        return new > old if self.higher_is_better else new < old


def loss_metric(unit: str, key: str = "loss", name: str = "loss") -> Metric:
    """Return the metric of a loss, counted per something: "nats per token"."""
    return Metric(key, name, unit, higher_is_better=False, low=None, digits=4)


def find_metric(metrics: Iterable[Metric], key: str) -> Metric | None:
    """Return the metric of a key of a report or of metrics.jsonl, or None.

    A part of a metric has its unit and direction: "exact_match_20" (of examples of 20 digits), "forward_loss". A loss
    is known without a declaration.
    """
    known = sorted(metrics, key=lambda metric: -len(metric.key))
    for metric in known:
        if metric.key == key:
            return metric
    for metric in known:
        if key.startswith(f"{metric.key}_"):
            return replace(metric, key=key, name=f"{metric.name} {key[len(metric.key) + 1 :].replace('_', ' ')}")
        if key.endswith(f"_{metric.key}"):
            return replace(metric, key=key, name=f"{key[: -len(metric.key) - 1].replace('_', ' ')} {metric.name}")
    return loss_metric("", key, key.replace("_", " ")) if key == "loss" or key.endswith("_loss") else None


def describe_metrics(metrics: Sequence[Metric], values: Mapping[str, object]) -> str:
    """Return the numbers of a report that are declared metrics, as one line."""
    found = [(find_metric(metrics, key), value) for key, value in values.items() if isinstance(value, float)]
    return "  ".join(f"{metric.name} {metric.format(value)}" for metric, value in found if metric is not None)


# -- usual metrics -----------------------------------------------------------------------------------------------------


def fraction(key: str, name: str, higher_is_better: bool = True) -> Metric:
    """Return the metric of a fraction from 0 to 1 that is shown in per cent."""
    return Metric(key, name, "%", higher_is_better, high=1.0, scale=100)


def score(key: str, name: str) -> Metric:
    """Return the metric of a score from 0 to 100."""
    return Metric(key, name, high=100.0)


def error_rate(key: str, name: str, scale: float = 1.0) -> Metric:
    """Return the metric of an error rate, stored in per cent or (scale=100) as a fraction; it may exceed 100 %."""
    return Metric(key, name, "%", higher_is_better=False, scale=scale)


ACCURACY = fraction("accuracy", "accuracy")
F1, PRECISION, RECALL = (
    fraction(key, name) for key, name in (("f1", "F1"), ("precision", "precision"), ("recall", "recall"))
)
EXACT_MATCH = fraction("exact_match", "exact match")
PERPLEXITY = Metric("perplexity", "perplexity", higher_is_better=False, low=1.0)
BITS_PER_BYTE = Metric("bits_per_byte", "bits per byte", higher_is_better=False, digits=4)
BLEU, CHRF = score("bleu", "BLEU"), score("chrf", "chrF")
