"""Scale-and-shift-invariant loss: inverse depth is compared after the best linear fit to the truth, image by image.

    (s, t) = argmin Σ (s d + t - d*)²            over the known pixels of an image, in closed form
    R      = s d + t - d*
    data      Σ R² / 2M                          M: known pixels
    gradient  Σ_k Σ (|∇x R_k| + |∇y R_k|) / M_k  k = 0..3: every 2^k-th row and column, so that edges stay sharp

Data sets whose depth is known up to a scale and a shift (stereo without calibration, films) can be mixed, and so can
disparity and inverse depth. A difference counts where both of its pixels are known. The loss is the sum over all images
divided by all known pixels of the batch, as the authors do, so an image counts by its known pixels. s and t depend on
the prediction, and the gradient flows through them.

Ranftl, Lasinger, Hafner, Schindler, Koltun: Towards Robust Monocular Depth Estimation (MiDaS). TPAMI 2022.
arXiv:1907.01341
"""

from __future__ import annotations

import torch

from regard.core.errors import BadInput
from regard.core.shapes import Bool, Float, Tensor


def scale_shift_invariant_loss(
    depth: Float[Tensor, "B Y X"],
    true: Float[Tensor, "B Y X"],
    mask: Bool[Tensor, "B Y X"] | None = None,
    gradient_weight: float = 0.5,
    scales: int = 4,
) -> Float[Tensor, ""]:
    """Return the loss of inverse depths, 0 if no pixel is known.

    Args:
        depth: predicted inverse depth, of any scale and shift.
        true: true inverse depth (or disparity); a pixel that is not finite is unknown.
        mask: True where the truth is known.
        gradient_weight: weight of the gradient term.
        scales: number of resolutions of the gradient term.
    """
    if depth.shape != true.shape or depth.ndim != 3:
        shapes = f"{tuple(depth.shape)} and {tuple(true.shape)}"
        raise BadInput(f"Predicted and true depth have shapes {shapes}; expected the same, (images, rows, columns).")
    known = true.isfinite() if mask is None else true.isfinite() & mask
    exact = torch.promote_types(depth.dtype, torch.float32)
    found, wanted = depth.to(exact), true.to(exact).where(known, 0)
    scale, shift = fit_scale_and_shift(found, wanted, known)
    residual = (scale[:, None, None] * found + shift[:, None, None] - wanted).where(known, 0)
    loss = residual.square().sum() / (2 * known.sum()).clamp(min=1)
    for k in range(scales if gradient_weight else 0):
        step = 2**k
        loss = loss + gradient_weight * _gradient_loss(residual[:, ::step, ::step], known[:, ::step, ::step])
    return loss


def fit_scale_and_shift(
    depth: Float[Tensor, "B Y X"], true: Float[Tensor, "B Y X"], known: Bool[Tensor, "B Y X"]
) -> tuple[Float[Tensor, "B"], Float[Tensor, "B"]]:
    """Return the scale and shift of every image with the least squared error over its known pixels.

    Where the prediction is constant, the scale is 0 and the shift the mean of the truth; both are 0 where nothing is
    known.
    """
    weight = known.to(depth.dtype)
    count = weight.sum((1, 2)).clamp(min=1)

    def mean(x: Tensor) -> Tensor:
        return (x * weight).sum((1, 2)) / count

    of_depth, of_true = mean(depth), mean(true.where(known, 0))
    centred = (depth - of_depth[:, None, None]) * weight
    variance = mean(centred.square())
    covariance = mean(centred * true.where(known, 0))
    tiny = torch.finfo(depth.dtype).eps * mean(depth.square())  # a constant, up to rounding
    scale = torch.where(variance > tiny, covariance / variance.where(variance > tiny, 1), 0)
    return scale, of_true - scale * of_depth


def _gradient_loss(residual: Float[Tensor, "B y x"], known: Bool[Tensor, "B y x"]) -> Float[Tensor, ""]:
    """Return the sum of absolute differences between neighbours that are both known, per known pixel."""
    total = residual.new_zeros(())
    for axis in (1, 2):
        both = known.narrow(axis, 1, known.shape[axis] - 1) & known.narrow(axis, 0, known.shape[axis] - 1)
        total = total + residual.diff(dim=axis).abs().where(both, 0).sum()
    return total / known.sum().clamp(min=1)
