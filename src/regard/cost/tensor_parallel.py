"""Tensor parallelism: the slice of a model on one of several devices that share every matrix.

    columns    qkv, q, kv, up, gate     each device has some of the outputs: whole heads, some hidden units
    rows       out, down                each device has the matching inputs; the outputs are summed over devices

Embeddings, norms, the head and the residual path are on every device. The slices are those of training
(training/parallel/parallelize.py), but there is only one device here: the matrices are smaller, and the bytes that
would be summed over devices are noted (forward: outputs of rows; backward: gradients of the inputs of columns).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from regard.attention.mechanisms.softmax import SoftmaxAttention
from regard.attention.multihead import MultiHeadAttention
from regard.attention.projections import CrossProjection, QKVProjection
from regard.blocks.encoder import Stack
from regard.blocks.feedforward import FeedForward
from regard.core.errors import BadInput, Unsupported
from regard.core.shapes import Tensor
from regard.cost.meter import Meter


def slicing_plan(model: nn.Module, ranks: int) -> dict[str, str]:
    """Return how each matrix is sliced: name -> "columns" or "rows"."""
    cut: dict[str, str] = {}
    for name, module in model.named_modules():
        if isinstance(module, MultiHeadAttention):
            for part, cuts in (
                (module.attend, (SoftmaxAttention,)),
                (module.project, (QKVProjection, CrossProjection)),
            ):
                if type(part) not in cuts:
                    raise Unsupported(f"--tensor-parallel cuts between heads, which {type(part).__name__} may mix")
            if module.project.kv_heads % ranks:
                raise BadInput(
                    f"--tensor-parallel {ranks} does not divide the {module.project.kv_heads} (key) heads of {name}"
                )
            if getattr(module.project, "q_norm", None) is not None:
                raise Unsupported(
                    f"--tensor-parallel cuts between heads, which share the norms of queries and keys ({name})"
                )
            inner = ("qkv",) if module.kind == "self" else ("q", "kv")
            cut |= {f"{name}.project.{part}": "columns" for part in inner} | {f"{name}.join.out": "rows"}
        elif isinstance(module, FeedForward):
            if module.up.out_features % ranks:
                raise BadInput(
                    f"--tensor-parallel {ranks} does not divide the {module.up.out_features} units of {name}"
                )
            cut |= {f"{name}.{part}": "columns" for part in ("up", "gate") if hasattr(module, part)}
            cut[f"{name}.down"] = "rows"
        elif isinstance(module, Stack) and getattr(module.positions, "kind", "") == "bias":
            raise Unsupported(
                f"--tensor-parallel cuts between heads, and the positions of {name} are a bias for all of them"
            )
    if not cut:
        raise Unsupported("--tensor-parallel is for Transformers: this model has no heads and no feed-forward to cut")
    return cut


def slice_matrices(model: nn.Module, ranks: int) -> dict[str, str]:
    """Replace the matrices of a model by the slices of one of `ranks` devices; return the plan."""
    found = slicing_plan(model, ranks)
    for name, how in found.items():
        above, _, last = name.rpartition(".")
        old: nn.Linear = model.get_submodule(name)  # type: ignore[assignment]
        inputs, outputs = old.in_features, old.out_features
        inputs, outputs = (inputs, outputs // ranks) if how == "columns" else (inputs // ranks, outputs)
        new = nn.Linear(inputs, outputs, bias=old.bias is not None, dtype=old.weight.dtype)
        setattr(model.get_submodule(above), last, new)
    return found


@contextmanager
def count_all_reduces(model: nn.Module, cuts: dict[str, str], meter: Meter) -> Iterator[None]:
    """Inside the context, note the bytes that all-reduces would sum, and how many there would be."""
    handles = []

    def rows(_: nn.Module, args: tuple[Any, ...], out: Tensor) -> None:
        meter.note("sums forward", out.numel() * out.element_size())
        meter.note("sums", 1)

    def columns(_: nn.Module, args: tuple[Any, ...], out: Tensor) -> None:
        meter.note("sums backward", args[0].numel() * out.element_size())  # the gradient, in the dtype of the product
        meter.note("sums", 1)

    for name, module in model.named_modules():  # a stack of equal blocks may be shortened
        if name in cuts:
            handles.append(module.register_forward_hook(rows if cuts[name] == "rows" else columns))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
