"""Who may look at whom: a mask is a formula in index tensors, read in three ways.

    CausalMask() & PaddingMask(lengths) & (WindowMask(128) | GlobalMask([0]))

`allow(b, n, m)` is all that a kind of mask writes: index tensors that broadcast against one another -> bool, **True
means "may attend"**. Dense matrices, SDPA's arguments and FlexAttention's block masks are derived from it. Queries
stand at the end of the keys: with N queries and M keys, n runs over M - N .. M - 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch

from regard.core import html
from regard.core.errors import BadInput
from regard.core.shapes import Bool, Float, Int, Rows, Tensor


class Mask:
    """A formula that says whether query n of input b may attend to key m."""

    batched = False  # does the formula read b?
    kinds: frozenset[str] = frozenset({"any"})  # what a mechanism must be able to honour

    def allow(self, b: Tensor, n: Tensor, m: Tensor) -> Tensor:
        """May query n of input b attend to key m? Index tensors that broadcast -> bool."""
        raise NotImplementedError

    def __and__(self, other: Mask) -> Mask:
        return And(*_parts(self, And), *_parts(other, And))

    def __or__(self, other: Mask) -> Mask:
        return Or(*_parts(self, Or), *_parts(other, Or))

    @property
    def padding(self) -> PaddingMask | None:
        """The part that tells real keys from padding, where there is one."""
        return None

    def dense(
        self, batch: int, n: int, m: int, device: torch.device | str = "cpu", rows: Rows = slice(None)
    ) -> Bool[Tensor, "#B 1 rows M"]:
        """The mask as a matrix; only the asked query rows are computed."""
        b = torch.arange(batch if self.batched else 1, device=device)[:, None, None]
        queries = torch.arange(m - n, m, device=device)[rows][None, :, None]
        keys = torch.arange(m, device=device)[None, None, :]
        allowed = self.allow(b, queries, keys)
        return allowed.expand(b.shape[0], queries.shape[1], m)[:, None]

    def sdpa(
        self, batch: int, n: int, m: int, dtype: torch.dtype, device: torch.device, bias: Tensor | None = None
    ) -> dict[str, Any]:
        """The arguments that make `scaled_dot_product_attention` honour this mask (and a bias)."""
        allowed = self.dense(batch, n, m, device)
        if bias is None:
            return {"attn_mask": allowed}
        return {"attn_mask": bias.to(dtype).masked_fill(~allowed, float("-inf"))}

    def additive(
        self, batch: int, n: int, m: int, dtype: torch.dtype, device: torch.device, bias: Tensor | None = None
    ) -> Float[Tensor, "#B #H N M"]:
        """What is added to the scores: 0 where a query may look, -inf where not, and a bias."""
        allowed = self.dense(batch, n, m, device)
        zero = torch.zeros((), dtype=dtype, device=device) if bias is None else bias.to(dtype)
        return torch.where(allowed, zero, float("-inf"))

    def empty_rows(self, batch: int, n: int, m: int, device: torch.device) -> Bool[Tensor, "#B 1 N 1"] | None:
        """The queries that may see nothing; None where there is none."""
        found = ~self.dense(batch, n, m, device).any(-1, keepdim=True)
        return found if bool(found.any()) else None

    def flex(self, batch: int, n: int, m: int, device: torch.device) -> Any:
        """The FlexAttention block mask; kept where nothing in it depends on the batch."""
        if not self.batched:
            return _static_block_mask(self, n, m, device)
        return _block_mask(self, batch, n, m, device)

    def to_text(self, n: int, m: int | None = None, batch: int = 0) -> str:
        """The mask as text: one line a query, a full block where it may look."""
        m = n if m is None else m
        picked = self.dense(batch + 1, n, m)
        matrix = picked[batch if picked.shape[0] > 1 else 0, 0].tolist()
        return "\n".join("".join("█" if seen else "·" for seen in row) for row in matrix)

    def _repr_html_(self) -> str:
        """In a notebook: its formula, and the matrix as a picture (of the first input, where inputs differ)."""
        n, m = self._sizes() or (16, 16)
        said = f"<b>{html.escape(repr(self))}</b> <span>{n} queries, {m} keys</span>"
        if n * m > 2**22:
            return f"<div>{said}</div>"
        return f"<div>{said}<br>{html.heatmap(self.dense(1, n, m)[0, 0].float(), 'dark: may attend', 128)}</div>"

    def _sizes(self) -> tuple[int, int] | None:
        """How many queries and keys it was made for; None: any number."""
        return None

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class CausalMask(Mask):
    """A query sees itself and what came before it."""

    kinds = frozenset({"causal"})

    def allow(self, b: Tensor, n: Tensor, m: Tensor) -> Tensor:
        """No key after the query."""
        return m <= n

    def sdpa(
        self, batch: int, n: int, m: int, dtype: torch.dtype, device: torch.device, bias: Tensor | None = None
    ) -> dict[str, Any]:
        """SDPA's own causal flag where it means the same: it aligns top-left, so only for N == M."""
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
    def from_lengths(cls, tokens: Int[Tensor, "B N"], lengths: Int[Tensor, " B"] | None) -> PaddingMask | None:
        """The mask of padded rows, None where nothing is said of lengths; refuses those that cannot be theirs.

        Shapes are looked at, and numbers on the host: to read one on a GPU is to wait. Compiled code looks at nothing.
        """
        if lengths is None:
            return None
        if torch.compiler.is_compiling():
            return cls(lengths)
        batch, n = tokens.shape
        if not isinstance(lengths, Tensor) or lengths.shape != (batch,) or lengths.is_floating_point():
            is_ = (
                f"{lengths.dtype} of {tuple(lengths.shape)}" if isinstance(lengths, Tensor) else type(lengths).__name__
            )
            raise BadInput(f"lengths are a tensor of whole numbers, one for each of the {batch} rows; not {is_}")
        if type(lengths) is Tensor and lengths.device.type == "cpu" and batch:
            low, high = (int(x) for x in lengths.aminmax())
            if low < 0 or high > n:
                raise BadInput(f"a length of {low if low < 0 else high} in rows of {n} tokens; 0 to {n} can be")
        return cls(lengths)

    def allow(self, b: Tensor, n: Tensor, m: Tensor) -> Tensor:
        """No key at or beyond the input's length."""
        return m < self.lengths[b]

    @property
    def padding(self) -> PaddingMask:
        """Itself."""
        return self

    def real(self, m: int) -> Bool[Tensor, "B M"]:
        """Which of the M keys are real."""
        return torch.arange(m, device=self.lengths.device)[None] < self.lengths[:, None]

    def __repr__(self) -> str:
        return f"PaddingMask({self.lengths.tolist()})"


