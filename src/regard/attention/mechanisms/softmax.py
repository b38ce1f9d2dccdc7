"""Softmax attention: a mean of the values, weighted by how well each key matches the query.

    softmax    o_n = Σ_m exp(q_n·k_m / √D) v_m  /  Σ_m exp(q_n·k_m / √D)        O(N M D)

Scores between all pairs, a softmax over the keys, a mean of the values. A query that sees no key gives zeros. Five
backends compute it, each a function of one signature: the formula written out (`eager`), PyTorch's fused kernels
(`sdpa`), FlexAttention (`flex`), which skips blocks that are fully masked, two batched products (`bmm`), the fastest on
a CPU for the few queries of a decoding step, and `sdpa_factorized`: the fused kernels with a factorised bias as more
coordinates of q and k, since the fastest kernels take no bias. On a GPU `sdpa` does so by itself.

Vaswani et al.: Attention Is All You Need. NeurIPS 2017. arXiv:1706.03762
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F

from regard.attention.edge_attention import EdgeMask, edge_attention
from regard.attention.mask import DocumentMask, Mask
from regard.attention.masked_softmax import masked_softmax
from regard.attention.mechanisms.dense import dense_mask, repeat_kv, scaled_products
from regard.attention.protocol import Mechanism, Traits
from regard.attention.varlen import varlen_attention
from regard.core.errors import UnknownName, Unsupported, did_you_mean
from regard.core.layer_state import LayerState
from regard.core.positions import Bias, FactorizedBias
from regard.core.shapes import Float, Rows, Tensor
from regard.core.validation import Fraction

NORMALIZER_KEYS = 64  # keys whose weights tell the normalizers: as many as a head is usually wide
LEAST_WEIGHT = 1e-30  # from which on they do, far above what float32 rounds to zero
QUERY_CHUNK = 256  # rows whose scores are held at once

Backend = Callable[[Tensor, Tensor, Tensor, "Mask | None", "Bias | None", float, float], Tensor]


class SoftmaxAttention(Mechanism):
    """Scaled dot-product attention; `scale=None` is 1/√D."""

    traits = Traits(cost="N M D", paper="1706.03762")

    def __init__(self, dropout: Fraction = 0.0, scale: float | None = None, backend: str = "sdpa") -> None:
        super().__init__()
        if backend not in BACKENDS:
            raise UnknownName(f"softmax attention has no backend '{backend}'; {did_you_mean(backend, BACKENDS)}")
        self.dropout, self.scale, self.backend = dropout, scale, backend

    def mix(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask | None,
        bias: Bias | None,
        layer_state: LayerState | None = None,
    ) -> Tensor:
        scale = q.shape[-1] ** -0.5 if self.scale is None else self.scale
        return BACKENDS[self.backend](q, k, v, mask, bias, scale, self.dropout if self.training else 0.0)

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
        scale = q.shape[-1] ** -0.5 if self.scale is None else self.scale
        return _weights(q, k, mask, bias, scale, queries)

    def log_normalizers(
        self, q: Float[Tensor, "B H N D"], k: Float[Tensor, "B H M D"], mask: Mask | None = None
    ) -> Float[Tensor, "B H N"]:
        """Return log Z of each query, Z = Σ_m exp(score); -inf where a query sees no key.

        A weight and its score tell it: log Z = s - log w. The fused kernels give the weights of a few keys; rows in
        which these have next to no weight are summed up.
        """
        m, scale = k.shape[2], q.shape[-1] ** -0.5 if self.scale is None else self.scale
        keys = torch.arange(0, m, -(-m // NORMALIZER_KEYS), device=k.device)
        one_hot = F.one_hot(keys, m).T.to(q).expand(*k.shape[:2], -1, -1).contiguous()  # else no fused kernel
        weight, at = self.mix(q, k, one_hot, mask, None).max(-1)
        found = scaled_products(q, k[:, :, keys], scale).gather(-1, at[..., None])[..., 0] - weight.log()
        rows = (weight < LEAST_WEIGHT).flatten(0, 1).any(0).nonzero()[:, 0].tolist()
        for start in range(0, len(rows), QUERY_CHUNK):
            some = rows[start : start + QUERY_CHUNK]
            scores, allowed = scaled_products(q[:, :, some], k, scale), dense_mask(q, k, mask, some)
            scores = scores if allowed is None else scores.masked_fill(~allowed, float("-inf"))
            found[:, :, some] = scores.logsumexp(-1)
        return found

    def columns(
        self,
        q: Float[Tensor, "B H N D"],
        k: Float[Tensor, "B G M D"],
        keys: list[int],
        log_normalizers: Float[Tensor, "B H N"],
        mask: Mask | None = None,
    ) -> Float[Tensor, "B H N n"]:
        """Return some columns of `weights`: O(N n D), since the normalizers are known."""
        scale = q.shape[-1] ** -0.5 if self.scale is None else self.scale
        weights = (scaled_products(q, k[:, :, keys], scale) - log_normalizers[..., None]).exp()
        if mask is None:
            return weights.to(q.dtype)
        n, m = q.shape[2], k.shape[2]
        b = torch.arange(len(q), device=q.device)[:, None, None]
        queries = torch.arange(m - n, m, device=q.device)[None, :, None]
        allowed = mask.allow(b, queries, torch.tensor(keys, device=q.device)[None, None])
        return weights.masked_fill(~allowed[:, None], 0.0).to(q.dtype)

    def extra_repr(self) -> str:
        return f"backend={self.backend}, dropout={self.dropout}, scale={self.scale or '1/√D'}"


def _weights(
    q: Tensor, k: Tensor, mask: Mask | None, bias: Bias | None, scale: float, rows: Rows = slice(None)
) -> Tensor:
    scores = scaled_products(q[:, :, rows], k, scale)
    scores = scores if bias is None else scores + bias.dense(rows)
    return masked_softmax(scores, dense_mask(q, k, mask, rows)).to(q.dtype)


def eager(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask | None, bias: Bias | None, scale: float, dropout: float
) -> Tensor:
    """The formula written out: the reference implementation of the other backends."""
    w = F.dropout(_weights(q, k, mask, bias, scale), dropout) if dropout else _weights(q, k, mask, bias, scale)
    return w @ repeat_kv(v, q.shape[1])


def sdpa(q: Tensor, k: Tensor, v: Tensor, mask: Mask | None, bias: Bias | None, scale: float, dropout: float) -> Tensor:
    """PyTorch's fused kernels; concatenated texts are attended to text by text, graphs of few edges edge by edge."""
    if isinstance(mask, EdgeMask) and q.shape[1] == k.shape[1]:
        return edge_attention(q, k, v, mask, bias, scale, dropout)
    if isinstance(mask, DocumentMask) and bias is None and q.shape == k.shape:
        return varlen_attention(q, k, v, mask, scale, dropout)
    if q.is_cuda and isinstance(bias, FactorizedBias):
        return sdpa_factorized(q, k, v, mask, bias, scale, dropout)
    dense = None if bias is None else bias.dense().to(q.dtype)
    if mask is not None:
        how = mask.sdpa(k.shape[0], q.shape[2], k.shape[2], q.dtype, q.device, dense)
    else:
        how = {} if dense is None else {"attn_mask": dense}
    grouped = q.shape[1] != k.shape[1]
    return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, scale=scale, enable_gqa=grouped, **how)


