"""Sample from a categorical distribution by an exponential race: argmax(p / Exp(1)).

Probabilities are neither checked nor normalised, so there is no synchronisation with the device. An index of
probability 0 is never sampled, unless all are 0: then the first is.
"""

from __future__ import annotations

import torch

from regard.core.shapes import Float, Int, Tensor


def sample_categorical(probabilities: Float[Tensor, "*rows M"]) -> Int[Tensor, "*rows"]:
    """Sample one index for each row; no gradient flows through it."""
    times = torch.empty_like(probabilities).exponential_()
    return (probabilities.detach() / times).argmax(-1)
