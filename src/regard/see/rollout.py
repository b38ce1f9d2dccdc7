"""Attention rollout: several layers as one map from the input to the output of the stack.

    one layer     A_l = rows_to_one( share · S + (1 − share) · fuse_h W_l,h )       S: the way around, the identity
    the stack     R   = A_L ⋯ A_2 A_1                                               N × N, rows sum to one
    cross         R   = rows_to_one( fuse_h W_cross,h ) · R_encoder                 output words × input words

It counts paths through attention and the residual connection, nothing else: what a value vector holds and what the
feed-forward layers do to it stays outside. `fuse` is one of `mean_of_heads` (default), `max_of_heads`, `min_of_heads`
or any function from B H N M to B N M. Windowed or pooled layers take part through `Trace.operator`.

Abnar, Zuidema: Quantifying Attention Flow in Transformers. ACL 2020. arXiv:2005.00928
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor
from regard.core.trace import Geometry, Trace
from regard.see.maps import MapLike, as_trace

HeadFusion = Callable[[Tensor], Tensor]


def mean_of_heads(weights: Float[Tensor, "B H N M"]) -> Float[Tensor, "B N M"]:
    """Every head counts alike."""
    return weights.mean(1)


def max_of_heads(weights: Float[Tensor, "B H N M"]) -> Float[Tensor, "B N M"]:
    """What any head looks at; sharper, and kinder to heads that do one thing well."""
    return weights.amax(1)


def min_of_heads(weights: Float[Tensor, "B H N M"]) -> Float[Tensor, "B N M"]:
    """Only what all heads look at."""
    return weights.amin(1)


def rollout(layers: Sequence[MapLike], fuse: HeadFusion = mean_of_heads, residual: float = 0.5) -> Trace:
    """The product of the layers, first layer first; `residual` is the share of the way around attention, 0 to 1.

    Returns a trace B 1 N N named "rollout" with the rows of the last layer and the columns of the first.
    """
    return rollout_per_layer(layers, fuse, residual)[-1]


def rollout_per_layer(
    layers: Sequence[MapLike], fuse: HeadFusion = mean_of_heads, residual: float = 0.5
) -> list[Trace]:
    """The rollout after each layer: of the first, of the first two, ... of all."""
    if not 0 <= residual <= 1:
        raise BadInput(f"the residual share lies between 0 and 1, not at {residual}")
    if not layers:
        raise BadInput("rollout needs at least one layer")
    traces = [as_trace(layer) for layer in layers]
    product, exact, out = None, True, []
    for trace in traces:
        step = _step(trace, fuse, residual)
        if product is not None and step.shape[-1] != product.shape[-2]:
            raise BadInput(
                f"'{trace.name}' reads {step.shape[-1]} cells but the layer before it wrote {product.shape[-2]}; "
                "give the layers of one stack, in order, with all their rows"
            )
        product = step if product is None else step @ product
        exact = exact and trace.exact
        out.append(Trace("rollout", product[:, None], exact=exact, rows=trace.rows, columns=traces[0].columns))
    return out


def cross_rollout(cross: MapLike, below: MapLike, fuse: HeadFusion = mean_of_heads) -> Trace:
    """A cross map read back to the input: `bits_to_range`, the encoder's rollout, says which words its columns came from.

    The cross map gets no way around: an output word is not made of itself. Returns a trace B 1 T N.
    """
    top, base = as_trace(cross), as_trace(below)
    step, roll = _normalise_rows(fuse(_at_least_float32(top.operator()))), _at_least_float32(base.weights)
    if step.shape[-1] != roll.shape[-2]:
        raise BadInput(
            f"'{top.name}' reads {step.shape[-1]} words but the encoder wrote {roll.shape[-2]}; "
            "give both for the same input"
        )
    exact = top.exact and base.exact
    return Trace("rollout", step[:, None] @ roll, "cross", exact=exact, rows=top.rows, columns=base.columns)


def _step(trace: Trace, fuse: HeadFusion, residual: float) -> Float[Tensor, "B out inn"]:
    """One layer with its way around."""
    if trace.queries is not None:
        raise BadInput(f"'{trace.name}' holds only some rows; rollout needs all of them (watch without queries=)")
    fused = fuse(_at_least_float32(trace.operator()))
    return _normalise_rows(residual * _residual_matrix(trace.geometry, fused) + (1 - residual) * fused)


def _residual_matrix(geometry: Geometry | None, fused: Tensor) -> Tensor:
    """The residual path as a matrix: the identity, or the pooling the geometry names."""
    rows, columns = fused.shape[-2:]
    if geometry is None or geometry.skip is None:
        if rows != columns:
            raise BadInput(
                f"a map of {rows} rows and {columns} columns has no residual path; rollout takes self-attention"
            )
        return torch.eye(rows, dtype=fused.dtype, device=fused.device)
    shares = geometry.skip.shares(fused.dtype).flatten(1, 2).to(fused.device)  # #B out P
    cells = geometry.skip.cells.flatten(1, 2).to(fused.device)
    flat = shares.new_zeros(*shares.shape[:2], columns)
    return flat.scatter_add_(2, cells.clamp(min=0), shares)  # padding has share 0, so cell 0 gains nothing


def _normalise_rows(weights: Tensor) -> Tensor:
    """Rows divided by their sum; a row that sees nothing stays zero."""
    total = weights.sum(-1, keepdim=True)
    return weights / torch.where(total == 0, 1.0, total)


def _at_least_float32(weights: Tensor) -> Tensor:
    """At least float32: products of half-precision rows would not sum to one."""
    return weights.detach().to(torch.promote_types(weights.dtype, torch.float32))
