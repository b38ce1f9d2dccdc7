"""Local Transformer: a learned Gaussian window around a place that the query predicts, added to the scores.

    softmax      w = softmax(s_nm)                                        s_nm = q_n·k_m / √D       O(N M D)
    localness    w = softmax(s_nm - (m - P_n)² / 2σ_n²),   σ_n = D_n / 2                            O(N M D)
                 P_n = I · sigmoid(u_p·tanh(W_p q_n)),   D_n = I · sigmoid(u_d·tanh(W_p q_n))

Every query predicts the centre P and the width D of the region that it attends to most, so that local patterns are
found without losing far tokens. The window may be one number for all (10 in the paper), predicted for the layer from
the mean of its keys, W_d k̄ ("layer"), or for each query ("query", the best in the paper). I is the number of keys that
the query may see, and m counts those keys only, so that a prefix of a text is treated as a text of its own.

Differs from the paper: as in the authors' code, the centre lies from 0 to I - 1, and 0.1 is added to a predicted
window, which otherwise could vanish. With a causal mask k̄ is the mean of the keys that a query sees. The paper uses
localness in the lower layers only: attention=["localness", "localness", "localness", "softmax", ...].

Yang, Tu, Wong, Meng, Chao, Zhang: Modeling Localness for Self-Attention Networks. EMNLP 2018. arXiv:1810.10182
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from torch import nn

from regard.attention.mask import Mask
from regard.attention.masked_softmax import upcast, wide_dtype
from regard.attention.mechanisms.dense import DenseAttention, dense_mask
from regard.attention.protocol import Traits
from regard.core.layer_state import LayerState
from regard.core.shapes import Float, Rows, Tensor
from regard.core.validation import Fraction, Range


class LocalnessAttention(DenseAttention):
    """Softmax attention with a predicted Gaussian window; `window` is "query", "layer" or a fixed number of keys."""

    traits = Traits(
        cost="N M D",
        paper="1810.10182",
        exact=False,
        headwise=False,
        positional=True,
        family="with a prior",
        limit="window=1e9",
    )

    def __init__(
        self,
        heads: int,
        kv_heads: int,
        head_dim: int,
        window: Literal["query", "layer"] | Annotated[float, Range(above=0)] = "query",
        dropout: Fraction = 0.0,
        scale: float | None = None,
    ) -> None:
        super().__init__(dropout, scale)
        self.window = window
        self.query_hidden = nn.Linear(heads * head_dim, heads * head_dim, bias=False)  # W_p
        self.centre = nn.Linear(heads * head_dim, heads, bias=False)  # u_p of each head
        if window == "layer":
            self.key_hidden = nn.Linear(kv_heads * head_dim, heads * head_dim, bias=False)  # W_d
        if isinstance(window, str):
            self.width = nn.Linear(heads * head_dim, heads, bias=False)  # u_d of each head

    def scores(
        self, q: Tensor, k: Tensor, mask: Mask | None, layer_state: LayerState | None, rows: Rows = slice(None)
    ) -> Float[Tensor, "B H rows M"]:
        allowed = dense_mask(q, k, mask, rows)
        if allowed is None:
            allowed = torch.ones(1, 1, 1, k.shape[2], dtype=torch.bool, device=k.device)
        place = (allowed.cumsum(-1) - 1).to(wide_dtype(q))  # of each key among those that the query sees
        seen = allowed.sum(-1, keepdim=True).to(wide_dtype(q))  # I
        hidden = torch.tanh(self.query_hidden(_join_heads(q[:, :, rows])))
        centre = (seen - 1).clamp_min(0) * _split_heads(self.centre(hidden)).sigmoid()
        gaussian = -2 * ((place - centre) / self._window(hidden, k, allowed, seen)).square()
        return super().scores(q, k, mask, layer_state, rows) + gaussian

    def _window(self, hidden: Tensor, k: Tensor, allowed: Tensor, seen: Tensor) -> Tensor | float:
        """Return D, #B H rows 1."""
        if not isinstance(self.window, str):
            return self.window
        if self.window == "layer":
            mean = (allowed.to(k.dtype) @ k).expand(k.shape[0], -1, -1, -1) / seen.clamp_min(1).to(k.dtype)
            hidden = torch.tanh(self.key_hidden(_join_heads(mean)))
        return seen * _split_heads(self.width(hidden)).sigmoid() + 0.1

    def extra_repr(self) -> str:
        return f"window={self.window!r}, {super().extra_repr()}"


def _join_heads(x: Float[Tensor, "B H N D"]) -> Float[Tensor, "B N HD"]:
    return x.transpose(1, 2).flatten(2)


def _split_heads(x: Float[Tensor, "B N H"]) -> Float[Tensor, "B H N 1"]:
    return upcast(x.transpose(1, 2)[..., None])