def flex(q: Tensor, k: Tensor, v: Tensor, mask: Mask | None, bias: Bias | None, scale: float, dropout: float) -> Tensor:
    """FlexAttention: masks and biases as formulas inside one fused kernel; on a CPU for inference only."""
    block_mask = None if mask is None else mask.flex(k.shape[0], q.shape[2], k.shape[2], q.device)
    return flex_attention(q, k, v, block_mask, bias, scale, dropout, f"{mask and _mask_structure(mask)}")


def flex_attention(
    q: Tensor, k: Tensor, v: Tensor, block_mask: Any, bias: Bias | None, scale: float, dropout: float, formula: str
) -> Tensor:
    """Run FlexAttention with a block mask, compiled once for each formula of the mask, or refuse."""
    if dropout:
        raise Unsupported("the flex backend has no attention dropout; set attention_dropout=0 or use another backend")
    if not q.is_cuda and torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        raise Unsupported("FlexAttention has no gradient on the CPU; use another backend to train there")
    score = None
    if bias is not None:
        score = bias.score_mod()
        if score is None:
            raise Unsupported(f"{type(bias).__name__} has no formula for FlexAttention; use another backend")
    formula = f"{formula} {type(bias).__name__} {q.device.type}"
    run = _compiled_flex(formula) if _can_compile(q.device.type) else _eager_flex
    out: Tensor = run(q, k, v, score_mod=score, block_mask=block_mask, scale=scale, enable_gqa=q.shape[1] != k.shape[1])
    return out


