"""Additive attention: a small network scores every position of the memory against the decoder's state.

    additive    e_m = v · tanh(W s + U h_m)       w_m = exp(e_m) / Σ_m' exp(e_m')       O(K M A)
    softmax     e_m = q · k_m / √D                the Transformer's score

s is the state of the decoder, h_m the m-th vector of the memory. U h does not depend on the state, so it is computed
once for each input; a step is one small product, a tanh and a softmax.

Bahdanau, Cho, Bengio: Neural Machine Translation by Jointly Learning to Align and Translate. ICLR 2015. arXiv:1409.0473
"""

from __future__ import annotations

import torch
from torch import nn

from regard.attention.aligners.base import AlignerBase, StatelessAligner
from regard.core.shapes import Float, Tensor


class AdditiveAlignerBase(AlignerBase):
    """The additive score, also for aligners with a state, which joins the sum; those write `weights`.

    `query_width` and `memory_width` are those of s and h, `width` is the number A of hidden units of the score.
    """

    def __init__(self, query_width: int, memory_width: int, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(query_width, width, bias=False)  # W
        self.memory = nn.Linear(memory_width, width, bias=False)  # U
        self.score = nn.Linear(width, 1, bias=False)  # v

    def keys(self, memory: Float[Tensor, "B M C"]) -> Float[Tensor, "B M A"]:
        keys: Tensor = self.memory(memory)
        return keys

    def scores(
        self,
        query: Float[Tensor, "B K Q"],
        keys: Float[Tensor, "B M A"],
        past: Float[Tensor, "B K M A"] | None = None,
    ) -> Float[Tensor, "B K M"]:
        """Return v · tanh(W s + U h + past)."""
        joined = self.query(query)[:, :, None] + keys[:, None]
        scores: Tensor = self.score(torch.tanh(joined if past is None else joined + past)).squeeze(-1)
        return scores


class AdditiveAligner(AdditiveAlignerBase, StatelessAligner):
    """Additive attention without state."""
