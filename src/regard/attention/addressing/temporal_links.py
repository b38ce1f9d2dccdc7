"""Temporal links: from what a head read, to what was written just after or just before it.

    links       L_nm = (1 - w_n - w_m) L_nm + w_n p_m,   L_nn = 0       n was written after m      O(N²)
    last        p = (1 - Σ w) p + w                                     where the last write was
    forward     f = L w^r            backward   b = Lᵀ w^r              w^r: what the head read before
    address     π₁ b + π₂ c + π₃ f                                      c: content;  π = softmax, per head

Rows and columns of L sum to at most one, so a head follows the order of writing in both directions, whatever cells were
written, with no shift between neighbours.

Graves et al.: Hybrid computing using a neural network with dynamic external memory. Nature 538, 2016 (Methods)
"""

from __future__ import annotations

from typing import Any

import torch

from regard.attention.addressing.base import Addressing, State
from regard.core.shapes import Float, Tensor


class TemporalLinks(Addressing):
    """Backward, content or forward; raw is a score of each. `weights` is the address by content.

    The state is (links *B N N, last *B N).
    """

    normalised = False

    def raw_width(self, word: int) -> int:
        return 3

    def start(self, weights: Float[Tensor, "*B H N"]) -> State:
        last = torch.zeros_like(weights[..., 0, :])
        return last[..., None] * last[..., None, :], last

    def forward(
        self,
        raw: Float[Tensor, "*B H P"],
        memory: Float[Tensor, "*B N W"],
        weights: Float[Tensor, "*B H N"],
        previous: Float[Tensor, "*B H N"],
        state: State = (),
    ) -> tuple[Float[Tensor, "*B H N"], State]:
        modes = raw[..., :3].softmax(-1)[..., None]  # *B H 3 1
        backward, forward = self.follow(raw, previous, state[0])
        return modes[..., 0, :] * backward + modes[..., 1, :] * weights + modes[..., 2, :] * forward, state

    def follow(
        self, raw: Float[Tensor, "*B H P"], previous: Float[Tensor, "*B H N"], links: Float[Tensor, "*B N N"]
    ) -> tuple[Float[Tensor, "*B H N"], Float[Tensor, "*B H N"]]:
        """Return the addresses one write back and one write on."""
        return previous @ links, (links @ previous.mT).mT  # a transposed gradient of the links would be slow to add

    def after_write(self, state: State, write: Float[Tensor, "*B N"]) -> State:
        links, last = state
        return linked(links, write, last), (1 - write.sum(-1, keepdim=True)) * last + write


def linked(
    links: Float[Tensor, "*B N N"], write: Float[Tensor, "*B N"], last: Float[Tensor, "*B N"]
) -> Float[Tensor, "*B N N"]:
    """Return the links after a write; `last` is where the write before it was."""
    found: Tensor = _Linked.apply(links, write, last)
    return found


class _Linked(torch.autograd.Function):
    """The links are the largest tensor of a step: a third of autograd's passes over them, one copy kept of three."""

    @staticmethod
    def forward(ctx: Any, links: Tensor, write: Tensor, last: Tensor) -> Tensor:
        ctx.save_for_backward(links, write, last)
        out = links * _kept(write) + write[..., None] * last[..., None, :]
        out.diagonal(dim1=-2, dim2=-1).zero_()
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        links, write, last = ctx.saved_tensors
        gradient = gradients[0].clone()
        gradient.diagonal(dim1=-2, dim2=-1).zero_()
        along = gradient * links
        to_write = (gradient @ last[..., None]).squeeze(-1) - along.sum(-1) - along.sum(-2)
        to_last = (write[..., None, :] @ gradient).squeeze(-2)
        return gradient.mul_(_kept(write)), to_write, to_last


def _kept(write: Float[Tensor, "*B N"]) -> Float[Tensor, "*B N N"]:
    return (1 - write)[..., None] - write[..., None, :]