def bmm(q: Tensor, k: Tensor, v: Tensor, mask: Mask | None, bias: Bias | None, scale: float, dropout: float) -> Tensor:
    """Two batched products: on a CPU faster than the fused kernel for few queries."""
    (b, h, n, d), g, m = q.shape, k.shape[1], k.shape[2]
    q = q.reshape(b * g, h // g * n, d)  # heads that share keys are more queries
    k, v = k.reshape(b * g, m, d), v.reshape(b * g, m, v.shape[3])  # no -1: a batch may be empty
    added = None if bias is None else bias.dense().to(q.dtype)
    empty_rows = None
    if mask is not None:
        added = mask.additive(b, n, m, q.dtype, q.device, added)
        empty_rows = mask.empty_rows(b, n, m, q.device)
        if empty_rows is not None:  # -inf alone would be nan, and its gradient too; their weights are zero below
            added = added.masked_fill(empty_rows, 0.0)
    if added is None:
        scores = torch.baddbmm(q.new_zeros(1, 1, 1), q, k.mT, beta=0, alpha=scale)
    else:
        scores = torch.baddbmm(added.expand(b, h, n, m).reshape(b * g, h // g * n, m), q, k.mT, alpha=scale)
    weights = scores.softmax(-1)
    if empty_rows is not None:
        weights = weights.masked_fill(empty_rows.expand(b, h, n, 1).reshape(b * g, h // g * n, 1), 0.0)
    weights = F.dropout(weights, dropout) if dropout else weights
    return torch.bmm(weights, v).view(b, h, n, v.shape[2])


def sdpa_factorized(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask | None, bias: Bias | None, scale: float, dropout: float
) -> Tensor:
    """PyTorch's fused kernels; a factorised bias joins q and k, so nothing of size N × M is made for it."""
    if not isinstance(bias, FactorizedBias):
        return sdpa(q, k, v, mask, bias, scale, dropout)
    q, k = bias.fold_into_qk(q, k, scale)
    wide = F.pad(v, (0, q.shape[-1] - v.shape[-1]))  # flash kernels need one width for all three
    return sdpa(q, k, wide, mask, None, scale, dropout)[..., : v.shape[-1]]


BACKENDS: dict[str, Backend] = {
    "eager": eager,
    "sdpa": sdpa,
    "flex": flex,
    "bmm": bmm,
    "sdpa_factorized": sdpa_factorized,
}


def _mask_structure(mask: Mask) -> str:
    parts = getattr(mask, "parts", ())
    return f"{type(mask).__name__}({','.join(map(_mask_structure, parts))})"


def _eager_flex(*args: Any, **kwargs: Any) -> Tensor:
    from torch.nn.attention.flex_attention import flex_attention

    out: Tensor = flex_attention(*args, **kwargs)
    return out


@lru_cache(maxsize=256)
def _compiled_flex(formula: str) -> Callable[..., Tensor]:
    """Return one compiled function for each formula.

    Past 8 compilations of the same code dynamo falls back silently to kernels that are not fused, and closures of one
    function share their code: each gets a copy.
    """

    def attend(*args: Any, **kwargs: Any) -> Tensor:
        return _eager_flex(*args, **kwargs)

    attend.__code__ = attend.__code__.replace()
    return torch.compile(attend, dynamic=False)


@lru_cache(maxsize=4)
def _can_compile(device: str) -> bool:
    """Whether inductor can compile: on a CPU it needs a C++ compiler, without which FlexAttention runs unfused."""
    if device != "cpu":
        return True
    from torch._inductor.cpp_builder import get_cpp_compiler

    try:
        return bool(get_cpp_compiler())
    except Exception:  # of any kind, if it finds none
        return False
