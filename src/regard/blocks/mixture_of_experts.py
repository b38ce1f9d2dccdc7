"""Mixture of experts: many feed-forwards, of which every token is sent to a few.

    dense      y = f(x)                                                 one feed-forward for all tokens
    experts    p = softmax(W_r x)      y = Σ_{e in top k of p} (p_e / Σ_top p) f_e(x)        E of them, k for each token

The parameters grow with E, the work with k. Tokens are sorted by expert, so that each expert sees its tokens in one
product; then their order is restored. Which experts a token gets depends on that token alone, so a batch equals
its singles, and no token is dropped: each expert takes as many as come. With `capacity_factor` c, in training only, it
takes at most c k T / E of T tokens, in their order; the others take the residual path only.

A router left to itself sends everything to the experts that are ahead. Against that, every forward pass adds a loss
named "balance" to its layer state, a mean over tokens, which the task weighs (language_modeling.Config.balance), and
publishes "expert_load", the share f_e of the choices that each expert got:

    balance    E Σ_e f_e P_e                          P_e: mean of p_e; 1 if all experts are chosen equally often
    z          mean (log Σ_e exp (W_r x)_e)²          keeps the router's logits small; added with weight `z_loss`

Three implementations, equal in value and gradient: "grouped" (one kernel for all groups: used on a GPU in bfloat16),
"loop" (one product after the other over experts: used on a CPU), "dense" (every expert sees every token: the
reference). O(T k C H + T C E) multiply-adds; dense E in place of k.

Shazeer et al. 2017, arXiv:1701.06538; Lepikhin et al. (GShard), arXiv:2006.16668; Fedus, Zoph, Shazeer (Switch),
arXiv:2101.03961; Zoph et al. (z), arXiv:2202.08906; the weights are renormalised as in Mixtral, arXiv:2401.04088
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from torch import nn

from regard.blocks import FEEDFORWARDS
from regard.blocks.feedforward import FeedForward, GatedFeedForward
from regard.core.errors import BadInput, Unsupported
from regard.core.layer_state import LayerState
from regard.core.lazy_dynamo import disable_compile
from regard.core.shapes import Float, Int, Tensor
from regard.core.spec import resolve
from regard.core.validation import Fraction, Range

Product = Callable[[Tensor, "GroupedLinear"], Tensor]


class GroupedLinear(nn.Module):
    """E linear maps of the same shape, each with weights of its own."""

    def __init__(self, experts: int, inputs: int, outputs: int, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(experts, outputs, inputs))
        self.bias = (
            nn.Parameter(torch.empty(experts * outputs)) if bias else None
        )  # flat, so that it gets no weight decay
        for part in (self.weight, self.bias):
            if part is not None:  # as nn.Linear
                nn.init.uniform_(part, -1 / math.sqrt(inputs), 1 / math.sqrt(inputs))

    def biases(self) -> Float[Tensor, "E O"] | None:
        """Return the biases of each expert, or None."""
        return None if self.bias is None else self.bias.view(len(self.weight), -1)

    def extra_repr(self) -> str:
        experts, outputs, inputs = self.weight.shape
        return f"{experts} x ({inputs} -> {outputs}), bias={self.bias is not None}"


class MixtureOfExperts(nn.Module):
    """A feed-forward by spec: ``"moe(8, top_k=2, expert='swiglu')"``; `hidden` is that of each expert."""

    def __init__(
        self,
        num_experts: int = 8,
        top_k: int = 2,
        expert: str = "swiglu",
        capacity_factor: float | None = None,
        z_loss: Annotated[float, Range(low=0)] = 0.0,
        implementation: Literal["auto", "grouped", "loop", "dense"] = "auto",
        *,
        width: int,
        hidden: int,
        dropout: Fraction = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if not 1 <= top_k <= num_experts:
            raise BadInput(f"top_k must be from 1 to num_experts={num_experts}, got {top_k}")
        if capacity_factor is not None and capacity_factor <= 0:
            raise BadInput(f"capacity_factor must be above 0, got {capacity_factor}; None drops no token")
        kind = resolve(FEEDFORWARDS, expert, "feed-forward")
        if not issubclass(kind, FeedForward):
            raise Unsupported(f"expert must be a plain or gated feed-forward, not '{expert}'")
        self.num_experts, self.top_k, self.capacity_factor, self.z_loss, self.implementation = (
            num_experts,
            top_k,
            capacity_factor,
            z_loss,
            implementation,
        )
        self.activation: Callable[[Tensor], Tensor] = kind.activation
        self.router = nn.Linear(width, num_experts, bias=False)
        self.up = GroupedLinear(num_experts, width, hidden, bias)
        self.gate = GroupedLinear(num_experts, width, hidden, bias) if issubclass(kind, GatedFeedForward) else None
        self.drop = nn.Dropout(dropout)
        self.down = GroupedLinear(num_experts, hidden, width, bias)

    takes_layer_state = True  # see blocks.encoder.feed_forward

    def forward(self, x: Float[Tensor, "*B C"], layer_state: LayerState | None = None) -> Float[Tensor, "*B C"]:
        """Send each token through its experts and average their outputs by the router's weights."""
        tokens = x.flatten(0, -2)
        weights, chosen, counts = self.route(tokens, layer_state)
        if self.implementation == "dense":
            return self._dense(tokens, weights, chosen).view(x.shape)
        return self._sorted(tokens, weights, chosen, counts).view(x.shape)

    def route(
        self, tokens: Float[Tensor, "T C"], layer_state: LayerState | None = None
    ) -> tuple[Float[Tensor, "T K"], Int[Tensor, "T K"], Int[Tensor, " E"]]:
        """Return the weights of each token's experts, their numbers, and how many tokens each expert got.

        In float32 whatever the products are in: a rounded router sends tokens elsewhere.
        """
        exact = torch.promote_types(tokens.dtype, torch.float32)
        with torch.autocast(tokens.device.type, enabled=False):
            logits = F.linear(tokens.to(exact), self.router.weight.to(exact))  # T E
        p = logits.softmax(-1)
        weights, chosen = p.topk(self.top_k, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        mine = chosen[..., None] == torch.arange(self.num_experts, device=chosen.device)  # T K E
        counts = mine.sum((0, 1))
        if layer_state is not None:
            share = counts.to(exact) / max(1, chosen.numel())
            balance = self.num_experts * (share * p.mean(0)).sum()
            z_loss = self.z_loss * logits.logsumexp(-1).square().mean() if self.z_loss else 0.0
            layer_state.add_loss("balance", balance + z_loss)
            layer_state.publish("expert_load", share.detach())
        if self.capacity_factor is not None and self.training:
            weights = weights * _within_capacity(
                mine, math.ceil(self.capacity_factor * chosen.numel() / self.num_experts)
            )
        return weights, chosen, counts

    @property
    def unused_parameters(self) -> int:
        """Number of parameters that a token does not use."""
        parts = [p for p in (self.up, self.gate, self.down) if p is not None]
        return (
            sum(p.numel() for part in parts for p in part.parameters())
            // self.num_experts
            * (self.num_experts - self.top_k)
        )

    # -- implementations -----------------------------------------------------------------------------------------------

    def _sorted(self, tokens: Tensor, weights: Tensor, chosen: Tensor, counts: Tensor) -> Tensor:
        """Sort tokens by expert, apply the experts, and restore the order."""
        order = chosen.flatten().argsort(stable=True)
        back = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
        owner = chosen.flatten()[order]  # R, ascending
        rows = tokens[order // self.top_k]
        product = (
            _GroupedProduct(counts, owner)
            if self._uses_grouped_mm(tokens)
            else _LoopProduct(self.group_sizes(counts, len(order)))
        )
        out = self._expert(rows, product)[back].unflatten(0, chosen.shape)
        return (out * weights[..., None].to(out.dtype)).sum(1).to(tokens.dtype)

    def _dense(self, tokens: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        """Apply every expert to every token; experts that were not chosen have weight zero."""
        full = weights.new_zeros(len(tokens), self.num_experts).scatter(1, chosen, weights)  # T E
        out = self._expert(tokens.expand(self.num_experts, *tokens.shape), _batched_product)
        return torch.einsum("etc,te->tc", out, full.to(out.dtype)).to(tokens.dtype)

    def _expert(self, rows: Tensor, product: Product) -> Tensor:
        """Apply the feed-forward of the experts, with any form of the product."""
        up = product(rows, self.up)
        hidden = self.activation(up) if self.gate is None else self.activation(product(rows, self.gate)) * up
        return product(self.drop(hidden), self.down)

    def _uses_grouped_mm(self, tokens: Tensor) -> bool:
        """Whether one kernel does all groups: on a GPU of 2022 or later, in bfloat16, rows aligned to 16 bytes."""
        if self.implementation != "auto":
            return self.implementation == "grouped"
        if not tokens.is_cuda or _compute_dtype(tokens) != torch.bfloat16 or not hasattr(F, "grouped_mm"):
            return False
        whole = all(size % 8 == 0 for size in self.up.weight.shape[1:])
        return whole and torch.cuda.get_device_capability(tokens.device) >= (9, 0)

    def group_sizes(self, counts: Int[Tensor, " E"], rows: int) -> list[int]:
        """Return the number of sorted rows of each expert, on the host."""
        return _to_list(counts)


class _GroupedProduct:
    """All experts in one kernel: rows up to ends[e] belong to expert e."""

    def __init__(self, counts: Tensor, owner: Tensor) -> None:
        self.ends, self.owner = counts.cumsum(0).to(torch.int32), owner

    def __call__(self, rows: Tensor, part: GroupedLinear) -> Tensor:
        dtype = _compute_dtype(rows)
        out, biases = F.grouped_mm(rows.to(dtype), part.weight.to(dtype).mT, offs=self.ends), part.biases()
        return out if biases is None else out + biases.to(dtype)[self.owner]


class _LoopProduct:
    """One expert after the other."""

    def __init__(self, group_sizes: list[int]) -> None:
        self.group_sizes = group_sizes

    def __call__(self, rows: Tensor, part: GroupedLinear) -> Tensor:
        own = part.biases()
        biases = [None] * len(self.group_sizes) if own is None else own.unbind()
        each = zip(rows.split(self.group_sizes), part.weight.unbind(), biases, strict=True)
        return torch.cat([F.linear(some, weight, bias) for some, weight, bias in each])


def _batched_product(rows: Tensor, part: GroupedLinear) -> Tensor:
    """Rows E T C, one batch for each expert."""
    out, biases = rows @ part.weight.mT, part.biases()
    return out if biases is None else out + biases[:, None]


def _within_capacity(mine: Tensor, most: int) -> Tensor:
    """Return which choices (T K of E) are among the first `most` of their expert; first choices come before second."""
    ranked = mine.transpose(0, 1).flatten(0, 1)  # all first choices, then all second ones
    place = (ranked.cumsum(0) * ranked).sum(-1)  # from 1
    return (place <= most).view(mine.shape[1], mine.shape[0]).T


@disable_compile
def _to_list(counts: Tensor) -> list[int]:
    found: list[int] = counts.tolist()
    return found


def _compute_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype of the products."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def moe_layers(model: nn.Module) -> list[MixtureOfExperts]:
    """Return the mixtures of a model in order."""
    return [part for part in model.modules() if isinstance(part, MixtureOfExperts)]
