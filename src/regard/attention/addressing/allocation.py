"""Allocation: the cells that are not in use, the freest first.

    freed       ψ_n = Π_r (1 - f_r w^r_n)                        f = σ: a read head may free the cells it read
    usage       u = (u + w - u ∘ w) ∘ ψ                          w: the last write
    allocation  a_φ(j) = (1 - u_φ(j)) Π_{i<j} u_φ(i)             φ: cells sorted by usage, the least used first

O(N log N). A free cell takes all of the address; where none is, a is near zero and nothing is written. The order of the
sort has no gradient, the values have. a sums to at most one. In products a usage is at least the rounding error of its
dtype, so that their gradient needs no test for zeros, for which a GPU would wait.

Graves et al.: Hybrid computing using a neural network with dynamic external memory. Nature 538, 2016 (Methods)
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

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
        read = torch.sigmoid(raw) * previous
        freed = 1 - read[..., 0, :]
        for head in range(1, read.shape[-2]):  # the gradient of Tensor.prod waits for the device
            freed = torch.addcmul(freed, freed, read[..., head, :], value=-1)
        usage = state[0] * freed
        return allocate(usage)[..., None, :], (usage, freed)

    def after_write(self, state: State, write: Float[Tensor, "*B N"]) -> State:
        usage, freed = state
        return usage + write - usage * write, freed


def allocate(usage: Float[Tensor, "*B N"]) -> Float[Tensor, "*B N"]:
    """Return the allocation of cells with this usage."""
    found: Tensor = _Allocated.apply(usage)
    return found


class _Allocated(torch.autograd.Function):
    """The allocation; ∂/∂u_i Σ_j g_j a_j = (Σ_{j>i} g_j a_j) / u_i - g_i Π_{k<i} u_k for sorted cells."""

    @staticmethod
    def forward(ctx: Any, usage: Tensor) -> Tensor:
        used, order = usage.sort(dim=-1, stable=True)
        factors = used.clamp(min=torch.finfo(usage.dtype).eps)
        before = torch.cat([torch.ones_like(used[..., :1]), factors[..., :-1]], -1).cumprod(-1)
        allocated = (1 - used) * before
        ctx.save_for_backward(factors, order, before, allocated)
        return torch.zeros_like(usage).scatter(-1, order, allocated)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        factors, order, before, allocated = ctx.saved_tensors
        own = gradient.gather(-1, order)
        parts = own * allocated
        later = F.pad(parts[..., 1:].flip(-1).cumsum(-1).flip(-1), (0, 1))  # no difference: it is small beside parts
        return torch.zeros_like(gradient).scatter(-1, order, later / factors - own * before)