class WindowMask(Mask):
    """Keys less than `width` steps away, on either side."""

    def __init__(self, width: int) -> None:
        self.width = width

    def allow(self, b: Tensor, n: Tensor, m: Tensor) -> Tensor:
        """Near keys only."""
        return ((n - m) < self.width) & ((m - n) < self.width)

    def __repr__(self) -> str:
        return f"WindowMask({self.width})"


class GlobalMask(Mask):
    """A few tokens that see everything and that everything sees."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self.tokens = tuple(tokens)

    def allow(self, b: Tensor, n: Tensor, m: Tensor) -> Tensor:
        """Either end is one of the tokens."""
        found = (n < 0) & (m < 0)  # all False, of the shape that both indices span
        for token in self.tokens:
            found = found | (n == token) | (m == token)
        return found

    def __repr__(self) -> str:
        return f"GlobalMask({list(self.tokens)})"


class SegmentMask(Mask):
    """Tokens of the same group: documents packed into one row, or the regions of a shifted window."""

    batched = True

    def __init__(self, segment_ids: Int[Tensor, "B M"]) -> None:
        self.segment_ids = segment_ids

    def allow(self, b: Tensor, n: Tensor, m: Tensor) -> Tensor:
        """Equal groups."""
        return self.segment_ids[b, n] == self.segment_ids[b, m]

    def _sizes(self) -> tuple[int, int]:
        return self.segment_ids.shape[1], self.segment_ids.shape[1]

    def __repr__(self) -> str:
        return f"SegmentMask({tuple(self.segment_ids.shape)})"


class DocumentMask(Mask):
    """Texts laid end to end in one row: a token sees the tokens of its own text. `longest` bounds their lengths."""

    batched = True  # its tensors are this batch's: not to be kept

    def __init__(self, lengths: Int[Tensor, " B"], total: int, max_length: int) -> None:
        self.lengths, self.max_length = lengths, max_length
        ends = lengths.cumsum(0)
        texts = torch.arange(len(lengths), device=lengths.device)
        self.segment_ids = texts.repeat_interleave(
            lengths, output_size=total
        )  # the size is told: not to wait for a GPU
        self.cu_seqlens = torch.nn.functional.pad(ends, (1, 0)).int()  # B + 1: where each begins, and where all end

    def allow(self, b: Tensor, n: Tensor, m: Tensor) -> Tensor:
        """Of the same text."""
        return self.segment_ids[n] == self.segment_ids[m]

    def positions(self) -> Int[Tensor, " T"]:
        """Where each token stands in its own text."""
        return (
            torch.arange(len(self.segment_ids), device=self.segment_ids.device)
            - self.cu_seqlens[:-1].long()[self.segment_ids]
        )

    def _sizes(self) -> tuple[int, int]:
        return len(self.segment_ids), len(self.segment_ids)

    def __repr__(self) -> str:
        return f"DocumentMask({self.lengths.tolist()})"


class DenseMask(Mask):
    """A mask given as a matrix, one row a query; while decoding, a beam's ancestors among the slots of the cache."""

    batched = True

    def __init__(self, allowed: Bool[Tensor, "B N M"]) -> None:
        self.allowed = allowed
        self._additive: Tensor | None = None
        self._empty_rows: tuple[Tensor | None] | None = None

    def allow(self, b: Tensor, n: Tensor, m: Tensor) -> Tensor:
        """Look it up."""
        return self.allowed[b, n - (self.allowed.shape[2] - self.allowed.shape[1]), m]

    def dense(
        self, batch: int, n: int, m: int, device: torch.device | str = "cpu", rows: Rows = slice(None)
    ) -> Bool[Tensor, "#B 1 rows M"]:
        """The matrix itself."""
        return self.allowed[:, None, rows]

    def sdpa(
        self, batch: int, n: int, m: int, dtype: torch.dtype, device: torch.device, bias: Tensor | None = None
    ) -> dict[str, Any]:
        """The additive form."""
        return {"attn_mask": self.additive(batch, n, m, dtype, device, bias)}

    def additive(
        self, batch: int, n: int, m: int, dtype: torch.dtype, device: torch.device, bias: Tensor | None = None
    ) -> Float[Tensor, "#B #H N M"]:
        """Made once and shared by all the layers of a step."""
        if bias is not None:
            return super().additive(batch, n, m, dtype, device, bias)
        if self._additive is None or self._additive.dtype != dtype:
            self._additive = super().additive(batch, n, m, dtype, device)
        return self._additive

    def empty_rows(self, batch: int, n: int, m: int, device: torch.device) -> Bool[Tensor, "#B 1 N 1"] | None:
        """Looked for once."""
        if self._empty_rows is None:
            self._empty_rows = (super().empty_rows(batch, n, m, device),)
        return self._empty_rows[0]

    def select_rows(self, inputs: Int[Tensor, " R"]) -> DenseMask:
        """The table of some of the inputs, with what was already made of it."""
        taken = DenseMask(self.allowed[inputs])
        taken._additive = None if self._additive is None else self._additive[inputs]
        return taken

    def _sizes(self) -> tuple[int, int]:
        return self.allowed.shape[1], self.allowed.shape[2]

    def __repr__(self) -> str:
        return f"DenseMask({tuple(self.allowed.shape)})"


