"""Mixup: two images laid over one another like two slides, and the label in the same parts.

    kept = λ everywhere,    λ ~ Beta(α, α) for each image

Zhang, Cisse, Dauphin, Lopez-Paz: mixup: Beyond Empirical Risk Minimization. ICLR 2018. arXiv:1710.09412
"""

from __future__ import annotations

import torch

from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor

MAX_ALPHA = 100  # of α: from there on all images keep about half of themselves


class Mixup:
    """How much of itself an image keeps: the same at every pixel."""

    def __init__(self, alpha: float = 0.8) -> None:
        if not 0 < alpha <= MAX_ALPHA:
            raise BadInput(f"mixup(alpha={alpha}): alpha is above 0 and at most {MAX_ALPHA}")
        self.alpha = alpha

    def __call__(self, b: int, y: int, x: int, generator: torch.Generator) -> Float[Tensor, "b 1 y x"]:
        """λ of each image."""
        return sample_beta(b, self.alpha, generator)[:, None, None, None].expand(b, 1, y, x)


def sample_beta(n: int, alpha: float, generator: torch.Generator) -> Float[Tensor, " n"]:
    """Numbers from 0 to 1 of the distribution Beta(α, α): the share of one of two gamma variables."""
    shapes = torch.full((2, n), alpha, device=generator.device)
    one, other = torch._standard_gamma(shapes, generator=generator).clamp(min=1e-30)
    return one / (one + other)
