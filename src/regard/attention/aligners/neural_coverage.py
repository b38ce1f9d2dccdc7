"""Remembered alignments: at every place of the memory a small recurrent network follows how it was looked at.

    remembering e_m = v · tanh(W s + U h_m + V c_m)      c_m = GRU(c_m before; w_m, R h_m, S s)      O(K M (A + L²))
    additive    e_m = v · tanh(W s + U h_m)                                                          O(K M A)

Coverage adds up what was looked at by a rule; here what to keep of it is learned. The L units of a place see its own
weight, what stands there and the state that looked.

Tu, Lu, Liu, Liu, Li: Modeling Coverage for Neural Machine Translation. ACL 2016. arXiv:1601.04811 (section 3.1.2)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from regard.attention.aligners.additive import AdditiveAlignerBase
from regard.attention.masked_softmax import masked_softmax, upcast
from regard.core.errors import BadInput
from regard.core.shapes import Bool, Float, Tensor


class NeuralCoverageAligner(AdditiveAlignerBase):
    """Remembers L units for each place, B K M L; `size` is L."""

    def __init__(self, query_width: int, memory_width: int, width: int, size: int = 10) -> None:
        super().__init__(query_width, memory_width, width)
        if size < 1:
            raise BadInput(f"each place needs at least one unit to remember with, not {size}")
        self.size = size
        self.gru_key = nn.Linear(memory_width, size, bias=False)  # R
        self.gru_query = nn.Linear(query_width, size, bias=False)  # S
        self.gru = nn.GRUCell(1 + 2 * size, size)
        self.past = nn.Linear(size, width, bias=False)  # V

    def keys(self, memory: Float[Tensor, "B M C"]) -> Float[Tensor, "B M both"]:
        """U h, and behind it R h."""
        return torch.cat([self.memory(memory), self.gru_key(memory)], -1)

    def weights(
        self,
        query: Float[Tensor, "B K Q"],
        keys: Float[Tensor, "B M both"],
        mask: Bool[Tensor, "B M"] | None = None,
        state: Any = None,
    ) -> tuple[Float[Tensor, "B K M"], Any]:
        """Where each query looks, knowing how each place was looked at; the state is what is known now."""
        keys, content = keys.split([keys.shape[-1] - self.size, self.size], -1)
        scores = self.scores(query, keys, None if state is None else self.past(state.to(keys.dtype)))
        weights = masked_softmax(scores, None if mask is None else mask[:, None])
        return weights.to(keys.dtype), self.update(weights, content, query, state)

    def update(
        self,
        weights: Float[Tensor, "B K M"],
        gru_key: Float[Tensor, "B M L"],
        query: Float[Tensor, "B K Q"],
        state: Float[Tensor, "B K M L"] | None,
    ) -> Float[Tensor, "B K M L"]:
        """One step of every place's network; not under autocast, as what is carried on adds up."""
        shape = (*weights.shape, self.size)
        seen = [weights[..., None], gru_key[:, None].expand(shape), self.gru_query(query)[:, :, None].expand(shape)]
        with torch.autocast(weights.device.type, enabled=False):
            kind = self.gru.weight_ih.dtype
            given = torch.cat([part.to(kind) for part in seen], -1).flatten(0, 2)
            before = given.new_zeros(given.shape[0], self.size) if state is None else state.flatten(0, 2).to(kind)
            return upcast(self.gru(given, before)).view(shape)
