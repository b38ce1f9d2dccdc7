"""Poolingformer: a sliding window, then a larger window whose keys and values are pooled.

    softmax          o_n = Σ_m softmax_m(q_n·k_m / √D) v_m                                        O(N M D)
    poolingformer    y = attention of x within w₁ tokens                                          O(N (w₁ + w₂ / ξ) D)
                     z = attention of y to pooled keys and values within w₂ tokens,  out = y + z

The first level gathers what is near, token by token; the second looks further at little cost, since it sees one pooled
key for every ξ tokens. A pooled key stands for the κ tokens around it: their mean, their maximum, or a lightweight
dynamic convolution ("ldconv"), whose κ weights are a softmax that the token in the middle decides. The second level
reads the output of the first, so no matrix of weights applies to v: it is a mixer, of two attentions that `watch`
shows.

What was reconstructed: of the paper the abstract and descriptions by others were at hand (two levels in sequence, their
sum, kernel κ and stride ξ, mean, max and LDConv pooling). Each level has its own four projections; keys and values are
pooled with filters of their own. The paper's encoder is bidirectional, and so is this; global tokens are left out.

Zhang, Gong, Shen, Li, Lv, Duan, Chen: Poolingformer: Long Document Modeling with Pooling Attention. ICML 2021.
arXiv:2105.04371; Wu, Fan, Baevski, Dauphin, Auli 2019 (dynamic convolution), arXiv:1901.10430
"""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import nn

from regard.attention.mask import Mask, PaddingMask
from regard.attention.masked_softmax import masked_softmax, upcast
from regard.attention.multihead import MultiHeadAttention
from regard.attention.protocol import Mechanism, Traits
from regard.core.errors import RegardError, UnknownName, Unsupported
from regard.core.layer_state import LayerState
from regard.core.positions import Bias, PositionInfo
from regard.core.shapes import Float, Int, Rows, Tensor
from regard.core.validation import Fraction

_MASKS = frozenset({"padding"})


