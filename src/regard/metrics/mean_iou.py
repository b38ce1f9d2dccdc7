"""Mean intersection over union of a map of classes, from a confusion matrix over all pixels of all images.

    IoU of a class = TP / (TP + FP + FN)        its pixels in truth and prediction, over those in either
    mIoU = mean over the classes that occur in either
    pixel accuracy = pixels that are right / all pixels;  mean accuracy = mean over the true classes of their recall

Everingham, Van Gool, Williams, Winn, Zisserman: The PASCAL Visual Object Classes Challenge. IJCV 2010
"""

from __future__ import annotations

import torch

from regard.core.errors import BadInput
from regard.core.shapes import Float, Int, Tensor
from regard.metrics.base import fraction

SEGMENTATION_METRICS = (
    fraction("miou", "mIoU"),
    fraction("pixel_accuracy", "pixel accuracy"),
    fraction("mean_accuracy", "mean accuracy"),
)
# The same, of the points of clouds.
POINT_SEGMENTATION_METRICS = (
    fraction("miou", "mIoU"),
    fraction("point_accuracy", "point accuracy"),
    fraction("mean_accuracy", "mean accuracy"),
)


class MeanIoU:
    """mIoU and accuracies, accumulated over batches on the device of the predictions.

    Args:
        num_classes: classes are 0 to num_classes - 1.
        ignore_index: the true value of pixels that do not count.
    """

    def __init__(self, num_classes: int, ignore_index: int = 255) -> None:
        self.num_classes, self.ignore_index = num_classes, ignore_index
        self.confusion = torch.zeros(num_classes, num_classes, dtype=torch.int64)  # truth, prediction

    def update(self, predictions: Int[Tensor, "..."], targets: Int[Tensor, "..."]) -> None:
        """Add the classes of any number of pixels."""
        if predictions.shape != targets.shape:
            shapes = f"{tuple(predictions.shape)} and {tuple(targets.shape)}"
            raise BadInput(f"Predicted and true classes have shapes {shapes}; expected the same.")
        counted = targets != self.ignore_index
        predictions, targets = predictions[counted].long(), targets[counted].long()
        for name, values in (("Predicted", predictions), ("True", targets)):
            if values.numel() and not 0 <= int(values.min()) <= int(values.max()) < self.num_classes:
                bounds = f"0 to {self.num_classes - 1}, got {int(values.min())} to {int(values.max())}"
                raise BadInput(
                    f"{name} classes must be {bounds}; pixels to ignore are {self.ignore_index} in the truth."
                )
        pairs = torch.bincount(targets * self.num_classes + predictions, minlength=self.num_classes**2)
        self.confusion = self.confusion.to(pairs.device) + pairs.view_as(self.confusion)

    def compute(self) -> dict[str, float]:
        """Return the numbers of `SEGMENTATION_METRICS`."""
        total = self.confusion.sum().item()
        if not total:
            raise BadInput("there is nothing to score")
        right, true = self.confusion.diag().double(), self.confusion.sum(1)
        return {
            "miou": self.compute_by_class().nanmean().item(),
            "pixel_accuracy": right.sum().item() / total,
            "mean_accuracy": (right / true).nanmean().item(),
        }

    def compute_by_class(self) -> Float[Tensor, "K"]:
        """Return the IoU of every class; NaN for one that occurs in neither truth nor prediction."""
        right = self.confusion.diag().double()
        return right / (self.confusion.sum(0) + self.confusion.sum(1) - right)
