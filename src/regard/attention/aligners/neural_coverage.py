"""Neural coverage: at every position of the memory a small GRU tracks the attention it has received.

    neural      e_m = v · tanh(W s + U h_m + V c_m)      c_m = GRU(c_m before; w_m, R h_m, S s)      O(K M (A + L²))
    additive    e_m = v · tanh(W s + U h_m)                                                          O(K M A)

Coverage sums the past weights; here what to keep of them is learned. The L units of a position see its weight, its
content and the state that attended.

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
    """Attention with a GRU state of L units for each position, B K M L; `size` is L."""

    def __init__(self, query_width: int, memory_width: int, width: int, size: int = 10) -> None:
        super().__init__(query_width, memory_width, width)
        if size < 1:
            raise BadInput(f"size must be at least 1, got {size}")
        self.size = size
        self.gru_key = nn.Linear(memory_width, size, bias=False)  # R
        self.gru_query = nn.Linear(query_width, size, bias=False)  # S
        self.gru = nn.GRUCell(1 + 2 * size, size)
        self.past = nn.Linear(size, width, bias=False)  # V

    def keys(self, memory: Float[Tensor, "B M C"]) -> Float[Tensor, "B M both"]:
        """Return U h with R h appended."""
        return torch.cat([self.memory(memory), self.gru_key(memory)], -1)

    def weights(
        self,
        query: Float[Tensor, "B K Q"],
        keys: Float[Tensor, "B M both"],
        mask: Bool[Tensor, "B M"] | None = None,
        state: Any = None,
    ) -> tuple[Float[Tensor, "B K M"], Any]:
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
        """Advance the GRU of every position; without autocast, since rounding errors of the state would add up."""
        shape = (*weights.shape, self.size)
        seen = [weights[..., None], gru_key[:, None].expand(shape), self.gru_query(query)[:, :, None].expand(shape)]
        with torch.autocast(weights.device.type, enabled=False):
            kind = self.gru.weight_ih.dtype
            inputs = torch.cat([part.to(kind) for part in seen], -1).flatten(0, 2)
            before = inputs.new_zeros(inputs.shape[0], self.size) if state is None else state.flatten(0, 2).to(kind)
            return upcast(self.gru(inputs, before)).view(shape)
