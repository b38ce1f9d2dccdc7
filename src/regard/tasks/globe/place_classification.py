"""Place classification: the class of a place on the globe, such as land or ocean.

    objective    cross-entropy of the label, summed over the places
    metric       accuracy, in all and by latitude: up to 30 degrees, 30 to 60, beyond 60; loss (nats per place)
    decoding     none
    predict      `PlaceClassifier`: places in, labels with their probabilities out

Rußwurm et al.: Geographic Location Encoding with Spherical Harmonics and Sinusoidal Representation Networks. ICLR 2024.
arXiv:2310.06743
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from regard.core.cancellation import check_cancelled
from regard.core.shapes import Float, Tensor
from regard.metrics.base import ACCURACY, fraction, loss_metric
from regard.modalities.classes import Classes
from regard.modalities.place import Place
from regard.tasks.base import SplitTask, call_with_state
from regard.tasks.predictor import Predictor, check_label_count, config_value

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


class PlaceClassifier(Predictor):
    """Places on the globe in, labels with their probabilities out.

    classify = PlaceClassifier(model, ["ocean", "land"])
    classify("48.86 N, 2.35 E")                             Classes("land", 0.99, {"land": 0.99, "ocean": 0.01})
    """

    inputs = {"place": Place}  # noqa: RUF012
    outputs = Classes
    examples = ("48.86 N, 2.35 E", "0, 160 W")

    def __init__(self, model: nn.Module, labels: Sequence[str]) -> None:
        check_label_count(labels, config_value(model, "num_outputs"))
        self.model, self.labels = model.eval(), list(labels)

    @torch.no_grad()
    def predict(self, batch: list[Any], options: Any) -> list[Classes]:
        places = torch.tensor([(place.longitude, place.latitude) for place in batch])
        rows = self.probabilities(places.reshape(-1, 2)).tolist()
        return [Classes.rank(self.labels, row) for row in rows]

    @torch.no_grad()
    def probabilities(self, places: Float[Tensor, "N 2"]) -> Float[Tensor, "N K"]:
        """Return the probability of every label at places (longitude, latitude) in degrees."""
        device = next(self.model.parameters()).device
        found = []
        for some in places.split(ROWS):
            check_cancelled()
            found.append(self.model(some.to(device)).float().softmax(-1).cpu())
        return torch.cat(found)
