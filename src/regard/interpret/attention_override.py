"""Replace the attention weights of chosen heads, by forward hooks (see interpret.interventions).

    o_h = w_h v_h        unchanged heads: the mechanism's output, to the bit
    o_h = w'_h v_h       changed heads: w' is computed here, with the same mask

Masked pairs are given by position. In self-attention the queries are the last of the keys. With several beams the slots
of the KV cache are not positions, so the ancestors of a beam are counted. In cross-attention the position of a query is
that of the preceding self-attention (`QueryPositions`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn

from regard.attention import MECHANISMS
from regard.attention.mask import DenseMask, DocumentMask, Mask
from regard.attention.multihead import MultiHeadAttention
from regard.attention.protocol import Mechanism
from regard.core.errors import BadInput, RegardError, Unsupported
from regard.core.shapes import Bool, Float, Int, Rows, Tensor
from regard.core.spec import build_part, is_learned


class InterventionLike(Protocol):
    """The fields of an intervention that are used here."""

    @property
    def do(self) -> str: ...
    @property
    def heads(self) -> tuple[int, ...] | None: ...
    @property
    def mask(self) -> tuple[tuple[int | None, int], ...]: ...
    @property
    def spec(self) -> str: ...


@dataclass(frozen=True)
class HeadOverride:
    """The changes of a head: what replaces its weights ("": nothing), the spec of a mechanism, and masked pairs."""

    do: str = ""
    spec: str = ""
    pairs: tuple[tuple[int | None, int], ...] = ()


def group_heads(name: str, wanted: Sequence[InterventionLike], heads: int) -> dict[HeadOverride, list[int]]:
    """Return the changed heads, grouped by their change."""
    found = [HeadOverride()] * heads
    for each in wanted:
        for head in range(heads) if each.heads is None else each.heads:
            if head >= heads:
                raise BadInput(f"'{name}' has {heads} head{'s' * (heads > 1)}, counted from 0; there is no head {head}")
            old = found[head]
            if each.do == "mask":
                found[head] = HeadOverride(old.do, old.spec, (*old.pairs, *each.mask))
            else:
                found[head] = HeadOverride(each.do, each.spec, old.pairs)
    groups: dict[HeadOverride, list[int]] = {}
    for head, plan in enumerate(found):
        if plan != HeadOverride():
            groups.setdefault(plan, []).append(head)
    return groups


# -- positions ---------------------------------------------------------------------------------------------------------


class QueryPositions:
    """Positions of the queries of the latest self-attention, for the cross-attention that follows it."""

    def __init__(self) -> None:
        self.positions: Int[Tensor, "#B N"] | None = None

    def watch(self, modules: Mapping[str, nn.Module], undo: ExitStack) -> None:
        """Record the query positions of every self-attention of a model."""
        for path, module in modules.items():
            mixer = modules.get(path.rpartition(".")[0])
            if isinstance(module, Mechanism) and getattr(mixer, "kind", "self") == "self":

                def look(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
                    q, k, mask = args[0], args[1], args[3] if len(args) > 3 else kwargs.get("mask")
                    self.positions = query_key_positions(q.shape[0], q.shape[2], k.shape[2], mask, q.device)[0]

                undo.callback(module.register_forward_pre_hook(look, with_kwargs=True).remove)

    def of(self, batch: int, n: int, device: torch.device) -> Int[Tensor, "#B N"]:
        """Return the positions of n queries of a cross-attention."""
        if self.positions is not None and self.positions.shape[1] == n and self.positions.shape[0] in (1, batch):
            return self.positions
        return torch.arange(n, device=device)[None]


def query_key_positions(
    batch: int, n: int, m: int, mask: Mask | None, device: torch.device
) -> tuple[Int[Tensor, "#B N"], Int[Tensor, "#B #N M"]]:
    """Return the positions of queries and keys in self-attention; those of a beam are counted along its ancestors."""
    if isinstance(mask, DenseMask):
        allowed = mask.dense(batch, n, m, device)[:, 0]
        return allowed.sum(-1) - 1, allowed.cumsum(-1) - 1
    if isinstance(mask, DocumentMask):
        positions = mask.positions()
        return positions[None, m - n :], positions[None, None]
    return torch.arange(m - n, m, device=device)[None], torch.arange(m, device=device)[None, None]


def pair_mask(
    pairs: Sequence[tuple[int | None, int]], queries: Int[Tensor, "#B N"], keys: Int[Tensor, "#B #N M"]
) -> Bool[Tensor, "#B N M"]:
    """Return True at the given (query, key) pairs, for queries and keys at these positions."""
    at, to = queries[:, :, None], keys
    found = torch.zeros(torch.broadcast_shapes(at.shape, to.shape), dtype=torch.bool, device=keys.device)
    by_query: dict[int | None, list[int]] = {}
    for query, key in pairs:
        by_query.setdefault(query, []).append(key)
    for query, ruled_out in by_query.items():
        there = torch.isin(to, torch.tensor(ruled_out, device=to.device))
        found = found | (there if query is None else there & (at == query))
    return found


# -- mechanisms --------------------------------------------------------------------------------------------------------


class MechanismOverride:
    """A mechanism of a model with replaced weights in some heads."""

    def __init__(
        self, name: str, module: Mechanism, mixer: nn.Module | None, wanted: Sequence[InterventionLike]
    ) -> None:
        self.name, self.module, self.mixer, self.wanted = name, module, mixer, wanted
        self.cross = getattr(mixer, "kind", "self") != "self"
        self.others = {each.spec: self._other(each.spec) for each in wanted if each.do == "mechanism"}
        self.clock, self.ran = QueryPositions(), False
        regroups = callable(getattr(mixer, "geometry", None))
        if regroups and any(each.do == "mask" for each in wanted):
            raise Unsupported(
                f"'{name}' attends inside windows or to pooled tokens: a mask over tokens does not fit it"
            )
        if self.cross and (odd := [each.do for each in wanted if each.do in ("identity", "previous")]):
            raise Unsupported(
                f"'{name}' looks at another sequence, where no token is a query's own: no '{odd[0]}' there"
            )

    def enter(self, undo: ExitStack, clock: QueryPositions) -> None:
        """Register the hooks; `undo` removes them."""
        self.clock = clock
        module = self.module
        override_attribute(module, "weights", self.weights, undo)
        # A pre-hook tells a windowed mixer not to use its fused kernel, which cannot change single heads.
        undo.callback(module.register_forward_pre_hook(lambda *_: None).remove)
        # Before all other hooks, so that `watch` sees what is applied.
        undo.callback(module.register_forward_hook(self._hook, with_kwargs=True, prepend=True).remove)

    def weights(
        self,
        q: Float[Tensor, "B H N D"],
        k: Float[Tensor, "B G M D"],
        mask: Mask | None = None,
        bias: Any = None,
        *,
        layer_state: Any = None,
        queries: Rows = slice(None),
    ) -> Float[Tensor, "B H rows M"]:
        """Return the weights that are applied: the mechanism's, and those of the changed heads."""
        own = type(self.module).weights(self.module, q, k, mask, bias, layer_state=layer_state, queries=queries)
        out = own.clone()
        for plan, heads in group_heads(self.name, self.wanted, q.shape[1]).items():
            out[:, heads] = self._weights(plan, heads, q, k, mask, bias, layer_state)[:, :, queries].to(own.dtype)
        return out

    def _hook(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> Tensor:
        given = dict(zip(("q", "k", "v", "mask", "bias"), args, strict=False)) | kwargs
        q, k, v, mask, bias, layer_state = (given.get(part) for part in ("q", "k", "v", "mask", "bias", "layer_state"))
        assert isinstance(q, Tensor)
        assert isinstance(k, Tensor)
        assert isinstance(v, Tensor)
        if module.training:
            raise RegardError("interventions are for models that are not in training: call model.eval() first")
        out, self.ran = output.clone(), True
        for plan, heads in group_heads(self.name, self.wanted, q.shape[1]).items():
            if not plan.do or plan.do == "mechanism":  # a mechanism of its own: through its kernels
                mixed = (self.others.get(plan.spec) or self.module).forward(
                    q, k, v, self._mask(plan, q, k, mask), bias, layer_state=layer_state
                )[:, heads]
            else:
                each = v.repeat_interleave(q.shape[1] // v.shape[1], dim=1)[:, heads]
                mixed = self._weights(plan, heads, q, k, mask, bias, layer_state).to(each.dtype) @ each
            out[:, heads] = mixed.to(out.dtype)
        return out

    def _weights(
        self, plan: HeadOverride, heads: list[int], q: Tensor, k: Tensor, mask: Mask | None, bias: Any, layer_state: Any
    ) -> Float[Tensor, "B heads N M"]:
        """Return the weights of heads with one change, all rows."""
        (batch, _, n, _), m = q.shape, k.shape[2]
        mask = self._mask(plan, q, k, mask)
        if not plan.do:
            return type(self.module).weights(self.module, q, k, mask, bias, layer_state=layer_state)[:, heads]
        if plan.do == "mechanism":
            return self.others[plan.spec].weights(q, k, mask, bias, layer_state=layer_state)[:, heads]
        allowed = q.new_ones(1, 1, n, m, dtype=torch.bool) if mask is None else mask.dense(batch, n, m, q.device)
        made = self._ways(plan.do, allowed).to(q.dtype)
        return made.expand(batch, len(heads), n, m)

    def _ways(self, do: str, allowed: Bool[Tensor, "#B 1 N M"]) -> Float[Tensor, "#B 1 N M"]:
        """Return weights that depend on the mask alone."""
        n, m = allowed.shape[-2:]
        if do == "off":
            return torch.zeros_like(allowed, dtype=torch.get_default_dtype())
        if do == "uniform":
            return allowed / allowed.sum(-1, keepdim=True).clamp(min=1)
        if n != m and not (
            isinstance(self.mixer, MultiHeadAttention) and n < m
        ):  # while writing, the newest stand at the end
            raise Unsupported(
                f"'{self.name}' has {n} queries and {m} keys, so a query has no key of its own: no '{do}'"
            )
        keys = torch.arange(m, device=allowed.device)
        own = torch.arange(m - n, m, device=allowed.device)[:, None]
        at = own.expand(allowed.shape)[..., :1]
        if do == "previous":
            before = torch.where(allowed & (keys < own), keys, -1).amax(-1, keepdim=True)
            at = torch.where(before < 0, own, before)
        return ((keys == at) & allowed).to(torch.get_default_dtype())

    def _mask(self, plan: HeadOverride, q: Tensor, k: Tensor, mask: Mask | None) -> Mask | None:
        """Return the mask without the given pairs."""
        if not plan.pairs:
            return mask
        (batch, _, n, _), m = q.shape, k.shape[2]
        if self.cross:
            queries, keys = self.clock.of(batch, n, q.device), torch.arange(m, device=q.device)[None, None]
        else:
            queries, keys = query_key_positions(batch, n, m, mask, q.device)
        allowed = ~pair_mask(plan.pairs, queries, keys)
        if mask is not None:
            allowed = allowed & mask.dense(batch, n, m, q.device)[:, 0]
        return DenseMask(allowed.expand(batch, n, m))

    def _other(self, spec: str) -> Mechanism:
        """Build another mechanism, as the model would."""
        like = next(iter(self.mixer.parameters()), None) if self.mixer is not None else None
        settings = getattr(self.mixer, "sizes", {}) | {"dropout": 0.0, "scale": getattr(self.module, "scale", None)}
        if is_learned(MECHANISMS, spec, "attention", **settings):
            raise Unsupported(
                f"'{spec}' has parameters of its own, which this model never learned; it cannot be put in"
            )
        made = build_part(MECHANISMS, spec, "attention", **settings)
        other: Mechanism = made.eval() if like is None else made.to(like.device).eval()
        return other


# -- aligners ----------------------------------------------------------------------------------------------------------


class AlignerOverride:
    """An aligner of a recurrent decoder with replaced weights."""

    def __init__(self, name: str, module: Any, wanted: Sequence[InterventionLike]) -> None:
        self.name, self.module, self.ran, self.time = name, module, False, 0
        (plan, _), *_ = group_heads(name, wanted, 1).items()
        self.plan = plan
        if plan.do not in ("", "off", "uniform"):
            raise Unsupported(
                f"'{name}' is an aligner of a recurrent decoder: it can be off, uniform or masked, not '{plan.do}'"
            )

    def enter(self, undo: ExitStack, clock: QueryPositions) -> None:
        """Register the hooks; `undo` removes them. A call of `keys` begins a new sequence."""
        own = self.module.keys

        def keys(memory: Tensor) -> Tensor:
            self.time = 0
            found: Tensor = own(memory)
            return found

        override_attribute(self.module, "keys", keys, undo)
        undo.callback(self.module.register_forward_hook(self._hook, with_kwargs=True, prepend=True).remove)

    def _hook(
        self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: tuple[Tensor, Any]
    ) -> tuple[Tensor, Any]:
        if module.training:
            raise RegardError("interventions are for models that are not in training: call model.eval() first")
        given = dict(zip(("query", "keys", "mask", "state"), args, strict=False)) | kwargs
        query, keys, mask, (weights, state) = given["query"], given["keys"], given.get("mask"), output
        now, self.time, self.ran = self.time, self.time + 1, True
        if self.plan.pairs:
            positions = torch.arange(keys.shape[1], device=keys.device)[None, None]
            free = ~pair_mask(self.plan.pairs, torch.full((1, 1), now, device=keys.device), positions)[:, 0]
            mask = free.expand(keys.shape[:2]) if mask is None else mask & free
            weights, state = module.weights(query, keys, mask, given.get("state"))
        if self.plan.do == "off":
            weights = torch.zeros_like(weights)
        elif self.plan.do == "uniform":
            allowed = torch.ones_like(weights[:, :1]) if mask is None else mask[:, None].to(weights.dtype)
            weights = (allowed / allowed.sum(-1, keepdim=True).clamp(min=1)).expand_as(weights)
        return weights, state


def override_attribute(module: Any, name: str, instead: Any, undo: ExitStack) -> None:
    """Let a module answer differently to a name, until `undo`."""
    before, had = vars(module).get(name), name in vars(module)

    def back() -> None:
        if had:
            vars(module)[name] = before
        else:
            del vars(module)[name]

    vars(module)[name] = instead
    undo.callback(back)
