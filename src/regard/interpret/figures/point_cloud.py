"""A point cloud, coloured by how much attention each point gets in a layer, or by the labels of its points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from regard import see
from regard.core.errors import BadInput
from regard.interpret.figures.base import ClassesFigure, last_or
from regard.modalities.point_labels import PointLabels
from regard.see.outputs import draw_output

ROWS = 128  # of a map that are made at once


class PointCloudFigure(ClassesFigure):
    """The weight that each point gets from all others, the mean of a layer's channels or one of them, or its label."""

    views: ClassVar[Mapping[str, Sequence[str]]] = {"points": ("layer", "head"), "labels": ()}

    def save(self, file: Path) -> None:
        points, output = self.inspection.points.numpy(), self.inspection.prediction
        maps = list(self.inspection.store.values())
        has_labels = isinstance(output, PointLabels)
        if self.options.view == "labels" and not has_labels:
            raise BadInput(f"--view labels needs a model with a label for every point; this one has {output.kind}.")
        if has_labels and (self.options.view == "labels" or not maps):
            draw_output(self.inspection.cloud, output, self.title, file)
            return
        if not maps:
            see.point_cloud(points, None, self.title, self.inspection.note, path=file)
            return
        held = maps[last_or("layer", self.options.layer, len(maps))]
        channels = list(range(held.heads))
        if self.options.head is not None:
            channels = [last_or("channel", self.options.head, held.heads)]
        received = np.zeros(len(points))
        for rows in np.array_split(np.arange(len(points)), max(1, len(points) // ROWS)):
            received += held.rows_of(rows.tolist(), channels)[0].mean(0).sum(0).float().cpu().numpy()
        which = "mean of the channels" if self.options.head is None else f"channel {self.options.head}"
        caption = f"{held.name}, {which}: the sum of the weights that each point gets; one point gives 1 in all"
        see.point_cloud(points, received, self.title, caption, path=file)
