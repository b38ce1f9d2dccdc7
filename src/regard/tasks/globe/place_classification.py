"""Place classification: the class of a place on the globe, such as land or ocean.

    objective    cross-entropy of the label, summed over the places
    metric       accuracy, in all and by latitude: up to 30 degrees, 30 to 60, beyond 60; loss (nats per place)
    decoding     none

Rußwurm et al.: Geographic Location Encoding with Spherical Harmonics and Sinusoidal Representation Networks. ICLR 2024.
arXiv:2310.06743
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from regard.core.shapes import Float, Tensor
from regard.metrics.base import ACCURACY, fraction, loss_metric
from regard.tasks.base import SplitTask, call_with_state

BANDS = {"low_latitudes": (0, 30), "middle_latitudes": (30, 60), "high_latitudes": (60, 91)}  # degrees
ROWS = 4096  # places of a batch of `evaluate`


@dataclass(frozen=True)
class Config:
    """Settings of training."""

    def build(self, data: Any, seed: int = 0, folder: Path | None = None) -> PlaceClassification:
        """Return the task on these data."""
        return PlaceClassification(self, data, seed)


class PlaceClassification(SplitTask[Any]):
    """Train and evaluate a classifier of places."""

    metrics = (
        ACCURACY,
        *(fraction(name, f"accuracy, {name.replace('_', ' ')}") for name in BANDS),
        loss_metric("nats per place"),
    )
    split_size, unit, name = "places", "places", "place_classification"

    def __init__(self, config: Config, data: Any, seed: int = 0) -> None:
        super().__init__(data, seed)
        self.config, self.labels = config, data.labels()

    def fit(self, config: Any) -> Any:
        return replace(config, num_outputs=len(self.labels))

    def loss(
        self, model: nn.Module, batch: Any, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        logits, pass_state = call_with_state(model, batch.places)
        total = F.cross_entropy(logits.float(), batch.labels, reduction="sum")
        return self.with_layer_losses(total, batch, pass_state), {"loss": total.detach()}

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """Return the metrics of a model on a split, and how many places it has."""
        part, device = self.dataset(split), next(model.parameters()).device
        model.eval()
        loss, right, latitude = 0.0, list[Tensor](), list[Tensor]()
        for some in part.eval_batches(ROWS):
            batch = some.to(device)
            logits = model(batch.places).float()
            loss += float(F.cross_entropy(logits, batch.labels, reduction="sum"))
            right.append((logits.argmax(-1) == batch.labels).cpu())
            latitude.append(batch.places[:, 1].abs().cpu())
        hits, away = torch.cat(right).double(), torch.cat(latitude)
        found: dict[str, Any] = {"loss": loss / len(part), "accuracy": float(hits.mean())}
        for name, (low, high) in BANDS.items():
            inside = (away >= low) & (away < high)
            found[name] = float(hits[inside].mean()) if bool(inside.any()) else 0.0
        return found | {"places": len(part)}

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "labels": self.labels}

    def card(self) -> str:
        train: Any = self.dataset("train")
        return f"{self.data.title()}, {len(train):,} places to train on, {len(self.labels)} labels"
