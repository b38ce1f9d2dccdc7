"""Attention of an image model on its pixels: single layers, rollout, and relevance to an answer.

A forward pass is a sequence of steps: patches are cut, layers attend, neighbours are merged. Each is a linear operator
from its input cells to its output cells (core.trace), with window shifts and pooling undone. Row vectors are multiplied
from the head down to the pixels, so that no full operator is formed:

    a layer      r W_h                       then down through moves and residual paths only
    rollout      r Π_l rows_to_one( share · S_l + (1 − share) · fuse_h W_l,h )                  Abnar, Zuidema 2020
    relevance    r ( Π_l ( S_l + Ā_l ) − Π_l S_l ),   Ā_l = mean_h max(0, ∂answer/∂W_l,h ⊙ W_l,h)   Chefer et al. 2021

S is the residual path: the identity, or the pooling of a layer that pools. Weight that ends at a class token or in the
padding of an incomplete patch is not on the map, and the rest is not renormalised. Relevance subtracts the pure
residual path: in the paper's models it stays at the class token, but with mean pooling it would add a constant to every
pixel. Windows and merging are extensions to the paper.

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
from regard.see.rollout import HeadFusion, at_least_float32, mean_of_heads

ImagePoint = tuple[float, float]  # y, x from the top left corner, as fractions of height and width


@dataclass(frozen=True, eq=False)
class PixelAttribution:
    """The recorded pass of one image through a model, and the weights with which the head pools the last tokens."""

    steps: Sequence[Trace]  # of one image, in order
    reads: Float[Tensor, " N"]  # 1 at the class token; 1/N for mean pooling
    prefix: int = 0  # tokens before those of the grid
    grid: tuple[int, ...] | None = None  # rows and columns of the first tokens, if no step records the patches

    def __post_init__(self) -> None:
        if not self.layers:
            raise BadInput("No attention was recorded, so there is no map to draw.")
        if len(self.cells) != 2:
            raise BadInput(f"Expected an input grid with rows and columns, got {len(self.cells)} axes.")
        if self.reads.shape[-1] != self.steps[self.layers[-1]].num_outputs:
            last = self.steps[self.layers[-1]].num_outputs
            raise BadInput(f"The head reads {self.reads.shape[-1]} tokens, but the last layer has {last}.")

    @property
    def layers(self) -> list[int]:
        """Indices of the steps that attend."""
        return [i for i, step in enumerate(self.steps) if step.kind == "self"]

    @property
    def cells(self) -> tuple[int, ...]:
        """Rows and columns of the maps: pixels, if the steps record how patches were cut."""
        first = self.steps[0]
        if first.geometry is not None:
            return first.geometry.keys.grid
        return (first.num_inputs - self.prefix,) if self.grid is None else self.grid

    @property
    def exact(self) -> bool:
        """False if a receptive field approximates a convolution somewhere."""
        return all(step.exact for step in self.steps)

    def uniform_weight(self, layer: int = -1) -> float:
        """Return the mean weight of a pixel under uniform attention to all grid tokens of a layer."""
        at = self._step(layer)
        rows = torch.zeros(1, 1, 1, self.steps[at].num_inputs, dtype=torch.float64)
        rows[..., self.prefix :] = 1 / (rows.shape[-1] - self.prefix)
        for below in reversed(self.steps[:at]):
            rows = _skip_attention(below, self._drop_prefix(rows, below.num_outputs))
        return float(self._map(rows).mean())

    def heads(self, layer: int, query: ImagePoint | None = None) -> Float[Tensor, "H Y X"]:
        """Return the map of each head of a layer for the token at `query`, or for the tokens the classifier reads."""
        at = self._step(layer)
        step = self.steps[at]
        seen = step.left_multiply(
            self._rows(at, query).to(at_least_float32(step.weights)), at_least_float32(step.weights)
        )
        for below in reversed(self.steps[:at]):
            seen = _skip_attention(below, self._drop_prefix(seen, below.num_outputs))
        return self._map(seen)[0, :, 0]

    def rollout(
        self, query: ImagePoint | None = None, fuse: HeadFusion = mean_of_heads, residual: float = 0.5
    ) -> Float[Tensor, "Y X"]:
        """Return attention rollout through all layers; `residual` is the weight of the residual path, 0 to 1."""
        if not 0 <= residual <= 1:
            raise BadInput(f"`residual` must be 0 to 1, got {residual}.")
        rows = self._rows(self.layers[-1], query)
        for step in reversed(self.steps[: self.layers[-1] + 1]):
            rows = self._drop_prefix(rows, step.num_outputs).to(at_least_float32(step.weights))
            if step.kind == "move":
                rows = step.left_multiply(rows)
                continue
            fused = fuse(at_least_float32(step.weights))[:, None]
            whole = _totals(step, fused, residual)
            rows = rows / torch.where(whole == 0, 1.0, whole)[:, :, None]
            rows = residual * _skip_attention(step, rows) + (1 - residual) * step.left_multiply(rows, fused)
        return self._map(rows)[0, 0, 0]

    def relevance(self, query: ImagePoint | None = None) -> Float[Tensor, "Y X"]:
        """Return the relevance of each pixel to the differentiated answer; at least 0."""
        rows = around = self._rows(self.layers[-1], query)
        for step in reversed(self.steps[: self.layers[-1] + 1]):
            rows, around = (
                self._drop_prefix(r, step.num_outputs).to(at_least_float32(step.weights)) for r in (rows, around)
            )
            if step.kind == "move":
                rows, around = step.left_multiply(rows), step.left_multiply(around)
                continue
            if step.gradient is None:
                raise BadInput(
                    f"'{step.name}' has no gradient; watch with gradients=True and call backward on an answer."
                )
            fused = (
                (at_least_float32(step.gradient) * at_least_float32(step.weights)).clamp(min=0).mean(1, keepdim=True)
            )
            rows, around = _skip_attention(step, rows) + step.left_multiply(rows, fused), _skip_attention(step, around)
        return self._map(rows - around)[0, 0, 0]

    def _step(self, layer: int) -> int:
        if not -len(self.layers) <= layer < len(self.layers):
            raise BadInput(f"there is no layer {layer}; there are 0 to {len(self.layers) - 1}")
        return self.layers[layer]

    def _rows(self, at: int, query: ImagePoint | None) -> Float[Tensor, "1 1 1 N"]:
        """Return the weights of the output tokens of a step from which rows are carried down."""
        many, whole = self.steps[at].num_outputs, self.reads.to(at_least_float32(self.steps[at].weights))
        if query is not None:
            rows = whole.new_zeros(many)
            rows[self._token(at, query)] = 1.0
        elif at == self.layers[-1]:
            rows = whole
        elif whole[: self.prefix].sum() > 0.5:  # the class token, present in all layers
            rows = torch.cat([whole[: self.prefix], whole.new_zeros(many - self.prefix)])
        else:
            rows = torch.full_like(whole[:1], 1 / (many - self.prefix)).repeat(many)
            rows[: self.prefix] = 0
        return rows[None, None, None]

    def _token(self, at: int, query: ImagePoint) -> int:
        """Return the output token of a step at a point of the image."""
        if not all(0 <= q < 1 for q in query):
            raise BadInput(f"Point {query} is outside the image; both numbers must be at least 0 and below 1.")
        down, right = (int(q * n) for q, n in zip(query, self.cells, strict=True))
        there = torch.zeros(1, prod(self.cells), dtype=torch.float64)
        there[0, down * self.cells[1] + right] = 1.0
        for step in self.steps[: at + 1]:
            if there.shape[-1] + self.prefix == step.num_inputs:  # the class token is added here
                there = torch.cat([there.new_zeros(1, self.prefix), there], -1)
            if (slots := _slots(step)) is not None:
                there = slots.gather(there.to(slots.cells.device)).flatten(1)
        return int(there.argmax())

    def _drop_prefix(self, rows: Tensor, num_outputs: int) -> Tensor:
        """Drop the prefix tokens if the step below does not have them."""
        if rows.shape[-1] == num_outputs + self.prefix:
            return rows[..., self.prefix :]
        if rows.shape[-1] != num_outputs:
            raise BadInput(
                f"A layer reads {rows.shape[-1]} cells, but the step before it has {num_outputs}; watch all layers."
            )
        return rows

    def _map(self, rows: Tensor) -> Tensor:
        return self._drop_prefix(rows, prod(self.cells)).unflatten(-1, self.cells)


def _slots(step: Trace) -> Slots | None:
    """Return how a step moves tokens apart from attention; None: each keeps its position."""
    if step.geometry is None:
        return None
    return step.geometry.keys if step.kind == "move" else step.geometry.skip


def _skip_attention(step: Trace, rows: Tensor) -> Tensor:
    """Carry rows down through a step by its residual path only."""
    slots = _slots(step)
    return rows if slots is None else slots.scatter(rows.unflatten(-1, slots.cells.shape[1:3]))


def _totals(step: Trace, fused: Tensor, residual: float) -> Float[Tensor, "B 1 N"]:
    """Return the row sums of a layer with its residual path."""
    own = fused.sum(-1) if step.geometry is None else step.geometry.row_sums(fused)
    slots = _slots(step)
    around = 1.0 if slots is None else slots.shares(own.dtype).sum(-1).flatten(1)[:, None].to(own.device)
    return residual * around + (1 - residual) * own
