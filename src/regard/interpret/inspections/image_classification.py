"""Inspection of an image classifier: `ImageInspection` with relevance for a label."""

from __future__ import annotations

import numpy as np

from regard.core.errors import BadInput
from regard.interpret.image_attribution import run_with_attribution
from regard.interpret.inspections.image import ImageInspection
from regard.interpret.inspections.rollout import require_gradients
from regard.see.pixel_attribution import PixelAttribution
from regard.tasks.image.image_classification import ImageClassifier

TOP_LABELS = 10  # labels that are shown


class ImageClassificationInspection(ImageInspection):
    """An image and its label; relevance is for a label."""

    figure = "pixel_attribution"
    predictor: ImageClassifier

    def read(self) -> None:
        super().read()
        self.output["probabilities"] = dict([*self.output["probabilities"].items()][:TOP_LABELS])

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
