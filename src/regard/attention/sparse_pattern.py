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
from regard.core.shapes import Bool, Float, Int, Rows, Tensor
from regard.core.validation import Fraction

FLEX_BLOCK = 128  # of FlexAttention
MOST_PAIRS = 2**25  # whose formula is computed at a time
SMALLEST_GRAIN = 16  # of a formula that FlexAttention reads from a table
DEFAULT_LENGTH = 1024  # of a sequence that is read as a grid, where nobody says how long it may be


class Group(NamedTuple):
    """Queries that share their keys, G such groups at a time: indices of tokens, -1 where there is none."""

    queries: Tensor  # #B G Q
    keys: Tensor  # #B #H G K
    whole: bool = True  # every query attends to every key of its group, as far as masks allow


class SparsePattern:
    """Which keys a query attends to, by their places. Subclasses are frozen dataclasses: equal ones share groups."""

    looks_at_lengths = False  # whether the true length of a sequence matters, not only the number of tokens
    tabulated = False  # whether FlexAttention reads the formula from a table, since computing it takes many operations

    @property
    def scattered(self) -> bool:
        """Whether the keys of a query lie so far apart that most blocks of FlexAttention have some of them."""
        return False

    @property
    def grain(self) -> int:
        """The formula is the same for all pairs of a cell of so many queries and keys, but for m <= n."""
        return 1

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

    `backend` is "gather", "flex", or None: flex on a GPU where the pattern leaves out whole blocks and there is neither
    attention dropout nor a bias, else gather.
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
        if self.backend == "flex" or (
            self.backend is None and not dropout and bias is None and _suits_flex(pattern, q, v)
        ):
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

    def step_mask(self, beam_table: BeamTable, mask: Mask | None) -> Mask | None:
        return beam_table.positioned_mask()

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
    """Attend inside one fused kernel, which visits only the blocks that the groups name.

    The formula is computed for the pairs of blocks that are not allowed as a whole.
    """
    n, heads, causal, rest = q.shape[2], q.shape[1], is_causal(mask), _without_causal(mask)
    lengths = true_lengths(mask, n, 4) if pattern.looks_at_lengths and not causal else n
    place = pattern, n, lengths, causal, heads, q.device
    shared = not isinstance(lengths, Tensor) and not torch.compiler.is_compiling()
    if rest is None and shared:
        block_mask = _shared_block_mask(*place)
    else:
        block_mask = _block_mask(pattern, n, causal, (_shared_blocks if shared else _make_blocks)(*place), rest)
    formula = f"{pattern} {n} {causal} {type(rest).__name__} {isinstance(lengths, Tensor)}"
    return flex_attention(q, k, v, block_mask, bias, scale, dropout, formula)


def _suits_flex(pattern: SparsePattern, q: Tensor, v: Tensor) -> bool:
    """Whether FlexAttention has a kernel, on a GPU for heads of 16 or more and at most 32 bits, and skips many blocks.

    A formula that needs a table needs a small one.
    """
    small = not pattern.tabulated or pattern.grain >= SMALLEST_GRAIN
    has_kernel = q.is_cuda and min(q.shape[-1], v.shape[-1]) >= 16 and q.dtype != torch.float64
    return has_kernel and small and not pattern.scattered


class _Blocks(NamedTuple):
    """Which blocks of keys each block of queries needs, #B #H blocks blocks."""

    needed: Tensor
    full: Tensor | None  # those of them in which every pair is allowed; None: not known
    table: Tensor | None  # the formula for cells of `grain` tokens, #B H cells cells


