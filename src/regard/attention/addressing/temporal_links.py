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
from torch.autograd.function import once_differentiable

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
        found: tuple[Tensor, Tensor] = _Followed.apply(links, previous)
        return found

    def after_write(self, state: State, write: Float[Tensor, "*B N"]) -> State:
        links, last = state
        return linked(links, write, last), (1 - write.sum(-1, keepdim=True)) * last + write


def linked(
    links: Float[Tensor, "*B N N"], write: Float[Tensor, "*B N"], last: Float[Tensor, "*B N"]
) -> Float[Tensor, "*B N N"]:
    """Return the links after a write; `last` is where the write before it was."""
    found: Tensor = _Linked.apply(links, write, last)
    return found


# The links are the largest tensor of a step, and time is that of passes over them: both functions write their gradients
# in fewer of them than autograd, and the first takes as many rows of a batch at a time as a CPU's cache holds.
CACHE = 1 << 18  # numbers


def _rows_at_a_time(links: Float[Tensor, "*B N N"]) -> list[Any]:
    """Return the parts of a batch: one on a GPU, and in an exported or compiled program."""
    if links.ndim != 3 or links.device.type != "cpu" or torch.compiler.is_compiling():
        return [...]
    rows = max(1, CACHE // links.shape[-1] ** 2)
    return [slice(begin, begin + rows) for begin in range(0, len(links), rows)]


class _Linked(torch.autograd.Function):
    """Links after a write."""

    @staticmethod
    def forward(ctx: Any, links: Tensor, write: Tensor, last: Tensor) -> Tensor:
        ctx.save_for_backward(links, write, last)
        out = torch.empty_like(links)
        for rows in _rows_at_a_time(links):
            _scale(links[rows], write[rows], out[rows]).addcmul_(write[rows][..., None], last[rows][..., None, :])
        out.diagonal(dim1=-2, dim2=-1).zero_()
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        links, write, last = ctx.saved_tensors
        to_links, to_write, to_last = torch.empty_like(links), torch.empty_like(write), torch.empty_like(last)
        for rows in _rows_at_a_time(links):
            own = gradient[rows].clone()
            own.diagonal(dim1=-2, dim2=-1).zero_()
            along = own * links[rows]
            to_write[rows] = (last[rows][..., None, :] @ own.mT).squeeze(-2) - along.sum(-1) - along.sum(-2)
            to_last[rows] = (write[rows][..., None, :] @ own).squeeze(-2)
            _scale(own, write[rows], to_links[rows])
        return to_links, to_write, to_last


def _scale(
    links: Float[Tensor, "*B N N"], write: Float[Tensor, "*B N"], out: Float[Tensor, "*B N N"]
) -> Float[Tensor, "*B N N"]:
    """Write (1 - w_n - w_m) L_nm to `out`."""
    torch.mul(links, (1 - write)[..., None], out=out)
    return out.addcmul_(links, write[..., None, :], value=-1)


class _Followed(torch.autograd.Function):
    """Addresses one write back and one write on."""

    @staticmethod
    def forward(ctx: Any, links: Tensor, previous: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(links, previous)
        return previous @ links, previous @ links.mT

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, backward: Tensor, forward: Tensor) -> tuple[Tensor, Tensor]:
        links, previous = ctx.saved_tensors
        # both parts in one product: links are written once
        to_links = torch.cat([previous, forward], -2).mT @ torch.cat([backward, previous], -2)
        return to_links, backward @ links.mT + forward @ links
