"""Masks: who may attend to whom, as a formula in index tensors.

    CausalMask() & PaddingMask(lengths) & (WindowMask(128) | GlobalMask([0]))

A mask defines `allow(b, n, m)`: index tensors that broadcast against one another -> bool, **True means "may attend"**.
Dense matrices, SDPA's arguments and FlexAttention's block masks are derived from it. Queries stand at the end of the
keys: with N queries and M keys, n runs over M - N .. M - 1.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch

from regard.core import html
from regard.core.errors import BadInput
from regard.core.shapes import Bool, Float, Int, Rows, Shaped, Tensor


class Mask:
    """A formula that says whether query n of input b may attend to key m."""

    batched = False  # whether the formula reads b
    kinds: frozenset[str] = frozenset({"any"})  # what a mechanism must support
    token_positions: tuple[Tensor, Tensor] | None = None  # of queries #B N and keys #B M, unless they are their indices
    _made: dict[Any, Tensor] | None = None  # of one pass: masks for SDPA, by the sizes they are for
    _kept: Mask | None = None  # of one pass: the mask that it is a copy of

    def allow(self, b: Tensor, n: Tensor, m: Tensor) -> Tensor:
        """Return whether query n of input b may attend to key m; index tensors that broadcast -> bool."""
        raise NotImplementedError

    def __and__(self, other: Mask) -> Mask:
        return And(*_parts(self, And), *_parts(other, And))

    def __or__(self, other: Mask) -> Mask:
        return Or(*_parts(self, Or), *_parts(other, Or))

    @property
    def padding(self) -> PaddingMask | None:
        """The part that marks padding, or None."""
        return None

    def for_pass(self) -> Mask:
        """Return the same mask for one pass of a model, in which its layers share the tensors that are made of it.

        A mask itself keeps none: its lengths may change, and it may serve inference, training and graphs in turn.
        """
        if torch.compiler.is_compiling():
            return self
        found = copy.copy(self)
        found._made, found._kept = {}, self._kept or self
        return found

    def dense(
        self, batch: int, n: int, m: int, device: torch.device | str = "cpu", rows: Rows = slice(None)
    ) -> Bool[Tensor, "#B 1 rows M"]:
        """Return the mask as a matrix; only the given query rows are computed."""
        b = torch.arange(batch if self.batched else 1, device=device)[:, None, None]
        queries = torch.arange(m - n, m, device=device)[rows][None, :, None]
        keys = torch.arange(m, device=device)[None, None, :]
        allowed = self.allow(b, queries, keys)
        return allowed.expand(b.shape[0], queries.shape[1], m)[:, None]

    def sdpa(
        self, batch: int, n: int, m: int, dtype: torch.dtype, device: torch.device, bias: Tensor | None = None
    ) -> dict[str, Any]:
        """Return the arguments of `scaled_dot_product_attention` for this mask (and a bias).

        Compiled code makes them for every layer: blocks share a graph, so the first one cannot be the one that does it.
        """
        if bias is not None:
            return {"attn_mask": bias.to(dtype).masked_fill(~self.dense(batch, n, m, device), float("-inf"))}
        if self._made is None or torch.compiler.is_compiling():
            return {"attn_mask": self.dense(batch, n, m, device)}
        key = batch, n, m, dtype, device
        if key not in self._made:  # in the form that the kernels convert a mask to
            self._made[key] = self.additive(batch, n, m, dtype, device)
        return {"attn_mask": self._made[key]}

    def additive(
        self, batch: int, n: int, m: int, dtype: torch.dtype, device: torch.device, bias: Tensor | None = None
    ) -> Float[Tensor, "#B #H N M"]:
        """Return what is added to the scores: 0 if allowed, else -inf, plus a bias."""
        allowed = self.dense(batch, n, m, device)
        zero = torch.zeros((), dtype=dtype, device=device) if bias is None else bias.to(dtype)
        return torch.where(allowed, zero, float("-inf"))

    def empty_rows(self, batch: int, n: int, m: int, device: torch.device) -> Bool[Tensor, "#B 1 N 1"] | None:
        """Return which queries see nothing; None if there are none."""
        found = ~self.dense(batch, n, m, device).any(-1, keepdim=True)
        return found if bool(found.any()) else None

    def flex(self, batch: int, n: int, m: int, device: torch.device) -> Any:
        """Return the FlexAttention block mask; cached if it does not depend on the batch."""
        if not self.batched:
            return _static_block_mask(self._kept or self, n, m, device)
        return _block_mask(self, batch, n, m, device)

    def to_text(self, n: int, m: int | None = None, batch: int = 0) -> str:
        """Return the mask as text: a line for each query, a full block for each allowed key."""
        m = n if m is None else m
        picked = self.dense(batch + 1, n, m)
        matrix = picked[batch if picked.shape[0] > 1 else 0, 0].tolist()
        return "\n".join("".join("█" if seen else "·" for seen in row) for row in matrix)

    def _repr_html_(self) -> str:
        """In a notebook: its formula, and the matrix as a picture (of the first input)."""
        n, m = self._sizes() or (16, 16)
        title = f"<b>{html.escape(repr(self))}</b> <span>{n} queries, {m} keys</span>"
        if n * m > 2**22:
            return f"<div>{title}</div>"
        return f"<div>{title}<br>{html.heatmap(self.dense(1, n, m)[0, 0].float(), 'dark: may attend', 128)}</div>"

    def _sizes(self) -> tuple[int, int] | None:
        """The number of queries and keys it was made for; None: any."""
        return None

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class CausalMask(Mask):
    """A query sees itself and earlier keys."""

    kinds = frozenset({"causal"})

    def allow(self, b: Tensor, n: Tensor, m: Tensor) -> Tensor:
        return m <= n

    def sdpa(
        self, batch: int, n: int, m: int, dtype: torch.dtype, device: torch.device, bias: Tensor | None = None
    ) -> dict[str, Any]:
        """Use SDPA's `is_causal` if N == M: it aligns top-left."""
        if n == m and bias is None:
            return {"is_causal": True}
        return super().sdpa(batch, n, m, dtype, device, bias)


