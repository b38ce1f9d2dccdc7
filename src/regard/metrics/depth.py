"""Errors of predicted depth, over the pixels whose true depth is known.

    AbsRel = mean |d - d*| / d*            RMSE = √ mean (d - d*)²
    δ_k = share of pixels with max(d / d*, d* / d) < 1.25^k,  k = 1, 2, 3

Each is computed per image and averaged over the images, so an image with few known pixels counts like any other. The
depth of a pixel is unknown where it is not finite or not above 0, or where the given mask is False.

Eigen, Puhrsch, Fergus: Depth Map Prediction from a Single Image using a Multi-Scale Deep Network. NIPS 2014.
arXiv:1406.2283
"""

from __future__ import annotations

import torch

from regard.core.errors import BadInput
from regard.core.shapes import Bool, Float, Tensor
from regard.metrics.base import Metric, fraction

DEPTH_METRICS = (
    Metric("abs_rel", "AbsRel", higher_is_better=False, digits=4),
    Metric("rmse", "RMSE", "m", higher_is_better=False, digits=3),
    *(fraction(f"delta{k}", f"δ{k}") for k in (1, 2, 3)),
)


class DepthErrors:
    """AbsRel, RMSE (in the unit of the depth; metres as declared) and δ1 to δ3, accumulated over batches."""

    def __init__(self) -> None:
        self._sums = torch.zeros(len(DEPTH_METRICS), dtype=torch.float64)
        self._images = 0

    def update(
        self, depth: Float[Tensor, "B Y X"], true: Float[Tensor, "B Y X"], mask: Bool[Tensor, "B Y X"] | None = None
    ) -> None:
        """Add a batch of images; one without a known pixel is left out."""
        if depth.shape != true.shape or depth.ndim != 3:
            shapes = f"{tuple(depth.shape)} and {tuple(true.shape)}"
            raise BadInput(
                f"Predicted and true depth have shapes {shapes}; expected the same, (images, rows, columns)."
            )
        known = true.isfinite() & (true > 0)
        known = (known if mask is None else known & mask).flatten(1)
        found, true = depth.flatten(1).double().where(known, 1), true.flatten(1).double().where(known, 1)
        if not (found.isfinite() & (found > 0)).all():
            raise BadInput("Predicted depth must be finite and above 0 wherever the true depth is known; clamp it.")
        count = known.sum(1)
        ratio = torch.maximum(found / true, true / found)
        rows = [
            ((found - true).abs() / true).sum(1) / count,  # 0 where unknown: both depths are 1 there
            ((found - true).square().sum(1) / count).sqrt(),
            *(((ratio < 1.25**k) & known).sum(1) / count for k in (1, 2, 3)),
        ]
        self._sums = self._sums.to(depth.device) + torch.stack(rows)[:, count > 0].double().sum(1)
        self._images += int((count > 0).sum())

    def compute(self) -> dict[str, float]:
        """Return the numbers of `DEPTH_METRICS`."""
        if not self._images:
            raise BadInput("there is nothing to score: no image has a pixel of known depth")
        return dict(zip((m.key for m in DEPTH_METRICS), (self._sums / self._images).tolist(), strict=True))
