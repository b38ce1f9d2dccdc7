"""Delta rule: a fast weight matrix that corrects what it returns for a key, instead of adding to it.

    linear    S_t = S_(t-1) +     v_t                  φ(k_t)ᵀ,    o_t = S_t φ(q_t) / z_t·φ(q_t)      O((N + M) D²)
    delta     S_t = S_(t-1) + β_t (v_t - S_(t-1) φ(k_t)) φ(k_t)ᵀ,  o_t = S_t φ(q_t) / √D              O((N + M) ν D²)

A purely additive memory is full after as many keys as φ has dimensions. Here the value stored under a key is read first
and replaced by a mixture of old and new; the write strength β_t = sigmoid(w·k_t + b) is learned. φ is DPFP-ν
(`dpfp.py`) divided by its sum, which takes the place of a denominator. Within a chunk of tokens the corrections solve a
triangular system, (I + tril(diag(β) K Kᵀ, -1)) U = diag(β) (V - K S): all of them at once (WY representation), so only
the states between chunks are sequential. It is computed in float32.

What differs from the paper: β is made of the key, not of the token, which a mechanism does not see. The paper's models
are causal; without a causal mask every query here reads the matrix after the last write. The chunked form is of Yang et
al. 2024. Weights may be negative and do not sum to one.

Schlag, Irie, Schmidhuber: Linear Transformers Are Secretly Fast Weight Programmers. ICML 2021. arXiv:2102.11174; Yang,
Wang, Zhang, Shen, Kim: Parallelizing Linear Transformers with the Delta Rule over Sequence Length. NeurIPS 2024.
arXiv:2406.06484
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from regard.attention.kernel import KernelAttention, RunningSums, split_chunks
from regard.attention.mask import Mask
from regard.attention.masked_softmax import upcast
from regard.attention.mechanisms.dpfp import dpfp
from regard.attention.protocol import Mechanism, Traits
from regard.core.layer_state import LayerState
from regard.core.positions import Bias
from regard.core.shapes import Float, Rows, Tensor


class DeltaRuleAttention(KernelAttention):
    """Attention through a fast weight matrix written by the delta rule; `scale=None` is 1/√D."""

    traits = Traits(
        cost="(N + M) ν D²",
        paper="2102.11174",
        masks=frozenset({"causal", "padding"}),
        bias=False,
        exact=False,
        headwise=False,
        normalised=False,
        positional=True,
        family="linearised",
    )

    def __init__(self, heads: int, head_dim: int, nu: int = 1, scale: float | None = None, chunk: int = 64) -> None:
        super().__init__(chunk)
        self.heads, self.head_dim = heads, head_dim
        self.nu, self.scale = nu, head_dim**-0.5 if scale is None else scale
        self.beta_weight = nn.Parameter(torch.zeros(heads, head_dim, 1))
        self.beta_bias = nn.Parameter(torch.zeros(heads, 1))

    def query_features(self, q: Float[Tensor, "B H N D"]) -> Float[Tensor, "B H N R"]:
        return _sum_normalised(dpfp(upcast(q), self.nu))

    def key_features(self, k: Float[Tensor, "B G M D"]) -> Float[Tensor, "B H M R"]:
        return _sum_normalised(dpfp(upcast(self._for_heads(k)), self.nu))

    def gate(self, k: Float[Tensor, "B G M D"]) -> Float[Tensor, "B H M"]:
        """Return the write strengths β; padding gets 0 and writes nothing."""
        k = upcast(self._for_heads(k))
        return ((k @ self.beta_weight.to(k.dtype)).squeeze(-1) + self.beta_bias).sigmoid()

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
        return Mechanism.weights(self, q, k, mask, bias, layer_state=layer_state, queries=queries)

    def _for_heads(self, k: Tensor) -> Tensor:
        """Repeat the keys for query heads that share them, since every query head has its own strengths."""
        return k.repeat_interleave(self.beta_bias.shape[0] // k.shape[1], 1)

    def _read(self, q: Tensor, kv: Tensor, total: Any) -> Tensor:
        return q @ kv * self.scale

    def _sums(self, k: Tensor, v: Tensor, gate: Tensor | None) -> tuple[Tensor, Any]:
        return self._write(k, v, gate, None)[-1], None

    def _causal(
        self, q: Tensor, k: Tensor, v: Tensor, gate: Tensor | None, before: tuple[Tensor, Any] | None = None
    ) -> Tensor:
        n = q.shape[-2]
        states, written, _ = self._write(k, v, gate, None if before is None else before[0])
        with torch.autocast(q.device.type, enabled=False):
            q, k = split_chunks(q, self.chunk), split_chunks(k, self.chunk)
            out = (q @ k.mT).tril() @ written + q @ states
        return (out * self.scale).flatten(-3, -2)[..., :n, :]

    def _write(self, k: Tensor, v: Tensor, gate: Tensor | None, state: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return the matrices before each chunk, what each token writes under its key, and the last matrix."""
        assert gate is not None
        with torch.autocast(k.device.type, enabled=False):
            k, v, beta = (split_chunks(x, self.chunk) for x in (k, v, gate[..., None]))  # ... chunks size R
            size = k.shape[-2]
            system = (beta * k @ k.mT).tril(-1) + torch.eye(size, dtype=k.dtype, device=k.device)
            both = beta * torch.cat([v, k], -1)
            solved = torch.linalg.solve_triangular(system, both, upper=False, unitriangular=True)
            new, old = solved.split([v.shape[-1], k.shape[-1]], -1)  # written = new - old S
            state = k.new_zeros(*k.shape[:-3], k.shape[-1], v.shape[-1]) if state is None else state
            states = []
            for k_c, new_c, old_c in zip(k.unbind(-3), new.unbind(-3), old.unbind(-3), strict=True):
                states.append(state)
                state = state + k_c.mT @ (new_c - old_c @ state)
            before = torch.stack(states, -3)
            return before, new - old @ before, state

    def _add(self, state: RunningSums, k: Tensor, v: Tensor, gate: Tensor | None) -> RunningSums:
        assert gate is not None
        if state.kv is None:
            return state.replace(k.mT @ (gate[..., None] * v), None)
        return state.replace(state.kv + k.mT @ (gate[..., None] * (v - k @ state.kv)), None)

    def extra_repr(self) -> str:
        return f"nu={self.nu}, scale={self.scale:.3g}, {super().extra_repr()}"


def _sum_normalised(x: Tensor) -> Tensor:
    """x / Σ x; zeros stay zeros."""
    total = x.sum(-1, keepdim=True)
    return x / torch.where(total > 0, total, 1.0)