class PaddingMask(Mask):
    """Only the first `lengths[b]` keys are real; the rest is padding."""

    batched = True
    kinds = frozenset({"padding"})

    def __init__(self, lengths: Int[Tensor, " B"]) -> None:
        self.lengths = lengths

    @classmethod
    def from_lengths(cls, rows: Shaped[Tensor, "B N *any"], lengths: Int[Tensor, " B"] | None) -> PaddingMask | None:
        """Return the mask of padded rows, token ids or vectors; None without lengths.

        Raises `BadInput` for impossible lengths.

        Values are checked on the CPU only, since reading them from a GPU would wait for it; compiled code checks
        nothing.
        """
        if lengths is None:
            return None
        if torch.compiler.is_compiling():
            return cls(lengths)
        batch, n = rows.shape[:2]
        if not isinstance(lengths, Tensor) or lengths.shape != (batch,) or lengths.is_floating_point():
            is_ = (
                f"{lengths.dtype} of {tuple(lengths.shape)}" if isinstance(lengths, Tensor) else type(lengths).__name__
            )
            raise BadInput(f"lengths must be an integer tensor with one value for each of the {batch} rows, got {is_}")
        if type(lengths) is Tensor and lengths.device.type == "cpu" and batch:
            low, high = (int(x) for x in lengths.aminmax())
            if low < 0 or high > n:
                raise BadInput(
                    f"length {low if low < 0 else high} is out of range: rows have {n} tokens, so it must be 0 to {n}"
                )
        return cls(lengths)

    def allow(self, b: Tensor, n: Tensor, m: Tensor) -> Tensor:
        return m < self.lengths[b]

    @property
    def padding(self) -> PaddingMask:
        return self

    def real(self, m: int) -> Bool[Tensor, "B M"]:
        """Return which of the M keys are real."""
        return torch.arange(m, device=self.lengths.device)[None] < self.lengths[:, None]

    def __repr__(self) -> str:
        return f"PaddingMask({self.lengths.tolist()})"


class KeyMask(Mask):
    """Only some keys are real, padding may be anywhere: images padded at the right and the bottom, read row by row."""

    batched = True

    def __init__(self, real: Bool[Tensor, "B M"]) -> None:
        self.real = real

    def allow(self, b: Tensor, n: Tensor, m: Tensor) -> Tensor:
        return self.real[b, m]

    def _sizes(self) -> tuple[int, int]:
        return self.real.shape[1], self.real.shape[1]

    def __repr__(self) -> str:
        return f"KeyMask({tuple(self.real.shape)})"


