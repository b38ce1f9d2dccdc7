"""Linear attention: swap exp(q·k) for a product of feature maps, then re-bracket.

    softmax    o_n = Σ_m exp(q_n·k_m) v_m      / Σ_m exp(q_n·k_m)        O(N M D)
    linear     o_n = φ(q_n)ᵀ Σ_m φ(k_m) v_mᵀ   / φ(q_n)ᵀ Σ_m φ(k_m)      O((N + M) D²)

The sums over m no longer depend on n: take them once or, when causal, carry them along. In training that is done chunk
by chunk: within a chunk the products q·k are formed, everything before it comes from the running sums. When decoding,
the running sums are the whole state, so a step costs the same however long the text. φ(x) = elu(x) + 1 is positive, so
the denominator never vanishes. Sums are taken in float32.

Katharopoulos, Vyas, Pappas, Fleuret: Transformers are RNNs. ICML 2020. arXiv:2006.16236
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from regard.attention.kv_cache import BeamTable
from regard.attention.mask import Mask
from regard.attention.masked_softmax import upcast
from regard.attention.protocol import Mechanism, Traits
from regard.core.layer_state import LayerState
from regard.core.positions import Bias
from regard.core.shapes import Float, Int, Rows, Tensor


class LinearAttention(Mechanism):
    """Attention with the kernel φ(q)·φ(k); `chunk` is the number of tokens whose products are formed at a time."""

    traits = Traits(
        cost="(N + M) D²",
        paper="2006.16236",
        masks=frozenset({"causal", "padding"}),
        bias=False,
        exact=False,
        family="linearised",
    )

    def __init__(self, chunk: int = 64) -> None:
        super().__init__()
        self.chunk = chunk

    def mix(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask | None,
        bias: Bias | None,
        layer_state: LayerState | None = None,
    ) -> Tensor:
        n, m = q.shape[2], k.shape[2]
        q, k = feature(q), feature(k)
        if mask is not None and mask.padding is not None:
            k = k * mask.padding.real(m)[:, None, :, None]  # a padded key enters neither sum
        q = q.unflatten(1, (k.shape[1], -1))  # B G H/G N D: query heads that share a key head
        k, v = k[:, :, None], v[:, :, None]
        if mask is None or "causal" not in mask.kinds:
            kv, total = _sums(k, v)
            out = _divide(q @ kv.to(v.dtype), q @ total.to(v.dtype)[..., None])
        elif n > m:  # the first n - m queries stand before all keys and see nothing
            out = F.pad(self._causal(q[..., n - m :, :], k, v), (0, 0, n - m, 0))
        else:
            before = (k[..., : m - n, :], v[..., : m - n, :]) if n < m else None
            out = self._causal(q, k[..., m - n :, :], v[..., m - n :, :], before)
        return out.flatten(1, 2)

    def _causal(self, q: Tensor, k: Tensor, v: Tensor, before: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Attend to the keys up to each query, and to all those `before`; q, k, v of equal length."""
        n, size = q.shape[-2], min(self.chunk, max(q.shape[-2], 1))
        q, k, v = (F.pad(x, (0, 0, 0, -n % size)).unflatten(-2, (-1, size)) for x in (q, k, v))  # ... chunks size D
        kv, total = _sums(k, v)  # of each chunk
        kv, total = kv.cumsum(-3) - kv, total.cumsum(-2) - total  # of all chunks before it
        if before is not None:
            earlier = _sums(*before)
            kv, total = kv + earlier[0].unsqueeze(-3), total + earlier[1].unsqueeze(-2)
        near = (q @ k.mT).tril()
        top = near @ v + q @ kv.to(v.dtype)
        bottom = near.sum(-1, keepdim=True) + q @ total.to(v.dtype)[..., None]
        return _divide(top, bottom).flatten(-3, -2)[..., :n, :]

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
        products = feature(q[:, :, queries]) @ feature(k).repeat_interleave(q.shape[1] // k.shape[1], 1).mT
        if mask is not None:
            products = products * mask.dense(k.shape[0], q.shape[2], k.shape[2], q.device, queries)
        return _divide(products, products.sum(-1, keepdim=True))

    # -- decoding with a running state ---------------------------------------------------------------------------------

    def start(self, batch: int, capacity: int) -> Any:
        return RunningSums()

    def prefill(
        self,
        q: Float[Tensor, "B H N D"],
        k: Float[Tensor, "B G N D"],
        v: Float[Tensor, "B G N E"],
        state: Any,
        beam_table: BeamTable,
        mask: Mask | None = None,
        bias: Bias | None = None,
        *,
        layer_state: LayerState | None = None,
    ) -> tuple[Float[Tensor, "B H N E"], Any]:
        real = beam_table.allow[:, :, : k.shape[2], None]  # B 1 N 1: padding of shorter prompts enters no sum
        kv, total = _sums(feature(k) * real, v)
        return self(q, k, v, mask, bias, layer_state=layer_state), RunningSums(kv[:, None], total[:, None])

    def step(
        self,
        q: Float[Tensor, "B H K D"],
        k: Float[Tensor, "B G K D"],
        v: Float[Tensor, "B G K E"],
        state: Any,
        beam_table: BeamTable,
        mask: Mask | None = None,
        bias: Bias | None = None,
        *,
        layer_state: LayerState | None = None,
    ) -> tuple[Float[Tensor, "B H K E"], Any]:
        self.check(q, k, None, bias)
        q, k, v = (x.transpose(1, 2)[..., None, :] for x in (feature(q), feature(k), v))  # B K heads 1 D
        state = state.add(*_sums(k, v))
        q = q.squeeze(3).unflatten(2, (k.shape[2], -1))  # B K G H/G D
        out = _divide(q @ state.kv.to(v.dtype), q @ state.total.to(v.dtype)[..., None])
        return out.flatten(2, 3).transpose(1, 2), state

    def extra_repr(self) -> str:
        return f"chunk={self.chunk}"


@dataclass(eq=False)
class RunningSums:
    """The decoding state: Σ φ(k) vᵀ and Σ φ(k) over the tokens of each beam; None before the first."""

    kv: Any = None  # B K G D E
    total: Any = None  # B K G D
    frozen: bool = False

    def add(self, kv: Tensor, total: Tensor) -> RunningSums:
        """Return the sums with the newest token of every beam."""
        if self.kv is None:
            return RunningSums(kv, total, self.frozen)
        return self._replace(self.kv + kv, self.total + total)

    def select(self, rows: Int[Tensor, " R"] | None, beams: Int[Tensor, "R K"]) -> RunningSums:
        """Keep the inputs `rows` (None: all), of each the beams `beams`."""
        if self.kv is None:
            return self
        own = (torch.arange(beams.shape[0], device=beams.device) if rows is None else rows)[:, None]
        return self._replace(self.kv[own, beams], self.total[own, beams])

    def freeze(self) -> RunningSums:
        """Return sums that steps write in place, so that a captured step reads what it wrote."""
        return RunningSums(self.kv, self.total, True)

    def _replace(self, kv: Tensor, total: Tensor) -> RunningSums:
        if self.frozen and kv.shape == self.kv.shape:
            self.kv.copy_(kv)
            self.total.copy_(total)
            return self
        return RunningSums(kv, total, self.frozen)


def feature(x: Float[Tensor, "*any D"]) -> Float[Tensor, "*any D"]:
    """φ(x) = elu(x) + 1."""
    return (F.elu(upcast(x)) + 1).to(x.dtype)


def _sums(k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Σ φ(k) vᵀ, ... D E, and Σ φ(k), ... D, in float32 at least."""
    return upcast(k.mT @ v), upcast(k).sum(-2)


def _divide(top: Tensor, bottom: Tensor) -> Tensor:
    """top / bottom, and zero for a query that sees no key."""
    return top / torch.where(bottom > 0, bottom, 1.0)
