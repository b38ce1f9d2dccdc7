"""Variable-length attention: texts concatenated in one row, without scores between two texts.

    padded     B · N² scores, N the longest            and B · N rows through every other layer
    packed     Σ_b n_b²                                and Σ_b n_b rows

On a GPU in half precision one kernel processes all texts (PyTorch's variable-length FlashAttention). Elsewhere,
adjacent texts of equal length are one call of the fused kernel, without a mask. Both are tested against the dense mask.

Dao: FlashAttention-2. 2023. arXiv:2307.08691; Zhai et al.: ByteTransformer (padding-free). IPDPS 2023. arXiv:2210.03052
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F

from regard.attention.mask import DocumentMask
from regard.core.lazy_dynamo import assume_constant_result
from regard.core.shapes import Float, Tensor


def varlen_attention(
    q: Float[Tensor, "1 H T D"],
    k: Float[Tensor, "1 H T D"],
    v: Float[Tensor, "1 H T E"],
    mask: DocumentMask,
    scale: float,
    dropout: float = 0.0,
) -> Float[Tensor, "1 H T E"]:
    """Apply softmax attention within each text."""
    if q.is_cuda and not dropout and has_varlen_kernel(q.device, q.dtype) and v.shape == q.shape:
        return _varlen_kernel(q, k, v, mask, scale)
    q, k, v = q[0].transpose(0, 1), k[0].transpose(0, 1), v[0].transpose(0, 1)  # T H D
    parts = []
    for start, count, n in _equal_length_runs(mask.lengths.tolist()):
        rows = slice(start, start + count * n)
        a, b, c = (x[rows].unflatten(0, (count, n)).transpose(1, 2) for x in (q, k, v))  # count H n D
        out = F.scaled_dot_product_attention(a, b, c, dropout_p=dropout, scale=scale)
        parts.append(out.transpose(1, 2).flatten(0, 1))
    return (parts[0] if len(parts) == 1 else torch.cat(parts)).transpose(0, 1)[None]


def _varlen_kernel(q: Tensor, k: Tensor, v: Tensor, mask: DocumentMask, scale: float) -> Tensor:
    """Process all texts with one kernel."""
    from torch.nn.attention.varlen import varlen_attn

    a, b, c = (x[0].transpose(0, 1) for x in (q, k, v))  # T H D
    longest = -(-mask.max_length // 64) * 64  # an upper bound, rounded so that fewer graphs are compiled
    scaling: dict[str, Any] = {} if scale == q.shape[-1] ** -0.5 else {"scale": scale}
    out: Any = varlen_attn(a, b, c, mask.cu_seqlens, mask.cu_seqlens, longest, longest, **scaling)
    heads: Tensor = out.transpose(0, 1)[None]
    return heads


def _equal_length_runs(lengths: list[int]) -> Iterator[tuple[int, int, int]]:
    """Yield runs of adjacent texts of equal length: start, count and length."""
    start = first = 0
    for i in range(1, len(lengths) + 1):
        if i == len(lengths) or lengths[i] != lengths[first]:
            if lengths[first]:
                yield start, i - first, lengths[first]
            start, first = start + (i - first) * lengths[first], i


@lru_cache(maxsize=8)
@assume_constant_result
def has_varlen_kernel(device: torch.device, dtype: torch.dtype) -> bool:
    """Does the kernel for texts of many lengths work here? Tried once: older PyTorch and some GPUs lack it."""
    if device.type != "cuda" or dtype not in (torch.float16, torch.bfloat16):
        return False
    try:
        from torch.nn.attention.varlen import varlen_attn

        x = torch.ones(3, 1, 64, device=device, dtype=dtype)
        ends = torch.tensor([0, 1, 3], device=device, dtype=torch.int32)
        with torch.no_grad():
            out: Any = varlen_attn(x, x, x, ends, ends, 64, 64)
        return bool(torch.equal(out, x))
    except Exception:  # of any kind, from a build without it
        return False
