"""Drawing one of many, for rows of chances at once.

    every candidate starts a clock that rings after an exponential time, the sooner the likelier it is; the first wins

Nothing is checked or normalised, so the device is never waited for; the numbers come from its own stream, as dropout's
do. What has no chance never wins, unless nothing has one: then the first candidate does.
"""

from __future__ import annotations

import torch

from regard.core.shapes import Float, Int, Tensor


def sample_categorical(probabilities: Float[Tensor, "*rows M"]) -> Int[Tensor, "*rows"]:
    """A place for each row, as often as its chance says; no gradient flows through it."""
    clocks = torch.empty_like(probabilities).exponential_()
    return (probabilities.detach() / clocks).argmax(-1)
