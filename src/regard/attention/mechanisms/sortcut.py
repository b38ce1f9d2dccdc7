"""SortCut: all queries attend to the first few blocks of the sorted keys, so sorting decides what is read at all.

    sinkhorn    the block of n and one sorted block, P K and P V                                  O(N (w + N/w) D)
    sortcut     o_n = Σ_m softmax_m(q_n·(P K)_m / √D) (P V)_m,   m in the first c blocks          O(N c w D + (N/w)²)

P is Sinkhorn attention's soft permutation of blocks of w keys (`sinkhorn.py`), of which only the first c rows are used:
a learned choice of c blocks, mixtures while it is soft, that every query reads. With w and c fixed it is linear in N,
except for P itself, which is small. The paper has it for encoders: the first blocks may be any, so no form is causal.

Differs from the paper as Sinkhorn attention here does: the sorting network reads keys instead of the layer's inputs.

Tay, Bahri, Yang, Metzler, Juan: Sparse Sinkhorn Attention. ICML 2020. arXiv:2002.11296 (section 3.4)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import torch
import torch.nn.functional as F

from regard.attention.gather import true_lengths
from regard.attention.mask import Mask
from regard.attention.masked_softmax import masked_softmax
from regard.attention.mechanisms.sinkhorn import SinkhornAttention, block_pairs
from regard.core.layer_state import LayerState
from regard.core.positions import Bias
from regard.core.shapes import Tensor
from regard.core.validation import Fraction, Range


class SortCutAttention(SinkhornAttention):
    """Attention to the first `cut` sorted blocks; the other arguments are those of `SinkhornAttention`."""

    traits = replace(
        SinkhornAttention.traits,
        cost="N √N D",  # with blocks of √N, the default
        masks=frozenset({"padding"}),
        causality="none",
        budget="",
    )

    def __init__(
        self,
        heads: int,
        head_dim: int,
        block: int | None = None,
        cut: int = 2,
        length: int | None = None,
        iterations: int = 7,
        temperature: Annotated[float, Range(above=0)] = 0.75,
        noise: Annotated[float, Range(low=0)] = 0.0,
        dropout: Fraction = 0.0,
        scale: float | None = None,
    ) -> None:
        super().__init__(heads, head_dim, block, length, iterations, temperature, noise, dropout, scale)
        self.cut = cut

    def mix(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask | None,
        bias: Bias | None,
        layer_state: LayerState | None = None,
    ) -> Tensor:
        (b, h, n, d), w = q.shape, self.block
        self.check_blocks(n)
        k, v = (x.repeat_interleave(h // x.shape[1], 1) for x in (k, v))
        k, v = (F.pad(x, (0, 0, 0, -n % w)).unflatten(2, (-1, w)) for x in (k, v))  # B H N/w w D
        place = torch.arange(k.shape[2] * w, device=q.device).view(-1, w)
        real = (place < true_lengths(mask, b, n, q.device)[:, None, None])[:, None]  # B 1 N/w w
        k, v = k * real[..., None], v * real[..., None]
        pairs = block_pairs(real.any(-1), False)
        first = self.permutation(k, pairs, False)[:, :, : self.cut]  # B H c N/w
        few_k, few_v = (torch.einsum("bhij,bhjpd->bhipd", first.to(x.dtype), x).flatten(2, 3) for x in (k, v))
        allowed = (pairs[:, :, : self.cut].to(k.dtype) @ real.to(k.dtype) > 0).flatten(2, 3)[:, :, None]
        scores = (q * (d**-0.5 if self.scale is None else self.scale)) @ few_k.mT
        weights = masked_softmax(scores, allowed).to(v.dtype)
        weights = F.dropout(weights, self.dropout) if self.dropout and self.training else weights
        return weights @ few_v

    def extra_repr(self) -> str:
        return f"cut={self.cut}, {super().extra_repr()}"
