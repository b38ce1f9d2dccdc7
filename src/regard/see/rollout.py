"""Attention rollout: several layers as one map from the input to the output of the stack.

    one layer     A_l = rows_to_one( share · S + (1 − share) · fuse_h W_l,h )       S: the residual path, the identity
    the stack     R   = A_L ⋯ A_2 A_1                                               N × N, rows sum to one
    cross         R   = rows_to_one( fuse_h W_cross,h ) · R_encoder                 output words × input words

It follows attention and the residual connection only; value vectors and feed-forward layers are ignored. `fuse` is one
of `mean_of_heads` (default), `max_of_heads`, `min_of_heads` or any function from B H N M to B N M. Windowed or pooled
layers take part through `Trace.operator`.

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
    """Average over heads."""
    return weights.mean(1)


def max_of_heads(weights: Float[Tensor, "B H N M"]) -> Float[Tensor, "B N M"]:
    """Take the maximum over heads: what any head attends to."""
    return weights.amax(1)


def min_of_heads(weights: Float[Tensor, "B H N M"]) -> Float[Tensor, "B N M"]:
    """Take the minimum over heads: what all heads attend to."""
    return weights.amin(1)


def rollout(layers: Sequence[MapLike], fuse: HeadFusion = mean_of_heads, residual: float = 0.5) -> Trace:
    """Multiply the layers, given first to last; `residual` is the weight of the residual path, 0 to 1.

    Returns a trace B 1 N N named "rollout" with the rows of the last layer and the columns of the first.
    """
    return rollout_per_layer(layers, fuse, residual)[-1]


def rollout_per_layer(
    layers: Sequence[MapLike], fuse: HeadFusion = mean_of_heads, residual: float = 0.5
) -> list[Trace]:
    """Return the rollout after each layer: of the first, of the first two, ... of all."""
    if not 0 <= residual <= 1:
        raise BadInput(f"`residual` must be 0 to 1, got {residual}.")
    if not layers:
        raise BadInput("Rollout needs at least one layer, got none.")
    traces = [as_trace(layer) for layer in layers]
    product, exact, out = None, True, []
    for trace in traces:
        step = _step(trace, fuse, residual)
        if product is not None and step.shape[-1] != product.shape[-2]:
            raise BadInput(
                f"'{trace.name}' has {step.shape[-1]} columns, but the layer before it has {product.shape[-2]} rows; "
                "give the layers of one stack, in order, with all their rows."
            )
        product = step if product is None else step @ product
        exact = exact and trace.exact
        out.append(Trace("rollout", product[:, None], exact=exact, rows=trace.rows, columns=traces[0].columns))
    return out


def cross_rollout(cross: MapLike, below: MapLike, fuse: HeadFusion = mean_of_heads) -> Trace:
    """Multiply a cross-attention map by the encoder's rollout `below`, so that its columns are input tokens.

    Cross-attention has no residual path from the input. Returns a trace B 1 T N.
    """
    top, base = as_trace(cross), as_trace(below)
    step, roll = _normalise_rows(fuse(at_least_float32(top.operator()))), at_least_float32(base.weights)
    if step.shape[-1] != roll.shape[-2]:
        raise BadInput(
            f"'{top.name}' has {step.shape[-1]} columns, but the encoder's rollout has {roll.shape[-2]} rows; "
            "give both for the same input."
        )
    exact = top.exact and base.exact
    return Trace("rollout", step[:, None] @ roll, "cross", exact=exact, rows=top.rows, columns=base.columns)


def _step(trace: Trace, fuse: HeadFusion, residual: float) -> Float[Tensor, "B out inn"]:
    """Return the matrix of one layer, attention and residual path together."""
    if trace.queries is not None:
        raise BadInput(f"'{trace.name}' holds only some rows; rollout needs all of them: watch without queries=.")
    fused = fuse(at_least_float32(trace.operator()))
    return _normalise_rows(residual * _residual_matrix(trace.geometry, fused) + (1 - residual) * fused)


def _residual_matrix(geometry: Geometry | None, fused: Tensor) -> Tensor:
    """Return the residual path as a matrix: the identity, or the pooling given by the geometry."""
    rows, columns = fused.shape[-2:]
    if geometry is None or geometry.skip is None:
        if rows != columns:
            raise BadInput(
                f"Rollout needs self-attention (as many rows as columns), got {rows} rows and {columns} columns."
            )
        return torch.eye(rows, dtype=fused.dtype, device=fused.device)
    shares = geometry.skip.shares(fused.dtype).flatten(1, 2).to(fused.device)  # #B out P
    cells = geometry.skip.cells.flatten(1, 2).to(fused.device)
    flat = shares.new_zeros(*shares.shape[:2], columns)
    return flat.scatter_add_(2, cells.clamp(min=0), shares)  # padding has share 0, so cell 0 gains nothing


def _normalise_rows(weights: Tensor) -> Tensor:
    """Divide rows by their sum; rows of zeros stay zero."""
    total = weights.sum(-1, keepdim=True)
    return weights / torch.where(total == 0, 1.0, total)


def at_least_float32(weights: Tensor) -> Tensor:
    """Cast to at least float32, detached: products of half-precision rows would not sum to one."""
    return weights.detach().to(torch.promote_types(weights.dtype, torch.float32))
