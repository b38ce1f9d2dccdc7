"""What a model over images looked at, on the grid of its pixels: single layers, rollout, and relevance to an answer.

A pass is a row of steps: patches are cut, layers attend, neighbours are merged. Each is an operator from the cells it
reads to the cells it writes (core.trace), windows un-shifted and pools undone. A few rows are carried down through it,
from what the head reads to the pixels, so that no operator is ever formed whole:

    a layer      r W_h                       then down by moves and the ways around attention alone
    rollout      r Π_l rows_to_one( share · S_l + (1 − share) · fuse_h W_l,h )                  Abnar, Zuidema 2020
    relevance    r ( Π_l ( S_l + Ā_l ) − Π_l S_l ),   Ā_l = mean_h max(0, ∂answer/∂W_l,h ⊙ W_l,h)   Chefer et al. 2021

S is the way around: the identity, or the pooling of a layer that pools. What ends at a class token is not on the map,
nor is what ends beyond the edge, where a patch or a square of neighbours is not whole: a cell that is cut has the
share of what is left of it, and its pixels no more than others. Nothing is renormalised for either. Relevance takes
off what came by no attention at all, which in the paper's models stays at the class token, but with a mean over tokens
would light every pixel alike; windows and merging are ours too.

Abnar, Zuidema: Quantifying Attention Flow in Transformers. ACL 2020. arXiv:2005.00928
Chefer, Gur, Wolf: Generic Attention-model Explainability for Interpreting Bi-Modal and Encoder-Decoder Transformers.
ICCV 2021. arXiv:2103.15679
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch

from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor
from regard.core.trace import Slots, Trace
from regard.see.rollout import HeadFusion, mean_of_heads

ImagePoint = tuple[float, float]  # down and right from the top left corner, as shares of the image's height and width


@dataclass(frozen=True, eq=False)
class PixelAttribution:
    """The pass of one image through a model, and the shares of its last tokens that the head reads."""

    steps: Sequence[Trace]  # Seen.passed(): of one image
    reads: Float[Tensor, " N"]  # 1 at the class token; 1/N everywhere where the head reads the mean
    prefix: int = 0  # tokens before those of the grid
    grid: tuple[int, ...] | None = None  # rows and columns of the first tokens, where nothing says how they were cut

    def __post_init__(self) -> None:
        if not self.layers:
            raise BadInput("nothing that attends was seen, so there is no map to draw")
        if len(self.cells) != 2:
            raise BadInput(f"a map over an image has rows and columns; this model's input has {len(self.cells)} axes")
        if self.reads.shape[-1] != self.steps[self.layers[-1]].num_outputs:
            last = self.steps[self.layers[-1]].num_outputs
            raise BadInput(f"the head reads {self.reads.shape[-1]} tokens, the last layer writes {last}")

    @property
    def layers(self) -> list[int]:
        """The numbers of the steps that attend."""
        return [i for i, step in enumerate(self.steps) if step.kind == "self"]

    @property
    def cells(self) -> tuple[int, ...]:
        """Rows and columns of the maps: pixels, where the steps say how patches were cut."""
        first = self.steps[0]
        if first.geometry is not None:
            return first.geometry.keys.grid
        return (first.num_inputs - self.prefix,) if self.grid is None else self.grid

    @property
    def exact(self) -> bool:
        """Whether every step is what it does to values; False: somewhere a receptive field stands for a convolution."""
        return all(step.exact for step in self.steps)

    def uniform_weight(self, layer: int = -1) -> float:
        """What a pixel gets of a look that is the same at all tokens of the grid that a layer reads (its mean)."""
        at = self._step(layer)
        rows = torch.zeros(1, 1, 1, self.steps[at].num_inputs, dtype=torch.float64)
        rows[..., self.prefix :] = 1 / (rows.shape[-1] - self.prefix)
        for below in reversed(self.steps[:at]):
            rows = _skip_attention(below, self._cut(rows, below.num_outputs))
        return float(self._map(rows).mean())

    def heads(self, layer: int, query: ImagePoint | None = None) -> Float[Tensor, "H Y X"]:
        """What each head of a layer looks at, from a place or from what the head of the model reads."""
        at = self._step(layer)
        step = self.steps[at]
        seen = step.left_multiply(
            self._rows(at, query).to(_at_least_float32(step.weights)), _at_least_float32(step.weights)
        )
        for below in reversed(self.steps[:at]):
            seen = _skip_attention(below, self._cut(seen, below.num_outputs))
        return self._map(seen)[0, :, 0]

    def rollout(
        self, query: ImagePoint | None = None, fuse: HeadFusion = mean_of_heads, residual: float = 0.5
    ) -> Float[Tensor, "Y X"]:
        """All layers as one; `residual` is the share of the way around attention."""
        if not 0 <= residual <= 1:
            raise BadInput(f"the residual share lies between 0 and 1, not at {residual}")
        rows = self._rows(self.layers[-1], query)
        for step in reversed(self.steps[: self.layers[-1] + 1]):
            rows = self._cut(rows, step.num_outputs).to(_at_least_float32(step.weights))
            if step.kind == "move":
                rows = step.left_multiply(rows)
                continue
            fused = fuse(_at_least_float32(step.weights))[:, None]
            whole = _totals(step, fused, residual)
            rows = rows / torch.where(whole == 0, 1.0, whole)[:, :, None]
            rows = residual * _skip_attention(step, rows) + (1 - residual) * step.left_multiply(rows, fused)
        return self._map(rows)[0, 0, 0]

    def relevance(self, query: ImagePoint | None = None) -> Float[Tensor, "Y X"]:
        """What bore on the answer that was differentiated; at least 0, in the answer's own unit."""
        rows = around = self._rows(self.layers[-1], query)
        for step in reversed(self.steps[: self.layers[-1] + 1]):
            rows, around = (self._cut(r, step.num_outputs).to(_at_least_float32(step.weights)) for r in (rows, around))
            if step.kind == "move":
                rows, around = step.left_multiply(rows), step.left_multiply(around)
                continue
            if step.gradient is None:
                raise BadInput(f"'{step.name}' has no gradient: watch with gradients=True, and differentiate an answer")
            fused = (
                (_at_least_float32(step.gradient) * _at_least_float32(step.weights)).clamp(min=0).mean(1, keepdim=True)
            )
            rows, around = _skip_attention(step, rows) + step.left_multiply(rows, fused), _skip_attention(step, around)
        return self._map(rows - around)[0, 0, 0]

    def _step(self, layer: int) -> int:
        if not -len(self.layers) <= layer < len(self.layers):
            raise BadInput(f"there is no layer {layer}; there are 0 to {len(self.layers) - 1}")
        return self.layers[layer]

    def _rows(self, at: int, query: ImagePoint | None) -> Float[Tensor, "1 1 1 N"]:
        """Which of the tokens that a step writes are asked."""
        many, whole = self.steps[at].num_outputs, self.reads.to(_at_least_float32(self.steps[at].weights))
        if query is not None:
            rows = whole.new_zeros(many)
            rows[self._token(at, query)] = 1.0
        elif at == self.layers[-1]:
            rows = whole
        elif whole[: self.prefix].sum() > 0.5:  # the class token, which all layers have
            rows = torch.cat([whole[: self.prefix], whole.new_zeros(many - self.prefix)])
        else:
            rows = torch.full_like(whole[:1], 1 / (many - self.prefix)).repeat(many)
            rows[: self.prefix] = 0
        return rows[None, None, None]

    def _token(self, at: int, query: ImagePoint) -> int:
        """The token that a step writes at a place."""
        if not all(0 <= q < 1 for q in query):
            raise BadInput(f"the place {query} is not on the image: both numbers lie between 0 and 1")
        down, right = (int(q * n) for q, n in zip(query, self.cells, strict=True))
        there = torch.zeros(1, prod(self.cells), dtype=torch.float64)
        there[0, down * self.cells[1] + right] = 1.0
        for step in self.steps[: at + 1]:
            if there.shape[-1] + self.prefix == step.num_inputs:  # the class token comes in
                there = torch.cat([there.new_zeros(1, self.prefix), there], -1)
            if (slots := _slots(step)) is not None:
                there = slots.gather(there.to(slots.cells.device)).flatten(1)
        return int(there.argmax())

    def _cut(self, rows: Tensor, writes: int) -> Tensor:
        """The rows as the step below writes them: what was looked at in a token that no pixel is in ends there."""
        if rows.shape[-1] == writes + self.prefix:
            return rows[..., self.prefix :]
        if rows.shape[-1] != writes:
            raise BadInput(f"a layer reads {rows.shape[-1]} cells but what is before it wrote {writes}; watch them all")
        return rows

    def _map(self, rows: Tensor) -> Tensor:
        return self._cut(rows, prod(self.cells)).unflatten(-1, self.cells)


def _slots(step: Trace) -> Slots | None:
    """How a step carries tokens where it does not attend; None: each stays in its place."""
    if step.geometry is None:
        return None
    return step.geometry.keys if step.kind == "move" else step.geometry.skip


def _skip_attention(step: Trace, rows: Tensor) -> Tensor:
    """Rows down through a step, past its attention."""
    slots = _slots(step)
    return rows if slots is None else slots.scatter(rows.unflatten(-1, slots.cells.shape[1:3]))


def _totals(step: Trace, fused: Tensor, residual: float) -> Float[Tensor, "B 1 N"]:
    """The row sums of a layer with its way around."""
    own = fused.sum(-1) if step.geometry is None else step.geometry.row_sums(fused)
    slots = _slots(step)
    around = 1.0 if slots is None else slots.shares(own.dtype).sum(-1).flatten(1)[:, None].to(own.device)
    return residual * around + (1 - residual) * own


def _at_least_float32(weights: Tensor) -> Tensor:
    """At least float32."""
    return weights.detach().to(torch.promote_types(weights.dtype, torch.float32))