class And(Mask):
    """Every part must allow it."""

    def __init__(self, *parts: Mask) -> None:
        self.parts = parts
        self.batched = any(part.batched for part in parts)
        self.kinds = frozenset().union(*(part.kinds for part in parts))

    def allow(self, b: Tensor, n: Tensor, m: Tensor) -> Tensor:
        """The conjunction."""
        result = self.parts[0].allow(b, n, m)
        for part in self.parts[1:]:
            result = result & part.allow(b, n, m)
        return result

    @property
    def padding(self) -> PaddingMask | None:
        """The part that tells real keys from padding (the shorter of several)."""
        found = [part.padding for part in self.parts if part.padding is not None]
        if len(found) < 2:
            return found[0] if found else None
        return PaddingMask(torch.stack([part.lengths for part in found]).amin(0))

    def _sizes(self) -> tuple[int, int] | None:
        return next((found for part in self.parts if (found := part._sizes())), None)

    def __repr__(self) -> str:
        return " & ".join(f"({p!r})" if isinstance(p, Or) else repr(p) for p in self.parts)


class Or(Mask):
    """One part that allows it is enough."""

    def __init__(self, *parts: Mask) -> None:
        self.parts = parts
        self.batched = any(part.batched for part in parts)

    def allow(self, b: Tensor, n: Tensor, m: Tensor) -> Tensor:
        """The disjunction."""
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
    """One block mask for each mask object and shape: a model that keeps its mask pays for it once."""
    return _block_mask(mask, None, n, m, device)
