"""What every picture is drawn from: the maps of one input, H N M, with a name for each row and column.

A bare array is taken too: N M is one map, H N M are heads, 1 H N M is a batch of one. Regrouped layers (windows,
pooling) are read on the input grid, through `Trace.operator`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from regard.core.errors import BadInput
from regard.core.shapes import Tensor
from regard.core.trace import Trace
from regard.see.token_display import visible

MapLike = Trace | Tensor | np.ndarray


@dataclass(frozen=True, eq=False)
class AttentionMaps:
    """The attention maps of one layer for one input, finite float32 numbers ready to be drawn."""

    name: str
    kind: str
    weights: np.ndarray  # H N M
    heads: tuple[int, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    exact: bool = True
    centres: np.ndarray | None = None  # H N P, in columns from 0

    def map(self, head: int | None = None) -> np.ndarray:
        """N M of one head, by the number it has in the model; None: the mean over heads."""
        if head is None:
            mean: np.ndarray = self.weights.mean(0)
            return mean
        if head not in self.heads:
            raise BadInput(f"'{self.name}' has no head {head}; it has {', '.join(map(str, self.heads))}")
        one: np.ndarray = self.weights[self.heads.index(head)]
        return one

    @property
    def layer(self) -> str:
        """The layer's number, read from its name; the name itself where it has none."""
        numbers = re.findall(r"(?<![^.])\d+(?![^.])", self.name)
        return numbers[-1] if numbers else self.name


def as_trace(seen: MapLike) -> Trace:
    """A trace as it is; a bare array as a trace without a name."""
    if isinstance(seen, Trace):
        return seen
    weights = torch.as_tensor(seen)
    if not 2 <= weights.ndim <= 4:
        raise BadInput(f"a map has 2 to 4 axes (N M, H N M or B H N M), this one has {weights.ndim}")
    real = torch.promote_types(weights.dtype, torch.float32)
    return Trace("attention", weights[(None,) * (4 - weights.ndim)].to(real))


def to_maps(seen: MapLike) -> AttentionMaps:
    """The maps of one input; a batch of several, an empty map or a NaN is refused."""
    trace = as_trace(seen)
    weights = trace.operator().detach().to("cpu", torch.float32).numpy()
    batch, heads, n, m = weights.shape
    if batch != 1:
        raise BadInput(f"'{trace.name}' holds {batch} inputs; a picture shows one: take trace.only(0)")
    if not heads * n * m:
        raise BadInput(f"'{trace.name}' is empty ({heads} heads, {n} rows, {m} columns): there is nothing to draw")
    if not np.isfinite(weights).all():
        raise BadInput(f"'{trace.name}' holds NaN or infinite weights; look for what made them before drawing")
    numbers = trace.heads if trace.heads is not None and len(trace.heads) == heads else tuple(range(heads))
    return AttentionMaps(
        trace.name,
        trace.kind,
        weights[0],
        numbers,
        _names(trace.rows, n, trace.queries),
        _names(trace.columns, m, None),
        trace.exact,
        None if trace.centres is None else trace.centres[0].detach().to("cpu", torch.float32).numpy(),
    )


def to_all_maps(seen: Sequence[MapLike]) -> list[AttentionMaps]:
    """`read` for several layers; at least one."""
    if isinstance(seen, Trace | Tensor | np.ndarray):
        raise BadInput("this picture takes a list of traces, one a layer")
    if not seen:
        raise BadInput("no traces were given; did the pass run inside `with regard.watch(model) as seen:`?")
    return [to_maps(s) for s in seen]


def _names(given: tuple[str, ...] | None, count: int, picked: tuple[int, ...] | None) -> tuple[str, ...]:
    """A visible name for each of `count` slots: the given ones, else their numbers."""
    asked = picked if picked is not None and len(picked) == count else tuple(range(count))
    if given is None:
        return tuple(map(str, asked))
    if len(given) != count:
        if picked is None or len(given) <= max(asked):
            raise BadInput(f"{len(given)} names were given for {count} rows or columns; label the trace again")
        given = tuple(given[i] for i in asked)
    return tuple(visible(t) for t in given)
