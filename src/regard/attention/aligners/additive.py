"""Additive attention: a small network asks of every place in the memory how well it suits the present state.

    additive    e_m = v · tanh(W s + U h_m)       w_m = exp(e_m) / Σ_m' exp(e_m')       O(K M A)
    softmax     e_m = q · k_m / √D                the product of later years

The state s is what has been written so far, h_m the m-th place of the memory. U h does not depend on the state, so it
is taken once for each input; what is left for a step is one small product, a tanh and a softmax.

Bahdanau, Cho, Bengio: Neural Machine Translation by Jointly Learning to Align and Translate. ICLR 2015. arXiv:1409.0473
"""

from __future__ import annotations

import torch
from torch import nn

from regard.attention.aligners.base import AlignerBase, StatelessAligner
from regard.core.shapes import Float, Tensor


class AdditiveAlignerBase(AlignerBase):
    """The score, also for aligners with a memory, whose past joins it: they write `map_rows`.

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

    def scores(
        self,
        query: Float[Tensor, "B K Q"],
        keys: Float[Tensor, "B M A"],
        past: Float[Tensor, "B K M A"] | None = None,
    ) -> Float[Tensor, "B K M"]:
        """v · tanh(W s + U h); what an aligner with a memory knows of the past joins the sum."""
        joined = self.query(query)[:, :, None] + keys[:, None]
        scores: Tensor = self.score(torch.tanh(joined if past is None else joined + past)).squeeze(-1)
        return scores


class AdditiveAligner(AdditiveAlignerBase, StatelessAligner):
    """Weights of M places for each of K queries; remembers nothing from step to step."""
