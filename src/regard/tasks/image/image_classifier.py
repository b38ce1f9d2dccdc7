"""Image classification, ready to use: pictures in, labels with probabilities out.

    classify = ImageClassifier(model, ["cat", "dog"], Preprocess(224))
    classify("cat.jpg")                             Classes("cat", 0.98, {"cat": 0.98, "dog": 0.02})
    classify(["cat.jpg", picture, pixels])          a list: paths, bytes of files, PIL images, arrays, tensors
    classify.preprocess.view("cat.jpg")             the picture as the model sees it

Every picture is classified by itself, whatever else is in the batch. One that cannot be read is an error that names it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from regard.attention.capture.watch import watch
from regard.core.cancellation import check_cancelled
from regard.core.config import from_dict
from regard.core.errors import BadInput
from regard.core.trace import Trace
from regard.modalities.classes import Classes
from regard.modalities.image import Image, Preprocess
from regard.tasks.predictor import Predictor

BATCH_PIXELS = 2**22  # pixels that go through a model at a time


class ImageClassifier(Predictor):
    """An image model with its labels and its preprocessing."""

    inputs = {"image": Image}  # noqa: RUF012
    outputs = Classes

    def __init__(self, model: nn.Module, labels: Sequence[str], preprocess: Preprocess | Mapping[str, Any]) -> None:
        if isinstance(preprocess, Mapping):
            preprocess = from_dict(Preprocess, preprocess)
        classes = getattr(getattr(model, "config", None), "num_classes", None)
        if classes is not None and len(labels) != classes:
            raise BadInput(f"The model has {classes:,} classes, got {len(labels):,} labels; give one for each class.")
        self.model, self.labels, self.preprocess = model.eval(), list(labels), preprocess

    def predict(self, batch: list[Any], options: Any) -> list[Classes]:
        found: list[Classes] = []
        height, width = self.preprocess.size
        size, weight = max(1, BATCH_PIXELS // (height * width)), next(self.model.parameters())
        for begin in range(0, len(batch), size):
            check_cancelled()
            with torch.no_grad():
                logits = self.model(self.preprocess.batch(batch[begin : begin + size], weight))
            found += [Classes.rank(self.labels, row) for row in logits.float().softmax(-1).tolist()]
        return found

    def attention(self, image: Any) -> list[Trace]:
        """Return the attention maps of all layers for one image."""
        with torch.no_grad(), watch(self.model) as seen:
            self.model(self.preprocess(image, next(self.model.parameters())))
        return seen.traces()
