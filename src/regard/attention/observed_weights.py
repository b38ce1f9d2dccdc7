"""Weights computed outside a mechanism, made visible to `watch`.

A squeeze-and-excitation gate, the address of a memory head or a glimpse is attention that no mechanism computes. Such
weights pass through this module, which returns them as they are; `watch` hooks it. Outside `watch` it costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from regard.core.shapes import Float, Tensor


class ObservedWeights(nn.Module):
    """The identity on weights, which `watch` records as a trace of this kind.

    Kind "gate" takes weights of channels B C (or B C 1 1), recorded as B 1 1 C; any other kind takes maps B H N M, or
    what `to_bhnm` makes one of. Where the module that holds this one has a geometry, the map has it too.
    """

    def __init__(self, kind: str = "gate", to_bhnm: Callable[[Tensor], Tensor] | None = None) -> None:
        super().__init__()
        self.kind, self.to_bhnm = kind, to_bhnm or _as_it_is

    def forward(self, weights: Float[Tensor, "B *any"]) -> Float[Tensor, "B *any"]:
        return weights

    def extra_repr(self) -> str:
        return self.kind


def _as_it_is(weights: Tensor) -> Tensor:
    return weights
