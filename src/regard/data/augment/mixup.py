"""Mixup: blend two images and their labels.

    weight = λ everywhere,    λ ~ Beta(α, α) for each image

Zhang, Cisse, Dauphin, Lopez-Paz: mixup: Beyond Empirical Risk Minimization. ICLR 2018. arXiv:1710.09412
"""

from __future__ import annotations

import torch

from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor

MAX_ALPHA = 100  # larger α: λ is about one half for all images


class Mixup:
    """Weights of an image: the same at every pixel."""

    def __init__(self, alpha: float = 0.8) -> None:
        if not 0 < alpha <= MAX_ALPHA:
            raise BadInput(f"mixup(alpha={alpha}): alpha must be above 0 and at most {MAX_ALPHA}")
        self.alpha = alpha

    def __call__(self, b: int, y: int, x: int, generator: torch.Generator) -> Float[Tensor, "b 1 y x"]:
        """Return λ of each image."""
        return sample_beta(b, self.alpha, generator)[:, None, None, None].expand(b, 1, y, x)


def sample_beta(n: int, alpha: float, generator: torch.Generator) -> Float[Tensor, " n"]:
    """Sample from Beta(α, α), as a ratio of gamma variables."""
    shapes = torch.full((2, n), alpha, device=generator.device)
    one, other = torch._standard_gamma(shapes, generator=generator).clamp(min=1e-30)
    return one / (one + other)