class PoolingformerAttention(nn.Module):
    """Attention within `window` tokens, then to keys pooled by `kernel` and `stride` within `far` tokens."""

    traits = Traits(
        cost="N (w₁ + w₂ / ξ) D",
        paper="2105.04371",
        masks=_MASKS,
        bias=False,
        exact=False,
        causality="none",
        square=True,
        positional=True,
        family="fewer queries or keys",
    )

    def __init__(
        self,
        width: int,
        heads: int,
        window: int = 128,
        far: int = 512,
        kernel: int = 5,
        stride: int = 4,
        pooling: Literal["mean", "max", "ldconv"] = "ldconv",
        *,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        bias: bool = True,
        dropout: Fraction = 0.0,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        sizes: dict[str, Any] = {"kv_heads": kv_heads, "head_dim": head_dim, "bias": bias}
        settings: dict[str, Any] = {"dropout": dropout, "scale": scale}
        self.near = MultiHeadAttention(width, heads, mechanism=f"window(window={window})", **sizes, **settings)
        self.far = MultiHeadAttention(width, heads, mechanism=PoolWindowAttention(far, stride, **settings), **sizes)
        shape = kv_heads or heads, head_dim or width // heads, kernel, stride, pooling
        self.pool_keys, self.pool_values = Pool(*shape), Pool(*shape)
        self.stride = stride

    def forward(
        self,
        x: Float[Tensor, "B N C"],
        context: Float[Tensor, "B M C"] | None = None,
        mask: Mask | None = None,
        positions: PositionInfo | None = None,
        layer_state: LayerState | None = None,
    ) -> Float[Tensor, "B N C"]:
        """Return the sum of both levels, of which the second reads the first."""
        if context is not None:
            raise Unsupported("poolingformer attends within one sequence and takes no context")
        if mask is not None and not mask.kinds <= _MASKS:
            raise Unsupported(f"poolingformer takes no mask of kind {', '.join(sorted(mask.kinds - _MASKS))}")
        if positions is not None and (positions.bias is not None or positions.query_vectors is not None):
            raise Unsupported("poolingformer cannot add a bias or vectors of positions; use rotary or added ones")
        y: Tensor = self.near(x, None, mask, positions, layer_state)
        lengths = torch.full((1,), x.shape[1], device=x.device)
        pools = None
        if mask is not None and mask.padding is not None:
            lengths = mask.padding.lengths
            pools = PaddingMask(-(-lengths // self.stride))
        q, k, v = self.far.project(y)
        k, v = self.pool_keys(k, lengths), self.pool_values(v, lengths)
        if positions is not None and positions.qk_transform is not None:  # a pool stands where its middle does
            q = positions.qk_transform.transform(q, positions.queries)
            k = positions.qk_transform.transform(k, positions.queries[:, :: self.stride])
        z: Tensor = self.far.join(self.far.attend(q, k, v, pools, layer_state=layer_state))
        return y + z


class PoolWindowAttention(Mechanism):
    """Softmax attention to pools whose middle, every `stride`-th token, is at most far / 2 tokens away."""

    traits = Traits(
        cost="N w₂ / ξ D",
        paper="2105.04371",
        masks=_MASKS,
        bias=False,
        exact=False,
        causality="none",
        positional=True,
        family="fewer queries or keys",
    )

    def __init__(self, far: int, stride: int, dropout: Fraction = 0.0, scale: float | None = None) -> None:
        super().__init__()
        self.far, self.stride, self.dropout, self.scale = far, stride, dropout, scale

    def mix(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask | None,
        bias: Bias | None,
        layer_state: LayerState | None = None,
    ) -> Tensor:
        n, pools, stride = q.shape[2], k.shape[2], self.stride
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
        back, ahead = (
            self.far // 2 // stride,
            -(-(self.far // 2) // stride),
        )  # pools that a query may see beside its own
        each = max(1, min(ahead, pools))  # pools of a block: each * stride queries that share their keys
        size = back + each + ahead
        q = F.pad(q, (0, 0, 0, -n % (each * stride))).unflatten(2, (-1, each * stride))  # B H blocks block D
        more = q.shape[2] * each - pools + ahead
        k, v = (F.pad(x, (0, 0, back, more)).unfold(2, size, each) for x in (k, v))  # B H blocks D size
        start = torch.arange(q.shape[2], device=q.device)[:, None] * each
        at = start * stride + torch.arange(each * stride, device=q.device)
        allowed = self._allowed(
            at[..., None], (start - back + torch.arange(size, device=q.device))[:, None], pools, mask
        )
        weights = masked_softmax(self._scores(q, k), allowed).to(v.dtype)
        weights = F.dropout(weights, self.dropout) if self.dropout and self.training else weights
        return (weights @ v.mT).flatten(2, 3)[:, :, :n]

    def weights(
        self,
        q: Float[Tensor, "B H N D"],
        k: Float[Tensor, "B G M D"],
        mask: Mask | None = None,
        bias: Bias | None = None,
        *,
        layer_state: LayerState | None = None,
        queries: Rows = slice(None),
    ) -> Float[Tensor, "B H rows M"]:
        self.check(q, k, mask, bias)
        at, pool = (torch.arange(x.shape[2], device=x.device) for x in (q, k))
        allowed = self._allowed(at[queries, None], pool, k.shape[2], mask).squeeze(2)
        return masked_softmax(
            self._scores(q[:, :, queries], k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT), allowed
        ).to(q.dtype)

    def _scores(self, q: Tensor, k: Tensor) -> Tensor:
        return upcast(q @ k) * (q.shape[-1] ** -0.5 if self.scale is None else self.scale)

    def _allowed(self, at: Tensor, pool: Tensor, pools: int, mask: Mask | None) -> Tensor:
        """Return which pools exist and are near enough to the tokens `at`, #B 1 #blocks queries pools."""
        padding = None if mask is None else mask.padding
        lengths = torch.full((1,), pools, device=at.device) if padding is None else padding.lengths
        near = (at - pool * self.stride).abs() <= self.far // 2
        return near & (pool >= 0) & (pool < lengths.view(-1, 1, 1, 1, 1))


class Pool(nn.Module):
    """Pool the keys or values around every `stride`-th token: mean, max, or weights that this token decides."""

    def __init__(
        self, heads: int, head_dim: int, kernel: int, stride: int, pooling: Literal["mean", "max", "ldconv"]
    ) -> None:
        super().__init__()
        if kernel < stride:
            raise RegardError(f"kernel {kernel} is less than stride {stride}: tokens between would be in no pool")
        if pooling not in ("mean", "max", "ldconv"):
            raise UnknownName(f"no pooling is called '{pooling}'; known: mean, max, ldconv")
        self.kernel, self.stride, self.pooling = kernel, stride, pooling
        self.filter = nn.Parameter(torch.randn(heads, head_dim, kernel) / head_dim) if pooling == "ldconv" else None

    def forward(self, x: Float[Tensor, "B G N D"], lengths: Int[Tensor, "#B"]) -> Float[Tensor, "B G P D"]:
        """Return the pools of real tokens; those around padding are zero."""
        before = (self.kernel - 1) // 2
        after = self.kernel - 1 - before
        real = torch.arange(x.shape[2], device=x.device) < lengths[:, None]
        taps = F.pad(x, (0, 0, before, after)).unfold(2, self.kernel, self.stride)  # B G P D kernel
        there = F.pad(real, (before, after)).unfold(1, self.kernel, self.stride)[:, None]  # #B 1 P kernel
        if self.pooling == "max":
            found = taps.masked_fill(~there[..., None, :], torch.finfo(x.dtype).min).amax(-1)
            return found * there.any(-1, keepdim=True)
        scores = torch.zeros_like(there, dtype=x.dtype)
        if self.filter is not None:
            scores = x[:, :, :: self.stride] @ self.filter.to(x.dtype)
        return (taps * masked_softmax(scores, there).to(x.dtype)[..., None, :]).sum(-1)

    def extra_repr(self) -> str:
        return f"{self.pooling}, kernel={self.kernel}, stride={self.stride}"
