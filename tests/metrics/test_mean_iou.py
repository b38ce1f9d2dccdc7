import math

import pytest
import torch

from regard.core.errors import BadInput
from regard.metrics.mean_iou import SEGMENTATION_METRICS, MeanIoU


def test_equals_a_loop_over_classes_and_accumulates():
    found, true = torch.randint(5, (2, 3, 7, 9))
    true[torch.rand(true.shape) < 0.2] = 255
    true[true == 3], found[found == 3] = 2, 1  # class 3 does not occur
    metric = MeanIoU(5)
    for a, b in zip(found, true, strict=True):
        metric.update(a, b.to(torch.uint8))
    counted = true != 255
    ious, recalls = [], []
    for k in (0, 1, 2, 4):
        a, b = (found == k) & counted, true == k
        ious.append(((a & b).sum() / (a | b).sum()).item())
        recalls.append(((a & b).sum() / b.sum()).item())
    by_class = metric.compute_by_class()
    assert math.isnan(by_class[3])
    assert by_class[[0, 1, 2, 4]].tolist() == pytest.approx(ious)
    expected = {
        "miou": sum(ious) / 4,
        "pixel_accuracy": (found == true)[counted].float().mean().item(),
        "mean_accuracy": sum(recalls) / 4,
    }
    assert metric.compute() == pytest.approx(expected)
    assert list(expected) == [each.key for each in SEGMENTATION_METRICS]


def test_a_class_that_is_only_predicted_counts_as_zero():
    metric = MeanIoU(3)
    metric.update(torch.tensor([0, 1]), torch.tensor([0, 0]))
    assert metric.compute() == {"miou": 0.25, "pixel_accuracy": 0.5, "mean_accuracy": 0.5}


def test_bad_input_is_refused():
    metric = MeanIoU(3, ignore_index=-100)
    with pytest.raises(BadInput, match="nothing to score"):
        metric.compute()
    with pytest.raises(BadInput, match="True classes must be 0 to 2, got 1 to 255"):
        metric.update(torch.tensor([0, 1]), torch.tensor([255, 1]))
    with pytest.raises(BadInput, match="Predicted classes must be 0 to 2, got -1"):
        metric.update(torch.tensor([-1, 1]), torch.tensor([1, 1]))
    with pytest.raises(BadInput, match="shapes"):
        metric.update(torch.zeros(2, 2).long(), torch.zeros(2, 3).long())
    metric.update(torch.tensor([-1, 1]), torch.tensor([-100, 1]))  # what is ignored may be anything
    assert metric.compute()["miou"] == 1
