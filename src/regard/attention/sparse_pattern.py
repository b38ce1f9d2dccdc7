"""Softmax attention restricted to a pattern of places: what every mechanism that is sparse by position shares.

    softmax     o_n = Σ_m softmax_m(q_n·k_m / √D) v_m       m: all M keys            O(N M D)
    pattern                                                 m: the K keys of n       O(N K D)

A `SparsePattern` says the same thing twice: as a formula, whether query n attends to key m (`allow`), and as `Group`s
of queries that share their keys, which is what makes it cheap. To attend, the tokens of every group are gathered and
each group is one small dense attention; gathering is plain indexing, so it trains on any device. On a GPU FlexAttention
reads the blocks in place instead. While decoding, the formula is applied to the times of the slots of the KV cache,
since beams write side by side; `weights` uses it too, so the contract weights @ v == forward compares the two.

The groups of a pattern depend on the number of tokens only (unless it looks at true lengths), so they are made once and
shared by all layers.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F

from regard.attention.kv_cache import BeamTable
from regard.attention.mask import And, CausalMask, DocumentMask, Mask
from regard.attention.masked_softmax import masked_softmax
from regard.attention.mechanisms.dense import dense_mask, repeat_kv, scaled_products, token_positions
from regard.attention.mechanisms.softmax import flex_attention
from regard.attention.protocol import Mechanism
from regard.core.errors import RegardError, Unsupported
from regard.core.layer_state import LayerState
from regard.core.positions import Bias, TensorBias
from regard.core.shapes import Float, Int, Rows, Tensor
from regard.core.validation import Fraction

FLEX_BLOCK = 128  # of FlexAttention
DEFAULT_LENGTH = 1024  # of a sequence that is read as a grid, where nobody says how long it may be


class Group(NamedTuple):
    """Queries that share their keys, G such groups at a time: indices of tokens, -1 where there is none."""

    queries: Tensor  # #B G Q
    keys: Tensor  # #B #H G K
    whole: bool = True  # every query attends to every key of its group, as far as masks allow


class SparsePattern:
    """Which keys a query attends to, by their places. Subclasses are frozen dataclasses: equal ones share groups."""

    looks_at_lengths = False  # whether the true length of a sequence matters, not only the number of tokens

    def allow(self, h: Tensor, n: Tensor, m: Tensor, length: Tensor | int, causal: bool) -> Tensor:
        """Return whether query n of head h attends to key m, of `length` real tokens; index tensors that broadcast.

        `causal` chooses the causal form; that m <= n is seen to by the caller.
        """
        raise NotImplementedError

    def groups(self, n: int, length: Tensor | int, causal: bool, heads: int, device: torch.device) -> list[Group]:
        """Return groups in which every one of n tokens is a query once, with all the keys that it attends to."""
        raise NotImplementedError


class PatternAttention(Mechanism):
    """Softmax attention over the keys of a pattern; self-attention only.

    `backend` is "gather", "flex", or None: flex on a GPU where there is no attention dropout and no bias, else gather.
    """

    def __init__(
        self,
        pattern: SparsePattern,
        dropout: Fraction = 0.0,
        scale: float | None = None,
        backend: Literal["gather", "flex"] | None = None,
    ) -> None:
        super().__init__()
        self.pattern, self.dropout, self.scale, self.backend = pattern, dropout, scale, backend

    def layer_pattern(self, layer_state: LayerState | None) -> SparsePattern:
        """Return the pattern of this layer: the same for all, unless a subclass looks at the depth."""
        return self.pattern

    def mix(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask | None,
        bias: Bias | None,
        layer_state: LayerState | None = None,
    ) -> Tensor:
        if mask is not None and mask.token_positions is not None:  # a step of decoding
            return self.weights(q, k, mask, bias, layer_state=layer_state).to(v.dtype) @ repeat_kv(v, q.shape[1])
        return self.mix_sparsely(q, k, v, mask, bias, layer_state)

    def mix_sparsely(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | None, bias: Bias | None, layer_state: LayerState | None
    ) -> Tensor:
        """Return the mixed values of a whole sequence."""
        pattern, scale = self.layer_pattern(layer_state), self._scale(q)
        dropout = self.dropout if self.training else 0.0
        if self.backend == "flex" or (self.backend is None and not dropout and bias is None and _suits_flex(q, v)):
            return attend_by_flex(pattern, q, k, v, mask, bias, scale, dropout)
        return attend_by_groups(pattern, q, k, v, mask, bias, scale, dropout)

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
        at_n, at_m = token_positions(q, k, mask, queries)
        h = torch.arange(q.shape[1], device=q.device)[:, None, None]
        allowed = self.layer_pattern(layer_state).allow(
            h, at_n[:, None, :, None], at_m[:, None, None], true_lengths(mask, k.shape[2], 4), is_causal(mask)
        )
        seen = dense_mask(q, k, mask, queries)
        scores = scaled_products(q[:, :, queries], k, self.scale)
        scores = scores if bias is None else scores + bias.dense(queries)
        return masked_softmax(scores, allowed if seen is None else allowed & seen).to(q.dtype)

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
        mask = beam_table.positioned_mask()
        return super().step(q, k, v, state, beam_table, mask, bias, layer_state=layer_state)

    def check(self, q: Tensor, k: Tensor, mask: Mask | None, bias: Bias | None) -> None:
        super().check(q, k, mask, bias)
        if isinstance(mask, DocumentMask):
            raise Unsupported(
                f"{type(self).__name__} counts places from the start of a text and takes no concatenated texts; "
                "pad them to one length instead"
            )

    def _scale(self, q: Tensor) -> float:
        return float(q.shape[-1] ** -0.5) if self.scale is None else self.scale

    def extra_repr(self) -> str:
        return f"{self.pattern}, dropout={self.dropout}, scale={self.scale or '1/√D'}"


# -- helpers of patterns -----------------------------------------------------------------------------------------------


def tokens_or_none(index: Int[Tensor, "*any"], low: int, high: int) -> Int[Tensor, "*any"]:
    """Return the indices, with -1 for those outside low .. high - 1."""
    return torch.where((index >= low) & (index < high), index, -1)


def with_global_tokens(
    queries: Int[Tensor, "G Q"], keys: Int[Tensor, "G K"], global_tokens: int, n: int, causal: bool, whole: bool = True
) -> list[Group]:
    """Return the groups of a pattern in which the first tokens see all and are seen by all, as far as masks allow."""
    first = torch.arange(min(global_tokens, n), device=keys.device)
    queries, keys = (tokens_or_none(x, len(first), n) for x in (queries, keys))  # so that none is there twice
    if not len(first):
        return [Group(queries[None], keys[None, None], whole)]
    seen = first if causal else torch.arange(n, device=keys.device)
    everyone = torch.cat([first.expand(len(keys), -1), keys], 1)
    return [Group(first[None, None], seen[None, None, None]), Group(queries[None], everyone[None, None], whole)]


def columns_of_place(columns: int | None, grid: tuple[int, int] | None, length: int | None) -> int:
    """Return the columns in which tokens stand: as written, those of the grid, or the square root of the length."""
    if columns is not None and grid is not None and columns != grid[1]:
        raise RegardError(f"tokens stand in {grid[1]} columns here, got columns={columns}; leave it out")
    return columns or (grid[1] if grid else max(1, math.isqrt(length or DEFAULT_LENGTH)))


# -- attending by groups -----------------------------------------------------------------------------------------------


class _Layout(NamedTuple):
    """The groups of a pattern for one number of tokens, ready to be attended to."""

    groups: list[Group]
    allowed: list[Tensor]  # for each group, #B #H G Q K
    order: Tensor  # #B N: where among the outputs of all groups the output of each token is


def attend_by_groups(
    pattern: SparsePattern,
    q: Float[Tensor, "B H N D"],
    k: Float[Tensor, "B G N D"],
    v: Float[Tensor, "B G N E"],
    mask: Mask | None,
    bias: Bias | None,
    scale: float,
    dropout: float,
) -> Float[Tensor, "B H N E"]:
    """Gather the tokens of every group and attend within it."""
    if not q.shape[2]:
        return repeat_kv(v, q.shape[1])
    layout, rest = _layout(pattern, q, mask)
    outputs = []
    for group, allowed in zip(layout.groups, layout.allowed, strict=True):
        queries, keys = group.queries.clamp(min=0)[:, None], group.keys.clamp(min=0)
        added = _added(queries[..., None], keys[..., None, :], allowed, rest, bias, q)
        out = F.scaled_dot_product_attention(
            _gather_tokens(q, queries),
            _gather_tokens(k, keys),
            _gather_tokens(v, keys),
            attn_mask=added.expand(q.shape[0], *added.shape[1:]).transpose(1, 2).flatten(0, 1),
            dropout_p=dropout,
            scale=scale,
            enable_gqa=keys.shape[1] == 1 and q.shape[1] != k.shape[1],
        )  # (B G) H Q E
        rows = queries.shape[2] * queries.shape[3]
        outputs.append(out.transpose(1, 2).reshape(q.shape[0], rows, q.shape[1], v.shape[3]))
    joined = torch.cat(outputs, 1) if len(outputs) > 1 else outputs[0]  # B rows H E
    return _gather_tokens(joined.transpose(1, 2), layout.order[:, None, None])


def _added(n: Tensor, m: Tensor, allowed: Tensor, mask: Mask | None, bias: Bias | None, q: Tensor) -> Tensor:
    """Return the mask of the pairs of a group, or, with a bias, what is added to their scores; B H G Q K."""
    b = torch.arange(q.shape[0], device=q.device).view(-1, 1, 1, 1, 1)
    if mask is not None:
        allowed = allowed & mask.allow(b, n, m)
    if bias is None:
        return allowed
    h = torch.arange(q.shape[1], device=q.device).view(-1, 1, 1, 1)
    add = bias.score_mod() or TensorBias(bias.dense()).score_mod()
    return torch.where(allowed, add(q.new_zeros(()), b, h, n, m), float("-inf")).to(q.dtype)


def _gather_tokens(x: Float[Tensor, "B heads N D"], index: Int[Tensor, "#B #H G S"]) -> Float[Tensor, "BG _ S D"]:
    """Return the tokens of every group; where heads share their keys, those of all heads are gathered together."""
    (batch, heads, n, width), (_, each, groups, size) = x.shape, index.shape
    start = torch.arange(batch, device=x.device).view(-1, 1, 1, 1) * n
    if each == 1:
        rows = x.transpose(1, 2).reshape(batch * n, heads * width).index_select(0, (index + start).flatten())
        return rows.view(batch * groups, size, heads, width).transpose(1, 2)
    x = repeat_kv(x, each)
    start = start * each + torch.arange(each, device=x.device).view(-1, 1, 1) * n
    at = (index + start).transpose(1, 2).flatten()  # B G H S
    return x.reshape(batch * each * n, width).index_select(0, at).view(batch * groups, each, size, width)


def _layout(pattern: SparsePattern, q: Tensor, mask: Mask | None) -> tuple[_Layout, Mask | None]:
    """Return the layout, in which causality is contained, and the rest of the mask."""
    n, heads, causal = q.shape[2], q.shape[1], is_causal(mask)
    lengths = true_lengths(mask, n, 4) if pattern.looks_at_lengths and not causal else n
    make = _make_layout if isinstance(lengths, Tensor) or torch.compiler.is_compiling() else _shared_layout
    return make(pattern, n, lengths, causal, heads, q.device), _without_causal(mask)


def _make_layout(
    pattern: SparsePattern, n: int, length: Tensor | int, causal: bool, heads: int, device: torch.device
) -> _Layout:
    groups = pattern.groups(n, length, causal, heads, device)
    h = torch.arange(heads, device=device).view(-1, 1, 1, 1)
    masks = []
    for group in groups:
        at_n, at_m = group.queries[:, None, :, :, None], group.keys[..., None, :]
        allowed = at_m >= 0
        if not group.whole:
            length = length[..., None] if isinstance(length, Tensor) else length
            allowed = allowed & pattern.allow(h, at_n, at_m, length, causal)
        if causal:
            allowed = allowed & (at_m <= at_n)
        # a slot without a query may see anything, so that no softmax is empty; its output is dropped
        masks.append((allowed | (at_n < 0)).expand(*torch.broadcast_shapes(allowed.shape, at_n.shape)))
    rows = torch.cat([group.queries.expand(_batch(groups), -1, -1).flatten(1) for group in groups], 1)
    order = rows.new_zeros(len(rows), n + 1)  # the last one takes the slots without a query
    order = order.scatter(1, torch.where(rows < 0, n, rows), torch.arange(rows.shape[1], device=device).expand_as(rows))
    return _Layout(groups, masks, order[:, :n])


@lru_cache(maxsize=64)
def _shared_layout(
    pattern: SparsePattern, n: int, length: int, causal: bool, heads: int, device: torch.device
) -> _Layout:
    with torch.inference_mode(False):  # so that training can use it whoever made it
        return _make_layout(pattern, n, length, causal, heads, device)


def _batch(groups: list[Group]) -> int:
    return max(len(group.queries) for group in groups)


# -- attending by FlexAttention ----------------------------------------------------------------------------------------


def attend_by_flex(
    pattern: SparsePattern,
    q: Float[Tensor, "B H N D"],
    k: Float[Tensor, "B G N D"],
    v: Float[Tensor, "B G N E"],
    mask: Mask | None,
    bias: Bias | None,
    scale: float,
    dropout: float,
) -> Float[Tensor, "B H N E"]:
    """Attend with the formula inside one fused kernel, which visits only the blocks that the groups name."""
    from torch.nn.attention.flex_attention import BlockMask

    (batch, _, n, _), causal, rest = q.shape, is_causal(mask), _without_causal(mask)
    lengths = true_lengths(mask, n, 1) if pattern.looks_at_lengths and not causal else n

    def allow(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        found = pattern.allow(h, i, j, lengths[b] if isinstance(lengths, Tensor) else lengths, causal)
        found = found & (j <= i) if causal else found
        return found if rest is None else found & rest.allow(b, i, j)

    count, index = _flex_blocks(_layout(pattern, q, mask)[0], n)
    if rest is not None and rest.batched:
        count, index = count.expand(batch, -1, -1), index.expand(batch, -1, -1, -1)
    size = (FLEX_BLOCK, FLEX_BLOCK)
    block_mask = BlockMask.from_kv_blocks(count, index, BLOCK_SIZE=size, mask_mod=allow, seq_lengths=(n, n))
    formula = f"{pattern} {causal} {type(rest).__name__}"
    return flex_attention(q, k, v, block_mask, bias, scale, dropout, formula)


def _suits_flex(q: Tensor, v: Tensor) -> bool:
    """Whether FlexAttention has a kernel: on a GPU, for heads of 16 or more and at most 32 bits."""
    return q.is_cuda and min(q.shape[-1], v.shape[-1]) >= 16 and q.dtype != torch.float64


def _flex_blocks(layout: _Layout, n: int) -> tuple[Int[Tensor, "B H Q"], Int[Tensor, "B H Q K"]]:
    """Return how many blocks of keys each block of queries needs, and which, the needed ones first."""
    blocks, batch = -(-n // FLEX_BLOCK), max(len(allowed) for allowed in layout.allowed)
    heads = max(allowed.shape[1] for allowed in layout.allowed)
    device = layout.order.device
    needed = torch.zeros(batch, heads, blocks, blocks, dtype=torch.bool, device=device)
    b, h = torch.arange(batch, device=device).view(-1, 1, 1, 1, 1), torch.arange(heads, device=device).view(-1, 1, 1, 1)
    for group in layout.groups:
        at_n = group.queries[:, None, :, :, None].clamp(min=0) // FLEX_BLOCK
        at_m = group.keys[..., None, :].clamp(min=0) // FLEX_BLOCK  # a slot without a token names block 0
        needed[torch.broadcast_tensors(b, h, at_n, at_m)] = True
    order = needed.int().argsort(dim=-1, descending=True, stable=True).int()
    return needed.sum(-1).int(), order


# -- masks -------------------------------------------------------------------------------------------------------------


def is_causal(mask: Mask | None) -> bool:
    """Whether a query sees no later key: by a causal mask, or in a step of decoding."""
    return mask is not None and ("causal" in mask.kinds or mask.token_positions is not None)


def _without_causal(mask: Mask | None) -> Mask | None:
    if isinstance(mask, CausalMask):
        return None
    if not isinstance(mask, And):
        return mask
    rest = [part for part in mask.parts if not isinstance(part, CausalMask)]
    return And(*rest) if rest else None


def true_lengths(mask: Mask | None, n: int, dimensions: int) -> Tensor | int:
    """Return the true lengths, to be broadcast in so many dimensions; n if nothing is padded."""
    if mask is None or mask.padding is None:
        return n
    return mask.padding.lengths.view(-1, *[1] * (dimensions - 1))
