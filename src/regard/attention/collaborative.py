"""Collaborative heads: all heads share one set of key and query dimensions, and each weighs them in its own way.

    heads            s_h = (x W_q,h) (c W_k,h)^T / √D                       W_q,h, W_k,h: C x D each
    collaborative    s_h = (x W_q diag(m_h)) (c W_k)^T / √D                  W_q, W_k: C x K,  m_h: K numbers a head

Heads often learn projections that overlap, so a shared space of K < H D dimensions is enough for all: the matrix m,
H x K, says which dimensions a head uses. Separate heads are the special case K = H D where each head's row of m is one
on D dimensions of its own, so a trained layer can be converted (`from_multihead`), exactly at full rank and by a tensor
decomposition of the products W_q,h W_k,h^T below it. The cost of scores is N M K for each head.

Differs from the paper: the bias of queries is one more input of the shared projection, where the paper keeps its
product with the keys as a vector for each head.

Cordonnier, Loukas, Jaggi: Multi-Head Attention: Collaborate Instead of Concatenate. 2020. arXiv:2006.16362
"""

from __future__ import annotations

import torch
from torch import nn

from regard.attention.projections import QKVProjection
from regard.core.errors import RegardError, Unsupported
from regard.core.shapes import Float, Tensor


class CollaborativeProjection(nn.Module):
    """Project x to queries of all heads in a shared space of `key_dim` dimensions (None: H D), to keys and values."""

    def __init__(
        self,
        width: int,
        heads: int,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        key_dim: int | None = None,
        bias: bool = True,
        norms: tuple[nn.Module, nn.Module] | None = None,
    ) -> None:
        super().__init__()
        if norms is not None:
            raise Unsupported(
                "collaborative heads share their keys, so these cannot be normed by head; use qk_norm=None"
            )
        self.kv_heads, self.head_dim = kv_heads or heads, head_dim or width // heads
        self.key_dim = key_dim or heads * self.head_dim
        self.qk = nn.Linear(width, 2 * self.key_dim, bias=bias)
        self.v = nn.Linear(width, self.kv_heads * self.head_dim, bias=bias)
        self.mixing = nn.Parameter(0.2 * torch.randn(heads, self.key_dim))

    def forward(
        self, x: Float[Tensor, "B N C"], qk_positions: Float[Tensor, "#B N C"] | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return q B H N K, k B G N K and v B G N D."""
        q, k = self.qk(x if qk_positions is None else x + qk_positions.to(x.dtype)).chunk(2, -1)
        v: Tensor = self.v(x).unflatten(-1, (self.kv_heads, self.head_dim)).transpose(1, 2)
        scale = (self.key_dim / self.head_dim) ** 0.5  # scores are divided by √K, and should be by √D
        q = q[:, None] * (scale * self.mixing).to(q.dtype)[:, None]
        return q, k[:, None].expand(-1, self.kv_heads, -1, -1), v

    @staticmethod
    @torch.no_grad()
    def from_multihead(project: QKVProjection, key_dim: int | None = None, steps: int = 200) -> CollaborativeProjection:
        """Return a projection with the scores of a trained one: the same at full rank, else near in `steps` steps."""
        if project.q_norm is not None:
            raise Unsupported("heads whose keys are normed cannot share them; convert a layer without QK-norm")
        groups, each, dim = project.kv_heads, project.heads_per_kv, project.head_dim
        heads, width = groups * each, project.qkv.in_features
        has_bias = project.qkv.bias is not None
        rows = project.qkv.weight  # a bias is the weight of one more input, which is 1
        rows = torch.cat([rows, project.qkv.bias[:, None]], 1) if has_bias else rows
        q, k, v = rows.unflatten(0, (groups, each + 2, dim)).split((each, 1, 1), dim=1)
        q, k = q.flatten(0, 1), k.squeeze(1).repeat_interleave(each, 0)  # H D C
        key_dim = key_dim or heads * dim
        if key_dim > heads * dim:
            raise RegardError(f"key_dim must be at most {heads * dim}, the dimensions of all heads, got {key_dim}")
        if key_dim == heads * dim:
            mixing = torch.eye(heads, dtype=rows.dtype, device=rows.device).repeat_interleave(dim, 1)
            factors = mixing, q.flatten(0, 1).T, k.flatten(0, 1).T
        else:
            factors = _decompose(q.mT @ k, key_dim, steps)
        found = CollaborativeProjection(width, heads, groups, dim, key_dim, has_bias).to(rows)
        found.mixing.copy_(factors[0])
        found.qk.weight.copy_(torch.cat([factors[1], factors[2]], 1).T[:, :width])
        found.v.weight.copy_(v.flatten(0, 2)[:, :width])
        if has_bias:
            found.qk.bias.copy_(torch.cat([factors[1], factors[2]], 1)[width])
            found.v.bias.copy_(v.flatten(0, 2)[:, width])
        return found


def _decompose(products: Float[Tensor, "H C C2"], rank: int, steps: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return m H K, a C K and b C2 K with products_h ≈ a diag(m_h) b^T, by alternating least squares."""
    generator = torch.Generator(products.device).manual_seed(0)
    factors = [
        torch.randn(size, rank, generator=generator, dtype=products.dtype, device=products.device)
        for size in products.shape
    ]
    for step in range(3 * steps):
        axis = step % 3
        one, other = (factors[i] for i in range(3) if i != axis)
        pairs = (one[:, None] * other[None]).flatten(0, 1)  # all pairs of the other two axes
        target = products.movedim(axis, 0).flatten(1).T
        factors[axis] = torch.linalg.lstsq(pairs, target).solution.T
        if axis:  # one scale for each dimension: the mixing holds it
            factors[axis] = factors[axis] / factors[axis].norm(dim=0).clamp_min(1e-12)
    factors[0] = torch.linalg.lstsq(
        (factors[1][:, None] * factors[2][None]).flatten(0, 1), products.flatten(1).T
    ).solution.T
    return factors[0], factors[1], factors[2]
