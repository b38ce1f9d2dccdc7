"""The domain of pictures: colours, contrasts and layout as the training pictures have them.

A picture, as the model sees it, becomes about a hundred numbers: the shares of differences between pixels 1, 2 and 4
apart, side by side and one above the other, that fall into seven sizes (texture); the shares of brightness in eight
steps, in each channel; of saturation in six; and the mean brightness in 8 x 8 cells (layout). The square root of
a share has about the same variance everywhere (Hellinger).

    surprise = (x - m)ᵀ C⁻¹ (x - m)         m, C: mean and covariance of the training pictures

It knows nothing of the model, so it says that a picture looks different, not that the answer is wrong: a photo of
another kind of clothing on black passes. On Fashion-MNIST it finds more of what is foreign than the maximum
probability, the energy or the Mahalanobis distance of the model's own features (docs/notes/2026-11-19.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from regard.modalities.domain import Domain, quantile

if TYPE_CHECKING:
    from regard.modalities.image import Preprocess

RIDGE = 1e-4  # added to the variances
CELLS = 8
STEPS = (1, 2, 4)  # pixels apart
DIFFERENCES = (0, 1, 3, 8, 16, 32, 64, 256)  # of grey values
SATURATIONS = (0, 2, 8, 24, 64, 128, 256)
MAX_FEATURES = 512


@dataclass(frozen=True, eq=False)
class ImageDomain(Domain):
    """Mean of the features of the training pictures, and `factor` L: the inverse of their covariance is L Lᵀ."""

    mean: np.ndarray
    factor: np.ndarray
    preprocess: Preprocess | None = None  # how the model sees a picture; None: it is given as it is seen

    kind = "image"

    @classmethod
    def fit(cls, about: str, views: Iterable[Any], held_out: Iterable[Any]) -> Self:
        """Return the domain of training pictures as the model sees them, calibrated on held-out ones."""
        rows = np.stack([features(each) for each in views])
        covariance = np.cov(rows.T) + RIDGE * np.eye(rows.shape[1])
        factor = np.linalg.cholesky(np.linalg.inv(covariance)).astype(np.float16).astype(np.float64)  # as stored
        made = cls(about, math.inf, rows.mean(0).astype(np.float32).astype(np.float64), factor)
        return cls(about, quantile(made.distance(features(each)) for each in held_out), made.mean, made.factor)

    def seen_through(self, preprocess: Any) -> Self:
        return replace(self, preprocess=preprocess)

    def distance(self, x: np.ndarray) -> float:
        """Return the squared Mahalanobis distance of some features."""
        return math.inf if x.shape != self.mean.shape else float((((x - self.mean) @ self.factor) ** 2).sum())

    def surprise(self, value: Any) -> float:
        return self.distance(features(value if self.preprocess is None else self.preprocess.view(value)))

    def describe(self, value: Any) -> str:
        far = self.surprise(value)
        if far <= self.threshold:
            return ""
        return "the picture's colours, contrasts or layout are unlike those of the training pictures"

    def arrays(self) -> dict[str, np.ndarray]:
        rows, columns = np.tril_indices(len(self.mean))
        return {"mean": self.mean.astype(np.float32), "factor": self.factor[rows, columns].astype(np.float16)}

    @classmethod
    def restore(
        cls, about: str, threshold: float, settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> Self:
        mean, packed = arrays["mean"].astype(np.float64), arrays["factor"].astype(np.float64)
        n = len(mean)
        if mean.ndim != 1 or not 0 < n <= MAX_FEATURES or packed.shape != (n * (n + 1) // 2,):
            raise ValueError("mean and factor do not fit")
        if not (np.isfinite(mean).all() and np.isfinite(packed).all()):
            raise ValueError("mean or factor is not finite")
        factor = np.zeros((n, n))
        factor[np.tril_indices(n)] = packed
        return cls(about, threshold, mean, factor)


def features(view: Any) -> np.ndarray:
    """Return the features of a picture as a model sees it: texture, colours and layout."""
    pixels = np.asarray(view, np.float64)
    pixels = pixels[..., None] if pixels.ndim == 2 else pixels
    grey = pixels.mean(2)
    found = [
        _shares(np.abs(difference), DIFFERENCES)
        for step in STEPS
        for difference in (grey[:, step:] - grey[:, :-step], grey[step:] - grey[:-step])
    ]
    found += [_shares(pixels[..., c], np.linspace(0, 256, 9)) for c in range(pixels.shape[2])]
    if pixels.shape[2] > 1:
        found.append(_shares(pixels.max(2) - pixels.min(2), SATURATIONS))
    return np.concatenate([*found, np.sqrt(_cell_means(grey) / 255).ravel()])


def _shares(values: np.ndarray, edges: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return the square roots of the shares of values between the edges."""
    return np.sqrt(np.histogram(values, edges)[0] / max(1, values.size))


def _cell_means(grey: np.ndarray) -> np.ndarray:
    """Return the means of 8 x 8 cells; of a side that 8 does not divide, cells overlap by a pixel."""
    rows, columns = (
        [(n * side // CELLS, max(n * side // CELLS + 1, -(-(n + 1) * side // CELLS))) for n in range(CELLS)]
        for side in grey.shape
    )
    return np.array([[grey[a:b, c:d].mean() for c, d in columns] for a, b in rows])
