"""Inspection of an image classifier: `ImageInspection` with relevance for a label.

A convolutional network has no attention. Its maps are Grad-CAM and LayerCAM (interpret.convolution_maps), a row for
each of the likeliest labels: the share of every cell in the sum.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from regard.attention.capture.map_store import StoredMap
from regard.core.errors import BadInput, Unsupported
from regard.interpret.convolution_maps import has_convolution_maps, maps_of_labels
from regard.interpret.image_attribution import run_with_attribution
from regard.interpret.inspection import NO_POSITION, Axis
from regard.interpret.inspections.image import Boxes, ImageInspection
from regard.interpret.inspections.rollout import require_gradients
from regard.see.pixel_attribution import PixelAttribution
from regard.tasks.image.image_classification import ImageClassifier

TOP_LABELS = 10  # labels that are shown
MAPPED_LABELS = 5  # of a network without attention
FINER = 4  # cells of LayerCAM to one of Grad-CAM, along a side


class ImageClassificationInspection(ImageInspection):
    """An image and its label; relevance is for a label."""

    figure = "pixel_attribution"
    predictor: ImageClassifier

    def read(self) -> None:
        super().read()
        self.output["probabilities"] = dict([*self.output["probabilities"].items()][:TOP_LABELS])
        if not self.store and has_convolution_maps(self.predictor.model):
            self._add_convolution_maps()

    def _add_convolution_maps(self) -> None:
        """Store Grad-CAM and LayerCAM of the likeliest labels."""
        self.prefix, many = 0, min(MAPPED_LABELS, len(self.predictor.labels))
        try:
            found, classes = maps_of_labels(
                self.predictor, self.item, lambda logits: logits.topk(many).indices.tolist()
            )
        except Unsupported:  # no grids that a gradient reaches: the output alone
            return
        self.note = ""
        labels = [*classes.probabilities][:many]
        self.axes["labels"] = Axis("labels", labels, [NO_POSITION] * many, [False] * many)
        rows, columns = found[0].grids[-1].shape[1:]
        for name, finer in (("gradcam", 1), ("layercam", FINER)):
            maps = torch.stack([each.grad_cam() if finer == 1 else each.relevance() for each in found])
            cells = F.adaptive_avg_pool2d(maps, (finer * rows, finer * columns)).flatten(1)
            shares = cells / cells.sum(1, keepdim=True).clamp(min=1e-12)
            self.store.add(StoredMap(name=name, kind=name, heads=1, normalised=False, recorded=(shares[None, None],)))
            self._axes_of[name] = "labels", self._side(_grid_boxes(*self.size, finer * rows, finer * columns))
        self.input_axis = self._axes_of["gradcam"][1]

    @property
    def targets(self) -> list[str]:
        """Every label."""
        return self.predictor.labels if self.small and self._last else []

    def relevance(self, target: int) -> np.ndarray:
        """Return the relevance of each patch for a label."""
        if not 0 <= target < len(self.predictor.labels):
            raise BadInput(f"there is no label {target}; there are 0 to {len(self.predictor.labels) - 1}")
        self._check_size()
        require_gradients(self.predictor.model)
        values = self.preprocess(self.item, next(self.predictor.model.parameters()))
        with self._with_interventions():
            sight: PixelAttribution = run_with_attribution(self.predictor.model, values, True, target)[0]
        return self._on_patches(sight.relevance())


def _grid_boxes(height: int, width: int, rows: int, columns: int) -> Boxes:
    """Return the boxes of a grid of cells that covers a picture, in pixels."""
    y, x = (torch.arange(n + 1) * side // n for n, side in ((rows, height), (columns, width)))
    top, left = torch.meshgrid(y[:-1], x[:-1], indexing="ij")
    low, right = torch.meshgrid(y[1:], x[1:], indexing="ij")
    return torch.stack([left, top, right, low], -1).flatten(0, 1)
