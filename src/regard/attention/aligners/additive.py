"""Additive attention: a small network asks of every place in the memory how well it suits the present state.

    additive    e_m = v · tanh(W s + U h_m)       w_m = exp(e_m) / Σ_m' exp(e_m')       O(K M A)
    softmax     e_m = q · k_m / √D                the product of later years

The state s is what has been written so far, h_m the m-th place of the memory. U h does not depend on the state, so it
is taken once for each input; what is left for a step is one small product, a tanh and a softmax.

Bahdanau, Cho, Bengio: Neural Machine Translation by Jointly Learning to Align and Translate. ICLR 2015. arXiv:1409.0473
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from regard.core.shapes import Bool, Float, Tensor


class AdditiveAligner(nn.Module):
    """Weights of M places for each of K queries; remembers nothing from step to step.

    `query_width` and `memory_width` are those of s and h, `width` is the number A of hidden units of the score.
    """

    def __init__(self, query_width: int, memory_width: int, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(query_width, width, bias=False)  # W
        self.memory = nn.Linear(memory_width, width, bias=False)  # U
        self.score = nn.Linear(width, 1, bias=False)  # v

    def keys(self, memory: Float[Tensor, "B M C"]) -> Float[Tensor, "B M A"]:
        """U h, once for each input."""
        keys: Tensor = self.memory(memory)
        return keys

    def weights(
        self,
        query: Float[Tensor, "B K Q"],
        keys: Float[Tensor, "B M A"],
        mask: Bool[Tensor, "B M"] | None = None,
        state: Any = None,
    ) -> tuple[Float[Tensor, "B K M"], Any]:
        """Where each query looks: rows sum to one over what the mask allows, to zero where it allows nothing."""
        scores = self.score(torch.tanh(self.query(query)[:, :, None] + keys[:, None])).squeeze(-1)
        scores = scores if scores.dtype == torch.float64 else scores.float()
        if mask is None:
            return scores.softmax(-1).to(keys.dtype), state
        allowed = mask[:, None]
        # the smallest number, not -inf: an input without a place stays finite, and the product below makes it zero
        scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
        return (scores.softmax(-1) * allowed).to(keys.dtype), state

    def forward(
        self,
        query: Float[Tensor, "B K Q"],
        keys: Float[Tensor, "B M A"],
        mask: Bool[Tensor, "B M"] | None = None,
        state: Any = None,
    ) -> tuple[Float[Tensor, "B K M"], Any]:
        """The same as `weights`; models call the module, so that what it gives can be watched."""
        return self.weights(query, keys, mask, state)