def _block_mask(pattern: SparsePattern, n: int, causal: bool, blocks: _Blocks, rest: Mask | None) -> Any:
    from torch.nn.attention.flex_attention import BlockMask

    grain, table = pattern.grain, blocks.table
    one = None if table is None or len(table) > 1 else table[0]  # for all inputs

    def allow(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        if one is not None:
            found = one[h, i // grain, j // grain]
        elif table is not None:
            found = table[b, h, i // grain, j // grain]
        else:
            found = pattern.allow(h, i, j, n, causal)
        found = found & (j <= i) if causal else found
        return found if rest is None else found & rest.allow(b, i, j)

    some, whole = (blocks.needed, None) if rest is not None or blocks.full is None else blocks[:2]
    if whole is not None:  # the rest of a mask may forbid a part of any block
        some = some & ~whole
    count, index = _in_order(some)
    full_count, full_index = (None, None) if whole is None else _in_order(whole)
    return BlockMask.from_kv_blocks(
        count,
        index,
        full_count,
        full_index,
        BLOCK_SIZE=(FLEX_BLOCK, FLEX_BLOCK),
        mask_mod=allow,
        seq_lengths=(n, n),
    )


@lru_cache(maxsize=64)
def _shared_block_mask(
    pattern: SparsePattern, n: int, length: int, causal: bool, heads: int, device: torch.device
) -> Any:
    with torch.inference_mode(False):
        blocks = _shared_blocks(pattern, n, length, causal, heads, device)
        return _block_mask(pattern, n, causal, blocks, None)


def _make_blocks(
    pattern: SparsePattern, n: int, length: Tensor | int, causal: bool, heads: int, device: torch.device
) -> _Blocks:
    blocks = -(-n // FLEX_BLOCK)
    needed = torch.zeros(1, 1, blocks, blocks, dtype=torch.bool, device=device)
    for group in pattern.groups(n, length, causal, heads, device):
        queries = _mark_blocks(group.queries, blocks)[:, None]  # #B 1 G blocks
        needed = needed | (queries.mT @ _mark_blocks(group.keys, blocks) > 0)
    if causal:
        needed = needed.tril()
    table = None
    if pattern.tabulated:
        cell = torch.arange(0, blocks * FLEX_BLOCK, pattern.grain, device=device)
        h = torch.arange(heads, device=device).view(-1, 1, 1)
        table = pattern.allow(h, cell[:, None], cell, length, causal)
        table = table.expand(-1, heads, -1, -1) if table.dim() == 4 else table.expand(heads, -1, -1)[None]
    return _Blocks(needed, None, table)


@lru_cache(maxsize=64)
def _shared_blocks(
    pattern: SparsePattern, n: int, length: int, causal: bool, heads: int, device: torch.device
) -> _Blocks:
    with torch.inference_mode(False):  # so that training can use it whoever made it
        blocks = _make_blocks(pattern, n, length, causal, heads, device)
        return blocks._replace(full=_full_blocks(pattern, blocks.needed, n, length, causal))


def _mark_blocks(tokens: Int[Tensor, "*any S"], blocks: int) -> Float[Tensor, "*any blocks"]:
    """Return 1 for every block with one of the tokens, else 0; -1 is no token."""
    at = torch.where(tokens < 0, blocks, tokens // FLEX_BLOCK)
    marked = torch.zeros(*tokens.shape[:-1], blocks + 1, device=tokens.device, dtype=torch.float32)
    return marked.scatter(-1, at, 1.0)[..., :blocks]


def _full_blocks(
    pattern: SparsePattern, needed: Tensor, n: int, length: int, causal: bool
) -> Bool[Tensor, "1 #H blocks blocks"]:
    """Return the needed blocks in which every pair is allowed; the last ones only if they are not cut off by n."""
    step = math.gcd(pattern.grain, FLEX_BLOCK)  # the formula is the same within cells of this size
    inside = torch.arange(0, FLEX_BLOCK, step, device=needed.device)
    full = torch.zeros_like(needed)
    for part in needed.nonzero().split(max(1, MOST_PAIRS // len(inside) ** 2)):
        _, h, i, j = part.T[..., None, None]
        at_n, at_m = i * FLEX_BLOCK + inside[:, None], j * FLEX_BLOCK + inside
        allowed = pattern.allow(h, at_n, at_m, length, causal).expand(len(part), len(inside), len(inside)).all(-1)
        full[tuple(part.T)] = allowed.all(-1)
    if causal:
        full = full.tril(-1)
    whole = torch.arange(1, needed.shape[-1] + 1, device=needed.device) * FLEX_BLOCK <= n
    return full & whole & whole[:, None]


def _in_order(blocks: Bool[Tensor, "B H Q K"]) -> tuple[Int[Tensor, "B H Q"], Int[Tensor, "B H Q K"]]:
    """Return how many blocks of keys each block of queries has, and which, these first."""
    order = blocks.int().argsort(dim=-1, descending=True, stable=True)
    return blocks.sum(-1).int(), order.int()


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
