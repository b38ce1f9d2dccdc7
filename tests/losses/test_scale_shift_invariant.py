"""The scale-and-shift-invariant loss against a loop, and what it must not depend on."""

import pytest
import torch

from regard.core.errors import BadInput
from regard.losses import fit_scale_and_shift, scale_shift_invariant_loss


def inputs(batch=3, rows=11, columns=7):
    torch.manual_seed(0)
    depth = torch.rand(batch, rows, columns).double().requires_grad_()
    true = torch.rand(batch, rows, columns).double()
    mask = torch.rand(batch, rows, columns) > 0.3
    return depth, true, mask


def by_loops(depth, true, mask, weight, scales):
    """Image by image, pixel by pixel, with least squares of torch."""
    residuals = []
    for d, t, m in zip(depth, true, mask, strict=True):
        design = torch.stack([d[m], torch.ones_like(d[m])], 1)
        s, shift = torch.linalg.lstsq(design, t[m, None]).solution[:, 0]
        residuals.append(s * d + shift - t)
    total = sum((r[m] ** 2).sum() for r, m in zip(residuals, mask, strict=True)) / (2 * mask.sum())
    for k in range(scales):
        step, edges, count = 2**k, 0, 0
        for r, m in zip(residuals, mask, strict=True):
            r, m = r[::step, ::step], m[::step, ::step]
            count += int(m.sum())
            for y in range(len(r)):
                for x in range(len(r[0])):
                    for v, u in ((y + 1, x), (y, x + 1)):
                        if v < len(r) and u < len(r[0]) and m[y, x] and m[v, u]:
                            edges = edges + (r[v, u] - r[y, x]).abs()
        total = total + weight * edges / count
    return total


def test_value_and_gradient_equal_a_loop():
    depth, true, mask = inputs()
    found = scale_shift_invariant_loss(depth, true, mask)
    wanted = by_loops(depth, true, mask, 0.5, 4)
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)
    mine, theirs = (torch.autograd.grad(loss, depth)[0] for loss in (found, wanted))
    torch.testing.assert_close(mine, theirs, rtol=1e-8, atol=1e-12)
    assert mine.abs().max() > 1e-4


def test_a_scale_and_a_shift_of_each_prediction_change_nothing():
    depth, true, mask = inputs()
    by = torch.tensor([0.5, 3.0, 20.0]).double()[:, None, None]
    loss = scale_shift_invariant_loss(depth, true, mask)
    torch.testing.assert_close(scale_shift_invariant_loss(depth * by + 7 * by, true, mask), loss, rtol=1e-9, atol=0)
    assert scale_shift_invariant_loss(true * by - 2, true, mask) < 1e-12


def test_what_is_unknown_has_no_influence():
    depth, true, mask = inputs()
    loss = scale_shift_invariant_loss(depth, true, mask)
    with torch.no_grad():
        other = depth.where(mask, 1e6)
    torch.testing.assert_close(scale_shift_invariant_loss(other, true.where(mask, torch.nan)), loss)
    (gradient,) = torch.autograd.grad(scale_shift_invariant_loss(depth, true.where(mask, torch.inf)), depth)
    assert not gradient[~mask].any()
    assert gradient.isfinite().all()


def test_images_without_known_pixels_and_constant_predictions_are_finite():
    depth, true, mask = inputs()
    mask = mask.clone()
    mask[1] = False
    alone = scale_shift_invariant_loss(depth[[0, 2]], true[[0, 2]], mask[[0, 2]])
    torch.testing.assert_close(scale_shift_invariant_loss(depth, true, mask), alone)
    flat = torch.full_like(depth, 0.3).requires_grad_()
    scale, shift = fit_scale_and_shift(flat, true, mask)
    assert not scale.any()
    torch.testing.assert_close(shift[0], true[0][mask[0]].mean())
    for known in (mask, torch.zeros_like(mask)):
        loss = scale_shift_invariant_loss(flat, true, known)
        (gradient,) = torch.autograd.grad(loss, flat)
        assert loss.isfinite()
        assert gradient.isfinite().all()
    assert loss == 0
    assert scale_shift_invariant_loss(depth[:0], true[:0]) == 0


def test_half_precision_is_summed_in_float32_and_shapes_are_checked():
    depth, true, _ = inputs()
    exact = scale_shift_invariant_loss(depth.half().double(), true.half().double())
    loss = scale_shift_invariant_loss(depth.half(), true.half())
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss.double(), exact, rtol=1e-4, atol=0)
    with pytest.raises(BadInput, match="expected the same"):
        scale_shift_invariant_loss(depth, true[:, :-1])
