import torch

from regard.modalities.box_geometry import (
    area,
    centres_to_corners,
    corners_to_centres,
    generalized_iou,
    intersection,
    iou,
    xywh_to_corners,
)
from regard.modalities.boxes import Box


def random_corners(*shape):
    low = torch.rand(*shape, 2, dtype=torch.float64) * 5
    return torch.cat([low, low + torch.rand_like(low) * 4], -1)


def test_conversions_are_inverse_and_say_what_they_mean():
    boxes = random_corners(7, 3)
    torch.testing.assert_close(centres_to_corners(corners_to_centres(boxes)), boxes)
    assert corners_to_centres(torch.tensor([1.0, 2, 5, 10])).tolist() == [3, 6, 4, 8]
    assert xywh_to_corners(torch.tensor([1.0, 2, 4, 8])).tolist() == [1, 2, 5, 10]


def test_overlaps_equal_torchvisions_and_those_of_box():
    ops = __import__("torchvision.ops").ops
    a, b = random_corners(9), random_corners(5)
    torch.testing.assert_close(area(a), ops.box_area(a))
    torch.testing.assert_close(iou(a[:, None], b), ops.box_iou(a, b))
    torch.testing.assert_close(generalized_iou(a[:, None], b), ops.generalized_box_iou(a, b))
    for x, y in zip(a[:5], b, strict=True):
        ours, theirs = iou(x, y).item(), Box(*x.tolist(), "a").iou(Box(*y.tolist(), "b"))
        assert abs(ours - theirs) < 1e-12


def test_gradient_of_generalized_iou():
    a, b = random_corners(6), random_corners(6)
    assert torch.autograd.gradcheck(generalized_iou, (a.requires_grad_(), b.requires_grad_()))


def test_empty_boxes_have_finite_values_and_gradients():
    a = torch.tensor([[1.0, 1, 1, 1], [1, 1, 1, 4], [1, 1, 3, 3]], requires_grad=True)
    b = torch.tensor([[1.0, 1, 1, 1], [1, 1, 1, 4], [2, 2, 2, 2]])
    value = generalized_iou(a[:, None], b)
    (gradient,) = torch.autograd.grad(value.sum(), a)
    assert value.isfinite().all()
    assert gradient.isfinite().all()
    assert value[0, 0] == 0
    assert intersection(a[2], b[2]) == 0
