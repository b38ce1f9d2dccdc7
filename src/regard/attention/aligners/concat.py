"""Concat attention: one matrix reads the state and a memory vector concatenated.

    concat      e_m = v · tanh(W [s; h_m])        O(K M A)
    additive    e_m = v · tanh(W s + U h_m)       the same function, where [W U] is the one matrix

It equals additive attention whose W and U are the two halves of this W; only the initialisation differs, by the width
of both. The half for the memory is multiplied once for each input here too.

Luong, Pham, Manning: Effective Approaches to Attention-based Neural Machine Translation. EMNLP 2015. arXiv:1508.04025
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from regard.attention.aligners.base import StatelessAligner
from regard.core.shapes import Float, Tensor


class ConcatAligner(StatelessAligner):
    """Concat scores; `width` is the number A of hidden units."""

    def __init__(self, query_width: int, memory_width: int, width: int) -> None:
        super().__init__()
        self.query_width = query_width
        self.joined = nn.Linear(query_width + memory_width, width, bias=False)  # W
        self.score = nn.Linear(width, 1, bias=False)  # v

    def keys(self, memory: Float[Tensor, "B M C"]) -> Float[Tensor, "B M A"]:
        return F.linear(memory, self.joined.weight[:, self.query_width :])

    def scores(self, query: Float[Tensor, "B K Q"], keys: Float[Tensor, "B M A"]) -> Float[Tensor, "B K M"]:
        state = F.linear(query, self.joined.weight[:, : self.query_width])
        scores: Tensor = self.score(torch.tanh(state[:, :, None] + keys[:, None])).squeeze(-1)
        return scores
