"""Weights computed outside a mechanism, made visible to `watch`.

A squeeze-and-excitation gate, the address of a memory head or a glimpse is attention that no mechanism computes. Such
weights pass through this module, which returns them as they are; `watch` hooks it. Outside `watch` it costs nothing.
"""

from __future__ import annotations

from torch import nn

from regard.core.shapes import Float, Tensor


class ObservedWeights(nn.Module):
    """The identity on weights of channels B C (or B C 1 1); `watch` records them as a trace of kind "gate", B 1 1 C."""

    def forward(self, weights: Float[Tensor, "B C *ones"]) -> Float[Tensor, "B C *ones"]:
        return weights
