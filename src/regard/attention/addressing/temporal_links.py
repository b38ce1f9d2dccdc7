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
        return previous @ links, previous @ links.mT

    def after_write(self, state: State, write: Float[Tensor, "*B N"]) -> State:
        links, last = state
        after, before = write[..., None], write[..., None, :]
        links = (1 - after - before) * links + after * last[..., None, :]
        links = links * (1 - torch.eye(write.shape[-1], dtype=write.dtype, device=write.device))
        return links, (1 - write.sum(-1, keepdim=True)) * last + write