class WindowMask(Mask):
    """Keys less than `width` positions away, on either side."""

    def __init__(self, width: int) -> None:
        self.width = width

    def allow(self, b: Tensor, n: Tensor, m: Tensor) -> Tensor:
        return ((n - m) < self.width) & ((m - n) < self.width)

    def __repr__(self) -> str:
        return f"WindowMask({self.width})"


class ChunkMask(Mask):
    """Chunks of `size` tokens, one after the other: a query sees all of its own and the `before` chunks before it."""

    def __init__(self, size: int, before: int | None = None) -> None:
        self.size, self.before = size, before  # None: all earlier chunks

    def allow(self, b: Tensor, n: Tensor, m: Tensor) -> Tensor:
        apart = n // self.size - m // self.size
        return apart >= 0 if self.before is None else (apart >= 0) & (apart <= self.before)

    def __repr__(self) -> str:
        return f"ChunkMask({self.size})" if self.before is None else f"ChunkMask({self.size}, {self.before})"


class GlobalMask(Mask):
    """A few tokens that see all tokens and are seen by all."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self.tokens = tuple(tokens)

    def allow(self, b: Tensor, n: Tensor, m: Tensor) -> Tensor:
        found = (n < 0) & (m < 0)  # all False, in the broadcast shape
        for token in self.tokens:
            found = found | (n == token) | (m == token)
        return found

    def __repr__(self) -> str:
        return f"GlobalMask({list(self.tokens)})"


class SegmentMask(Mask):
    """Tokens of the same segment: documents packed into one row."""

    batched = True

    def __init__(self, segment_ids: Int[Tensor, "B M"]) -> None:
        self.segment_ids = segment_ids

    def allow(self, b: Tensor, n: Tensor, m: Tensor) -> Tensor:
        return self.segment_ids[b, n] == self.segment_ids[b, m]

    def _sizes(self) -> tuple[int, int]:
        return self.segment_ids.shape[1], self.segment_ids.shape[1]

    def __repr__(self) -> str:
        return f"SegmentMask({tuple(self.segment_ids.shape)})"


class DocumentMask(Mask):
    """Texts concatenated in one row: a token sees those of its own text. `max_length` bounds their lengths."""

    batched = True  # its tensors belong to this batch and are not cached

    def __init__(self, lengths: Int[Tensor, " B"], total: int, max_length: int) -> None:
        self.lengths, self.max_length = lengths, max_length
        ends = lengths.cumsum(0)
        texts = torch.arange(len(lengths), device=lengths.device)
        self.segment_ids = texts.repeat_interleave(
            lengths, output_size=total
        )  # with the size, so as not to wait for the GPU
        self.cu_seqlens = torch.nn.functional.pad(ends, (1, 0)).int()  # B + 1: the start of each, and the end

    def allow(self, b: Tensor, n: Tensor, m: Tensor) -> Tensor:
        return self.segment_ids[n] == self.segment_ids[m]

    def positions(self) -> Int[Tensor, " T"]:
        """Return the position of each token in its own text."""
        return (
            torch.arange(len(self.segment_ids), device=self.segment_ids.device)
            - self.cu_seqlens[:-1].long()[self.segment_ids]
        )

    @property
    def token_positions(self) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        found = self.positions()[None]
        return found, found

    def _sizes(self) -> tuple[int, int]:
        return len(self.segment_ids), len(self.segment_ids)

    def __repr__(self) -> str:
        return f"DocumentMask({self.lengths.tolist()})"


class DenseMask(Mask):
    """A mask as a matrix; while decoding, the ancestors of each beam among the slots of the cache."""

    batched = True

    def __init__(
        self,
        allowed: Bool[Tensor, "B N M"],
        token_positions: tuple[Int[Tensor, "#B N"], Int[Tensor, "#B M"]] | None = None,
    ) -> None:
        self.allowed, self.token_positions = allowed, token_positions
        self._additive: Tensor | None = None
        self._empty_rows: tuple[Tensor | None] | None = None

    def allow(self, b: Tensor, n: Tensor, m: Tensor) -> Tensor:
        return self.allowed[b, n - (self.allowed.shape[2] - self.allowed.shape[1]), m]

    def dense(
        self, batch: int, n: int, m: int, device: torch.device | str = "cpu", rows: Rows = slice(None)
    ) -> Bool[Tensor, "#B 1 rows M"]:
        return self.allowed[:, None, rows]

    def sdpa(
        self, batch: int, n: int, m: int, dtype: torch.dtype, device: torch.device, bias: Tensor | None = None
    ) -> dict[str, Any]:
        return {"attn_mask": self.additive(batch, n, m, dtype, device, bias)}

    def additive(
        self, batch: int, n: int, m: int, dtype: torch.dtype, device: torch.device, bias: Tensor | None = None
    ) -> Float[Tensor, "#B #H N M"]:
        """Computed once and shared by all layers of a step."""
        if bias is not None:
            return super().additive(batch, n, m, dtype, device, bias)
        if self._additive is None or self._additive.dtype != dtype:
            self._additive = super().additive(batch, n, m, dtype, device)
        return self._additive

    def empty_rows(self, batch: int, n: int, m: int, device: torch.device) -> Bool[Tensor, "#B 1 N 1"] | None:
        if self._empty_rows is None:
            self._empty_rows = (super().empty_rows(batch, n, m, device),)
        return self._empty_rows[0]

    def select_rows(self, inputs: Int[Tensor, " R"]) -> DenseMask:
        """Return the mask of some inputs, with its cached additive form."""
        chosen = DenseMask(self.allowed[inputs])
        chosen._additive = None if self._additive is None else self._additive[inputs]
        return chosen

    def _sizes(self) -> tuple[int, int]:
        return self.allowed.shape[1], self.allowed.shape[2]

    def __repr__(self) -> str:
        return f"DenseMask({tuple(self.allowed.shape)})"


class And(Mask):
    """Allowed by every part."""

    def __init__(self, *parts: Mask) -> None:
        self.parts = parts
        self.batched = any(part.batched for part in parts)
        self.kinds = frozenset().union(*(part.kinds for part in parts))

    def allow(self, b: Tensor, n: Tensor, m: Tensor) -> Tensor:
        result = self.parts[0].allow(b, n, m)
        for part in self.parts[1:]:
            result = result & part.allow(b, n, m)
        return result

    @property
    def padding(self) -> PaddingMask | None:
        """The padding mask of the parts (the shorter of several), or None."""
        found = [part.padding for part in self.parts if part.padding is not None]
        if len(found) < 2:
            return found[0] if found else None
        return PaddingMask(torch.stack([part.lengths for part in found]).amin(0))

    @property
    def token_positions(self) -> tuple[Tensor, Tensor] | None:  # type: ignore[override]
        return next((part.token_positions for part in self.parts if part.token_positions is not None), None)

    def _sizes(self) -> tuple[int, int] | None:
        return next((found for part in self.parts if (found := part._sizes())), None)

    def __repr__(self) -> str:
        return " & ".join(f"({p!r})" if isinstance(p, Or) else repr(p) for p in self.parts)


class Or(Mask):
    """Allowed by at least one part."""

    def __init__(self, *parts: Mask) -> None:
        self.parts = parts
        self.batched = any(part.batched for part in parts)

    def allow(self, b: Tensor, n: Tensor, m: Tensor) -> Tensor:
        result = self.parts[0].allow(b, n, m)
        for part in self.parts[1:]:
            result = result | part.allow(b, n, m)
        return result

    def _sizes(self) -> tuple[int, int] | None:
        return next((found for part in self.parts if (found := part._sizes())), None)

    def __repr__(self) -> str:
        return " | ".join(map(repr, self.parts))


def _parts(mask: Mask, kind: type) -> tuple[Mask, ...]:
    return mask.parts if isinstance(mask, kind) else (mask,)  # type: ignore[attr-defined]


def _block_mask(mask: Mask, batch: int | None, n: int, m: int, device: torch.device) -> Any:
    from torch.nn.attention.flex_attention import create_block_mask

    return create_block_mask(lambda b, h, i, j: mask.allow(b, i + (m - n), j), batch, None, n, m, device=str(device))


@lru_cache(maxsize=64)
def _static_block_mask(mask: Mask, n: int, m: int, device: torch.device) -> Any:
    """Return one block mask for each mask object and shape, so that a mask that is kept is built once."""
    return _block_mask(mask, None, n, m, device)
