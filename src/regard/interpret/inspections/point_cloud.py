"""Inspection of a predictor that reads a point cloud: its tokens as points in space, as the model was shown them.

Maps of all stages are on the points of the input: a point that a stage has not kept has empty rows and columns. Vector
attention has a map for every channel, which stand where heads do.
"""

from __future__ import annotations

import torch

from regard.interpret.inspection import Axis
from regard.interpret.inspections.declared import DeclaredInspection


class PointCloudInspection(DeclaredInspection):
    """A point cloud and the output of a predictor."""

    input_axis = "points"
    figure = "point_cloud"

    def show(self) -> None:
        self.cloud = next(iter(self.item.values())) if isinstance(self.item, dict) else self.item
        preprocess = getattr(self.predictor, "preprocess", None)
        self.points: torch.Tensor = self.cloud.points if preprocess is None else preprocess(self.cloud)
        self.model_inputs = (self.points[None].to(next(self.predictor.model.parameters())),)

    def predict_and_capture(self) -> None:
        """Make the prediction, and store the maps of the points shown: a large cloud may take several passes."""
        if len(self.points) == len(self.cloud):
            super().predict_and_capture()
            return
        (self.prediction,) = self.predictor.predict([self.item], self.options)
        self._capture(lambda: self.predictor.model(*self.model_inputs))

    def lay_out(self) -> None:
        positions = [{"point": [round(x, 4) for x in point]} for point in self.points.tolist()]
        numbers = [str(n) for n in range(1, len(positions) + 1)]
        self.axes["points"] = Axis("points", numbers, positions, [False] * len(numbers))
        for held in self.store.values():
            self._axes_of[held.name] = self._side(held.rows), self._side(held.columns)

    def _side(self, many: int) -> str:
        return "points" if many == len(self.points) else self._numbered(many)
