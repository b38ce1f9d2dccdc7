"""Kernel attention: the sums over the keys do not depend on the query, so they are taken once or carried along.

    softmax    o_n = Σ_m exp(q_n·k_m) v_m      / Σ_m exp(q_n·k_m)        O(N M D)
    kernel     o_n = φ(q_n)ᵀ Σ_m φ(k_m) v_mᵀ   / φ(q_n)ᵀ Σ_m φ(k_m)      O((N + M) R E), of R features

`KernelAttention` is the base of the linearised mechanisms: one of them names its features φ and, where older keys fade,
a gate. Causal attention goes chunk by chunk: within a chunk the products φ(q)·φ(k) are formed, everything before it
comes from the running sums. When decoding, `RunningSums` are the whole state, so a step costs the same however long the
text. Sums are taken in float32; with float16 inputs, all products of features too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from regard.attention.kv_cache import BeamTable
from regard.attention.mask import Mask
from regard.attention.masked_softmax import upcast
from regard.attention.protocol import Mechanism
from regard.attention.running_state import RunningState
from regard.core.errors import Unsupported
from regard.core.layer_state import LayerState
from regard.core.positions import Bias
from regard.core.shapes import Float, Rows, Tensor


class KernelAttention(Mechanism):
    """Attention with the kernel φ(q)·φ(k); `chunk` is the number of tokens whose products are formed at a time."""

    heads: int | None = None  # what parameters and buffers were made for; None: any
    head_dim: int | None = None

    def __init__(self, chunk: int = 64) -> None:
        super().__init__()
        self.chunk = chunk

    def query_features(self, q: Float[Tensor, "B H N D"]) -> Float[Tensor, "B H N R"]:
        """Return φ(q)."""
        raise NotImplementedError

    def key_features(self, k: Float[Tensor, "B G M D"]) -> Float[Tensor, "B heads M R"]:
        """Return φ(k), for each key head or, where heads have parameters of their own, for each query head."""
        raise NotImplementedError

    def gate(self, k: Float[Tensor, "B G M D"]) -> Float[Tensor, "B heads M"] | None:
        """Return the logarithm of the factor by which each key lets the older ones fade; None: they do not."""
        return None

    def normalise(self, top: Tensor, bottom: Tensor) -> Tensor:
        """Return top / bottom, and zero for a query that sees no key."""
        return top / torch.where(bottom > 0, bottom, 1.0)

    def check(self, q: Tensor, k: Tensor, mask: Mask | None, bias: Bias | None) -> None:
        super().check(q, k, mask, bias)
        for what, size, found in (("heads", self.heads, q.shape[1]), ("head width", self.head_dim, q.shape[3])):
            if size not in (None, found):
                raise Unsupported(f"{type(self).__name__} was built for {what} {size}, got {found}")

    def mix(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask | None,
        bias: Bias | None,
        layer_state: LayerState | None = None,
    ) -> Tensor:
        (n, m), dtype = (q.shape[2], k.shape[2]), v.dtype
        padding = None if mask is None else mask.padding
        real = None if padding is None else padding.real(m)[:, None]
        q, k, v, gate = self._features(q, k, v, real)
        q = q.unflatten(1, (k.shape[1], -1))  # B G H/G N R: query heads that share a key head
        k, v, gate = k[:, :, None], v[:, :, None], None if gate is None else gate[:, :, None]
        if mask is None or "causal" not in mask.kinds:
            out = self._read(q, *self._sums(k, v, gate))
        elif n > m:  # the first n - m queries stand before all keys and see nothing
            out = F.pad(self._causal(q[..., n - m :, :], k, v, gate), (0, 0, n - m, 0))
        else:
            own = slice(m - n, m)
            own_gate, old_gate = (None, None) if gate is None else (gate[..., own], gate[..., : m - n])
            before = self._sums(k[..., : m - n, :], v[..., : m - n, :], old_gate) if n < m else None
            out = self._causal(q, k[..., own, :], v[..., own, :], own_gate, before)
        return out.flatten(1, 2).to(dtype)

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
        features, gate = self.key_features(k), self.gate(k)
        products = self.query_features(q)[:, :, queries] @ _repeat(features, q.shape[1]).mT
        if gate is not None:
            products = products * self._fading(gate, q, mask)[:, :, queries]
        if mask is not None:
            products = products * mask.dense(k.shape[0], q.shape[2], k.shape[2], q.device, queries)
        return self.normalise(products, products.sum(-1, keepdim=True)).to(q.dtype)

    def _fading(self, gate: Tensor, q: Tensor, mask: Mask | None) -> Float[Tensor, "B H N M"]:
        """Return what is left of each key when each query reads: at its own place, or after all keys."""
        m = gate.shape[-1]
        if mask is not None and mask.padding is not None:
            gate = gate * mask.padding.real(m)[:, None]
        total = _repeat(gate, q.shape[1]).cumsum(-1)
        if mask is None or "causal" not in mask.kinds:
            return (total[..., -1:] - total).exp()[..., None, :].expand(-1, -1, q.shape[2], -1)
        place = torch.arange(m - q.shape[2], m, device=q.device)
        left = total[..., place.clamp(min=0), None] - total[..., None, :]
        return left.masked_fill(place[:, None] < torch.arange(m, device=q.device), float("-inf")).exp()

    # -- sums over the keys; k ... M R, v ... M E, gate ... M ----------------------------------------------------------

    def _features(self, q: Tensor, k: Tensor, v: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Any]:
        """Return φ(q), φ(k), v with as many heads as φ(k), and the gate; a padded key enters no sum."""
        gate = self.gate(k)
        q, k = self.query_features(q), self.key_features(k)
        if real is not None:
            k = k * real[..., None]
            gate = None if gate is None else gate * real
        return q, k, _repeat(v, k.shape[1]).to(k.dtype), gate

    def _sums(self, k: Tensor, v: Tensor, gate: Tensor | None) -> tuple[Tensor, Any]:
        """Return Σ φ(k) vᵀ, ... R E, and Σ φ(k), ... R, after the last key, in float32 at least."""
        if gate is not None:
            k = k * (gate.flip(-1).cumsum(-1).flip(-1) - gate).exp()[..., None].to(k.dtype)  # what later keys leave
        return upcast(k.mT @ v), upcast(k).sum(-2)

    def _read(self, q: Tensor, kv: Tensor, total: Tensor) -> Tensor:
        return self.normalise(q @ kv.to(q.dtype), q @ total.to(q.dtype)[..., None])

    def _causal(
        self, q: Tensor, k: Tensor, v: Tensor, gate: Tensor | None, before: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        """Attend to the keys up to each query, and to those summed in `before`; q, k, v of equal length."""
        n = q.shape[-2]
        q, k, v = (split_chunks(x, self.chunk) for x in (q, k, v))  # ... chunks size R
        gate = None if gate is None else split_chunks(gate[..., None], self.chunk)[..., 0]
        kv, total = self._sums(k, v, gate)  # of each chunk
        if gate is None:
            kv, total = kv.cumsum(-3) - kv, total.cumsum(-2) - total  # of all chunks before it
            if before is not None:
                kv, total = kv + before[0].unsqueeze(-3), total + before[1].unsqueeze(-2)
        else:
            kv, total = _fade_along(kv, total, gate.sum(-1).exp(), before)
        near = (q @ k.mT).tril()
        if gate is not None:
            inside = gate.cumsum(-1)
            left = (inside[..., :, None] - inside[..., None, :]).tril()  # the rest is zero in `near` already
            near, q = near * left.exp().to(q.dtype), q * inside.exp()[..., None].to(q.dtype)
        top = near @ v + q @ kv.to(v.dtype)
        bottom = near.sum(-1, keepdim=True) + q @ total.to(v.dtype)[..., None]
        return self.normalise(top, bottom).flatten(-3, -2)[..., :n, :]

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
        real = beam_table.allow[:, :, : k.shape[2]]  # B 1 N: padding of shorter prompts enters no sum
        _, features, values, gate = self._features(q, k, v, real)
        kv, total = self._sums(features, values, gate)
        state = RunningSums(kv[:, None], None if total is None else total[:, None])
        return self(q, k, v, mask, bias, layer_state=layer_state), state

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
        dtype = v.dtype
        q, k, v, gate = self._features(q, k, v, None)
        q, k, v = (x.transpose(1, 2)[..., None, :] for x in (q, k, v))  # B K heads 1 R
        state = self._add(state, k, v, None if gate is None else gate.transpose(1, 2)[..., None])
        q = q.squeeze(3).unflatten(2, (k.shape[2], -1))  # B K G H/G R
        return self._read(q, state.kv, state.total).flatten(2, 3).transpose(1, 2).to(dtype), state

    def _add(self, state: RunningSums, k: Tensor, v: Tensor, gate: Tensor | None) -> RunningSums:
        """Return the sums with the newest token of every beam."""
        kv, total = self._sums(k, v, None)
        if state.kv is None:
            return state.replace(kv, total)
        if gate is None:
            return state.replace(state.kv + kv, state.total + total)
        left = gate.exp()
        return state.replace(state.kv * left[..., None] + kv, state.total * left + total)

    def extra_repr(self) -> str:
        return f"chunk={self.chunk}"


class RandomKernelAttention(KernelAttention):
    """Kernel attention whose features come from random projections, a buffer drawn from `seed`.

    They are drawn anew after every `redraw_interval` updates (None: never), and differ from layer to layer.
    """

    projection: Tensor
    updates: Tensor

    def __init__(self, shape: tuple[int, ...], seed: int, layer: int, redraw_interval: int | None, chunk: int) -> None:
        super().__init__(chunk)
        self.head_dim, self.seed, self.layer, self.redraw_interval = shape[-1], seed, layer, redraw_interval
        self.register_buffer("projection", self.draw(shape, self._layer_seed(seed)))
        self.register_buffer("updates", torch.zeros((), dtype=torch.long))

    def draw(self, shape: tuple[int, ...], seed: int) -> Tensor:
        """Return random projections; the same for the same seed."""
        raise NotImplementedError

    @torch.no_grad()
    def redraw(self, seed: int) -> None:
        """Draw other projections."""
        self.projection.copy_(self.draw(tuple(self.projection.shape), self._layer_seed(seed)))

    def _layer_seed(self, seed: int) -> int:
        return seed * 1009 + self.layer

    def after_update(self) -> None:
        """Count the updates, and redraw when their time has come; called by the training loop."""
        if self.redraw_interval is None:
            return
        self.updates += 1
        if self.updates % self.redraw_interval == 0:
            self.redraw(self.seed + int(self.updates) // self.redraw_interval)

    def extra_repr(self) -> str:
        return f"features={self.projection.shape[-2]}, seed={self.seed}, {super().extra_repr()}"


@dataclass(eq=False)
class RunningSums(RunningState):
    """The decoding state: Σ φ(k) vᵀ and Σ φ(k) over the tokens of each beam; None before the first."""

    kv: Any = None  # B K G R E
    total: Any = None  # B K G R; None for a mechanism without a denominator


def split_chunks(x: Float[Tensor, "*any N D"], size: int) -> Float[Tensor, "*any chunks size D"]:
    """Cut the tokens into chunks, the last one filled with zeros; fewer tokens than `size` are one chunk."""
    n = x.shape[-2]
    size = min(size, max(n, 1))
    return F.pad(x, (0, 0, 0, -n % size)).unflatten(-2, (-1, size))


def round_features(features: Float[Tensor, "*any R"], x: Float[Tensor, "*any D"]) -> Float[Tensor, "*any R"]:
    """Return features in the dtype of x, but not in float16, whose largest number their sums exceed."""
    return features if x.dtype == torch.float16 else features.to(x.dtype)


def _fade_along(kv: Tensor, total: Tensor, left: Tensor, before: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor]:
    """Return the sums before each chunk from those of the chunks, of whose predecessors `left` remains."""
    both = torch.cat([kv, total[..., None]], -1)
    state = torch.zeros_like(both[..., 0, :, :]) if before is None else torch.cat([before[0], before[1][..., None]], -1)
    states = []
    for chunk, keep in zip(both.unbind(-3), left.unbind(-1), strict=True):
        states.append(state)
        state = state * keep[..., None, None] + chunk
    found = torch.stack(states, -3)
    return found[..., :-1], found[..., -1]


def _repeat(x: Tensor, heads: int) -> Tensor:
    """Repeat what belongs to a key head for the heads that share it."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], 1)
