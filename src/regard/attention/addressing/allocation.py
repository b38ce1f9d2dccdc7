"""Allocation: the cells that are not in use, the freest first.

    freed       ψ_n = Π_r (1 - f_r w^r_n)                        f = σ: a read head may free the cells it read
    usage       u = (u + w - u ∘ w) ∘ ψ                          w: the last write
    allocation  a_φ(j) = (1 - u_φ(j)) Π_{i<j} u_φ(i)             φ: cells sorted by usage, the least used first

O(N log N). A free cell takes all of the address; where none is, a is near zero and nothing is written. The order of the
sort has no gradient, the values have. a sums to at most one.

Graves et al.: Hybrid computing using a neural network with dynamic external memory. Nature 538, 2016 (Methods)
"""

from __future__ import annotations

import torch

from regard.attention.addressing.base import Addressing, State
from regard.core.shapes import Float, Tensor


class Allocation(Addressing):
    """One address, for all write heads; raw is a free gate for each read head, `previous` what they read before.

    The state is (usage *B N, freed *B N).
    """

    normalised = False

    def raw_width(self, word: int) -> int:
        return 1

    def start(self, weights: Float[Tensor, "*B H N"]) -> State:
        return torch.zeros_like(weights[..., 0, :]), torch.ones_like(weights[..., 0, :])

    def forward(
        self,
        raw: Float[Tensor, "*B R 1"],
        memory: Float[Tensor, "*B N W"],
        weights: Float[Tensor, "*B H N"],
        previous: Float[Tensor, "*B R N"],
        state: State = (),
    ) -> tuple[Float[Tensor, "*B 1 N"], State]:
        freed = (1 - torch.sigmoid(raw) * previous).prod(-2)
        usage = state[0] * freed
        return allocate(usage)[..., None, :], (usage, freed)

    def after_write(self, state: State, write: Float[Tensor, "*B N"]) -> State:
        usage, freed = state
        return usage + write - usage * write, freed


def allocate(usage: Float[Tensor, "*B N"]) -> Float[Tensor, "*B N"]:
    """Return the allocation of cells with this usage."""
    used, order = usage.sort(dim=-1, stable=True)
    before = torch.cat([torch.ones_like(used[..., :1]), used[..., :-1]], -1).cumprod(-1)
    return torch.zeros_like(usage).scatter(-1, order, (1 - used) * before)
