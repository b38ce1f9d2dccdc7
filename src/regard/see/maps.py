"""The common input of all figures: the maps of one input, H N M, with a name for each row and column.

Arrays are accepted too: N M is one map, H N M are heads, 1 H N M is a batch of one. Regrouped layers (windows, pooling)
are converted to the input grid by `Trace.operator`.
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
from regard.see.token_display import readable_pieces, visible

MapLike = Trace | Tensor | np.ndarray


@dataclass(frozen=True, eq=False)
class AttentionMaps:
    """The attention maps of one layer for one input: finite float32."""

    name: str
    kind: str
    weights: np.ndarray  # H N M
    heads: tuple[int, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    exact: bool = True
    centres: np.ndarray | None = None  # H N P, in columns from 0

    def map(self, head: int | None = None) -> np.ndarray:
        """Return the map N M of one head, by its number in the model; None: the mean over heads."""
        if head is None:
            mean: np.ndarray = self.weights.mean(0)
            return mean
        if head not in self.heads:
            raise BadInput(f"There is no head {head} in {self.title}: it has {_numbers(self.heads)}.")
        one: np.ndarray = self.weights[self.heads.index(head)]
        return one

    @property
    def title(self) -> str:
        """The layer and what it does, in words: "decoder layer 1, cross-attention"."""
        return layer_title(self.name, self.kind)

    @property
    def sides(self) -> tuple[str, str]:
        """What rows are, and what columns are to them."""
        if self.kind in ("read", "write"):  # of a memory
            return "step", "looks at cell"
        if self.kind != "self" and self._are_characters:
            return "output token", "looks at input character"
        if self.kind != "self":
            return "output word", "looks at input word"
        if self.rows != self.columns and self.rows[:-1] == self.columns[1:]:  # the rows are a token ahead
            return "predicted token", "from the tokens up to this one"
        return "character" if self._are_characters else "word", "looks at"

    @property
    def _are_characters(self) -> bool:
        """Whether the columns are single characters, such as letters, but for marks of the beginning and the end."""
        marks = {"<s>", "</s>", "[CLS]", "[SEP]"}
        return all((len(name) == 1 and not name.isdigit()) or name in marks for name in self.columns)

    @property
    def explanation(self) -> str:
        """What the rows and the columns are, in a sentence."""
        each, others = {
            "step": ("a step", "the cells that it looks at"),
            "output word": ("an output word", "the input words that it looks at"),
            "output token": ("an output token", "the input characters that it looks at"),
            "character": ("a character", "the characters that it looks at"),
            "predicted token": ("a token that is predicted", "the tokens that it is predicted from"),
            "word": ("a word", "the words that it looks at"),
        }[self.sides[0]]
        return f"Each row is {each}, its columns are {others}."

    @property
    def layer(self) -> str:
        """The layer's number, read from its name; the name itself where it has none."""
        numbers = re.findall(r"(?<![^.])\d+(?![^.])", self.name)
        return numbers[-1] if numbers else self.name


def _numbers(heads: Sequence[int]) -> str:
    """Return the numbers of heads: "heads 0 to 7", "head 0", "heads 1, 5"."""
    if len(heads) > 2 and heads[-1] - heads[0] == len(heads) - 1:
        return f"heads {heads[0]} to {heads[-1]}"
    return f"head{'s' * (len(heads) > 1)} {', '.join(map(str, heads))}"


_KINDS = {"self": "self-attention", "cross": "cross-attention", "align": "alignment"}


def layer_title(name: str, kind: str) -> str:
    """Return the name of a layer in words; a name that is no path of modules stays as it is."""
    if name == "rollout":
        return "all layers as one (rollout)"
    if not re.fullmatch(r"\w+(\.\w+)+|aligner", name):
        return name
    side = next((side for side in ("encoder", "decoder") if side in name.split(".")), "")
    numbers = re.findall(r"(?<![^.])\d+(?![^.])", name)
    layer = f"layer {numbers[-1]}" if numbers else ""
    words = " ".join(word for word in (side, layer) if word)
    what = _KINDS.get(kind, kind)
    return f"{words}, {what}" if words else what


def as_trace(seen: MapLike) -> Trace:
    """Return a trace unchanged, an array as a trace named "attention"."""
    if isinstance(seen, Trace):
        return seen
    weights = torch.as_tensor(seen)
    if not 2 <= weights.ndim <= 4:
        raise BadInput(f"Expected a map with 2 to 4 axes (N M, H N M or B H N M), got {weights.ndim}.")
    real = torch.promote_types(weights.dtype, torch.float32)
    return Trace("attention", weights[(None,) * (4 - weights.ndim)].to(real))


def to_maps(seen: MapLike) -> AttentionMaps:
    """Return the maps of one input; raise for a batch of several, an empty map or NaN."""
    trace = as_trace(seen)
    weights = trace.operator().detach().to("cpu", torch.float32).numpy()
    batch, heads, n, m = weights.shape
    if batch != 1:
        raise BadInput(f"'{trace.name}' holds {batch} inputs; a figure shows one: use trace.only(0).")
    if not heads * n * m:
        raise BadInput(f"Nothing to draw: '{trace.name}' is empty ({heads} heads, {n} rows, {m} columns).")
    if not np.isfinite(weights).all():
        raise BadInput(f"'{trace.name}' contains NaN or infinite weights.")
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
    """Apply `to_maps` to a list of at least one trace."""
    if isinstance(seen, Trace | Tensor | np.ndarray):
        raise BadInput(f"Expected a list of traces, one per layer, got a single {type(seen).__name__}.")
    if not seen:
        raise BadInput("The list of traces is empty; did the pass run inside `with regard.watch(model) as seen:`?")
    return [to_maps(s) for s in seen]


def _names(labels: tuple[str, ...] | None, count: int, queries: tuple[int, ...] | None) -> tuple[str, ...]:
    """Return a printable name for each of `count` rows or columns: its label, else its number."""
    indices = queries if queries is not None and len(queries) == count else tuple(range(count))
    if labels is None:
        return tuple(map(str, indices))
    if len(labels) != count:
        if queries is None or len(labels) <= max(indices):
            raise BadInput(f"Got {len(labels)} labels for {count} rows or columns; use `Trace.with_labels`.")
        labels = tuple(labels[i] for i in indices)
    return tuple(visible(t) for t in readable_pieces(labels))
