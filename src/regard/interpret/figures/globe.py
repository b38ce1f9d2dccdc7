"""The globe as a map of what a classifier of places says everywhere, with the place that was asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import torch

from regard import see
from regard.core.errors import UnknownName, Unsupported, did_you_mean
from regard.interpret.figures.base import InspectionFigure
from regard.modalities.classes import Classes

STEP = 2.0  # degrees of a cell of the map
TOP = 3  # labels that are printed


class GlobeFigure(InspectionFigure):
    """The probability of a label over the globe: of the likeliest at the place, or of the one that is asked for."""

    views: ClassVar[Mapping[str, Sequence[str]]] = {"map": ("label",)}

    @property
    def title(self) -> str:
        found = self.inspection.prediction
        return f"{self.inspection.place}: {found.label} ({100 * found.probability:.0f} %)"

    def text(self, width: int = 100) -> str:
        found = self.inspection.prediction
        if not isinstance(found, Classes):
            return str(found)
        best = list(found.probabilities.items())[:TOP]
        return f"{self.inspection.place}\n" + "   ".join(f"{name} {100 * share:.1f} %" for name, share in best)

    def save(self, file: Path) -> None:
        predictor, place = self.inspection.predictor, self.inspection.place
        if not hasattr(predictor, "probabilities"):
            raise Unsupported("There is no map of a model without probabilities of labels; the answer is printed.")
        label = self.options.label or self.inspection.prediction.label
        latitude = torch.arange(90 - STEP / 2, -90, -STEP)
        longitude = torch.arange(-180 + STEP / 2, 180, STEP)
        cells = torch.stack(torch.meshgrid(latitude, longitude, indexing="ij")[::-1], -1)
        shares = predictor.probabilities(cells.flatten(0, 1))[:, self._number(label)]
        shown = shares.view(len(latitude), len(longitude)).numpy()
        see.globe(shown, [(place.longitude, place.latitude)], self.title, f"probability of {label}", path=file)

    def _number(self, label: str) -> int:
        labels: list[str] = self.inspection.predictor.labels
        if label not in labels:
            raise UnknownName(f"the model has no label '{label}'; {did_you_mean(label, labels)}")
        return labels.index(label)
