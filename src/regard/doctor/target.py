"""The model under examination: a copy of it in float64, inputs for it, and how it is called.

Equalities are looked at in float64, where what is equal is equal to the last digits and what leaks stands out. Inputs
are a sequence each: token numbers B N, or vectors B N C; an input may have true lengths, the rest of it is padding.
How a model is told its lengths is read off the names of its arguments:

    lengths, <input>_lengths                        how many are real
    attention_mask, <input>_mask                    True (or 1) where they are
    key_padding_mask, <input>_key_padding_mask      True where they are not, as in PyTorch's own modules
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from regard.core.errors import BadInput
from regard.core.shapes import Tensor
from regard.doctor.report import Skipped

FLOAT64_TOLERANCE, FLOAT32_TOLERANCE = (
    1e-9,
    1e-4,
)  # how far equal things may be apart, as a share of the largest value: float64, float32
MAX_PARAMETERS = 400_000_000  # parameters of a model that is copied to float64


@dataclass(frozen=True, eq=False)
class TargetInputs:
    """What a model reads, and how it is told."""

    inputs: tuple[Tensor, ...] = ()
    lengths: tuple[Tensor | None, ...] = ()  # of each input; None: it has no padding
    names: tuple[str, ...] = ()
    causal: int | None = None  # the input of which the output may not look ahead; the output is as long as it
    call: Callable[..., Any] | None = None  # call(model, *inputs, *lengths), where names do not say it
    by_name: bool = False  # inputs are keyword arguments
    steps: Callable[..., Tensor] | None = (
        None  # as `call`, one place after another, where start and step read no tokens
    )

    def row(self, b: int) -> tuple[tuple[Tensor, ...], tuple[Tensor | None, ...]]:
        """One row by itself, without its padding."""
        both = list(zip(self.inputs, self.lengths, strict=True))
        cut = tuple(x[b : b + 1] if own is None else x[b : b + 1, : int(own[b])] for x, own in both)
        return cut, tuple(None if own is None else own[b : b + 1] for own in self.lengths)


class CheckTarget:
    """What is examined, and everything that the checks ask of it. The model that was given is left as it is."""

    def __init__(self, model: nn.Module, reads: TargetInputs, ties: Sequence[Sequence[str]] = ()) -> None:
        self.original, self.reads, self.ties = model, reads, [tuple(group) for group in ties]
        self.is_nondeterministic = False  # two runs differ: equality means nothing
        self.has_nonfinite = False  # some weights are not finite
        self.mutated_input = ""  # the input that the model writes into
        try:
            self.model = copy.deepcopy(model).to("cpu").eval()
        except Exception as error:
            why = " ".join(str(error).split())[:120]
            raise BadInput(f"a model is examined in a copy, and this one cannot be copied: {why}") from None
        self.tolerance = self._widened()

    def _widened(self) -> float:
        """Make the copy one in float64 if it runs there; how exact equalities then are."""
        if sum(p.numel() for p in self.model.parameters()) > MAX_PARAMETERS:
            return FLOAT32_TOLERANCE
        copied, narrow = copy.deepcopy(self.model).double(), self.reads
        wide = tuple(x.double() if x.is_floating_point() else x for x in narrow.inputs)
        own = self.model
        self.model, self.reads = copied, replace(narrow, inputs=wide)
        if not narrow.inputs:
            return FLOAT64_TOLERANCE
        watch = _DtypeWatch()
        try:
            with torch.no_grad(), watch:
                self.run()
        except Exception:  # something in it is of a fixed type: its own type will do
            self.model, self.reads = own, narrow
            return FLOAT32_TOLERANCE
        return FLOAT32_TOLERANCE if watch.narrow else FLOAT64_TOLERANCE

    # -- running -------------------------------------------------------------------------------------------------------

    def run(
        self,
        inputs: Sequence[Tensor] | None = None,
        lengths: Sequence[Tensor | None] | None = None,
        model: nn.Module | None = None,
    ) -> Tensor:
        """The output as one tensor, of the inputs as they are or of others."""
        r = self.reads
        inputs, lengths = r.inputs if inputs is None else inputs, r.lengths if lengths is None else lengths
        model = self.model if model is None else model
        if not inputs:
            raise Skipped(f"it is not known what a {type(model).__name__} reads; give inputs=")
        own = [x.clone() for x in inputs]
        out = output_tensor(self._called(model, own, lengths))
        for name, mine, x in zip(r.names, own, inputs, strict=True):
            if not torch.equal(mine.detach().nan_to_num(), x.detach().nan_to_num()):
                self.mutated_input = name
        return out

    def _called(self, model: nn.Module, inputs: Sequence[Tensor], lengths: Sequence[Tensor | None]) -> Any:
        r = self.reads
        if r.call is not None:
            return r.call(model, *inputs, *(own for own in lengths if own is not None))
        words: dict[str, Any] = {}
        for name, x, own in zip(r.names, inputs, lengths, strict=True):
            if own is not None and (word := self.lengths_argument(name)) is not None:
                words[word] = _as_argument(word, x, own)
        if r.by_name:
            return model(**dict(zip(r.names, inputs, strict=True)), **words)
        return model(*inputs, **words)

    def lengths_argument(self, name: str) -> str | None:
        """The argument through which the model is told the lengths of an input."""
        takes, r = inspect.signature(self.model.forward).parameters, self.reads
        alone = sum(own is not None for own in r.lengths) == 1
        one = name.removesuffix("s")  # frames: frame_lengths
        own = [f"{name}_lengths", f"{one}_lengths", f"{name}_mask", f"{name}_key_padding_mask"]
        shared = ["lengths", "attention_mask", "key_padding_mask"] if alone else []
        return next((word for word in [*own, *shared] if word in takes), None)

    @cached_property
    def output(self) -> Tensor:
        """What the model makes of its inputs, without a graph."""
        with torch.no_grad():
            return self.run()

    # -- where things stand --------------------------------------------------------------------------------------------

    @cached_property
    def aligned_input(self) -> int | None:
        """The input that the output is as long as; None where the output is one thing for a whole row."""
        if self.reads.causal is not None or self.output.dim() < 3:
            return self.reads.causal
        same = [i for i, x in enumerate(self.reads.inputs) if x.dim() > 1 and x.shape[1] == self.output.shape[1]]
        return same[-1] if same else None

    @cached_property
    def valid(self) -> Tensor:
        """B T (B where there is no T): the outputs that stand for something real."""
        out, at = self.output, self.aligned_input
        if at is None:
            return torch.ones(out.shape[0], dtype=torch.bool)
        return self.valid_mask(at)

    def valid_mask(self, at: int) -> Tensor:
        """B N: which places of an input are no padding."""
        x, own = self.reads.inputs[at], self.reads.lengths[at]
        if own is None:
            return torch.ones(x.shape[:2], dtype=torch.bool)
        return torch.arange(x.shape[1]) < own[:, None]

    @property
    def padded_inputs(self) -> list[int]:
        """The inputs that have padding."""
        return [i for i, own in enumerate(self.reads.lengths) if own is not None and not bool(self.valid_mask(i).all())]

    def difference(self, a: Tensor, b: Tensor) -> float:
        """How far two things that should be equal are apart; 0 where that is only rounding."""
        distance = relative_difference(a, b)
        return distance if distance > self.tolerance else 0.0


class _DtypeWatch(TorchFunctionMode):
    """Sees whether a model in float64 computes in a narrower type somewhere inside."""

    narrow = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor) and out.dtype in (torch.float32, torch.float16, torch.bfloat16):
            self.narrow = True
        return out


def relative_difference(a: Tensor, b: Tensor) -> float:
    """The largest difference of two tensors, as a share of the largest value; infinite where only one is a number."""
    if a.shape != b.shape:
        return float("inf")
    if not a.numel():
        return 0.0
    a, b = a.detach().double(), b.detach().double()
    if bool((a.isfinite() != b.isfinite()).any()):
        return float("inf")
    most = max(float(a.nan_to_num(0, 0, 0).abs().max()), 1e-30)
    return float((a - b).nan_to_num(0, 0, 0).abs().max()) / most


def output_tensor(out: Any) -> Tensor:
    """The one tensor that an output is, or its logits, or the first of several."""
    if isinstance(out, Tensor):
        return out
    for name in ("logits", "last_hidden_state"):
        found = out.get(name) if isinstance(out, Mapping) else getattr(out, name, None)
        if isinstance(found, Tensor):
            return found
    parts = list(out.values()) if isinstance(out, Mapping) else list(out) if isinstance(out, (tuple, list)) else []
    for part in parts:
        if isinstance(part, Tensor) and part.is_floating_point():
            return part
    raise BadInput(f"the model gives a {type(out).__name__}; give call= that makes one tensor of it")


def _as_argument(word: str, x: Tensor, own: Tensor) -> Tensor:
    """Lengths in the form that an argument wants."""
    if word.endswith("lengths"):
        return own
    there = torch.arange(x.shape[1], device=x.device) < own[:, None]
    if word.endswith("key_padding_mask"):
        return ~there
    return there.long() if word == "attention_mask" else there


# -- reading what a user gives -----------------------------------------------------------------------------------------


def parse_inputs(
    model: nn.Module,
    inputs: Tensor | Sequence[Tensor] | Mapping[str, Tensor],
    lengths: Any,
    causal: bool | int | str | None,
    call: Callable[..., Any] | None,
) -> TargetInputs:
    """What a model reads, from what a user says; what does not fit together is one line of `BadInput`."""
    named = isinstance(inputs, Mapping)
    one = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs.values() if isinstance(inputs, Mapping) else inputs)
    for x in one:
        if not isinstance(x, Tensor) or not x.dim():
            raise BadInput(f"an input is a {type(x).__name__}; give tensors whose first dimension is the batch")
    if len({x.shape[0] for x in one}) != 1:
        raise BadInput(f"the inputs have {[x.shape[0] for x in one]} rows; every input is a batch of the same rows")
    names = tuple(inputs) if isinstance(inputs, Mapping) else _positional(model, len(one))
    sizes = _input_lengths(lengths, names, one)
    for name, x, own in zip(names, one, sizes, strict=True):
        if own is None:
            continue
        if x.dim() < 2 or own.shape != (x.shape[0],):
            raise BadInput(f"the lengths of '{name}' are of shape {tuple(own.shape)}; {x.shape[0]} numbers are wanted")
        if int(own.min()) < 1 or int(own.max()) > x.shape[1]:
            raise BadInput(f"the lengths of '{name}' are {own.tolist()}; each must be from 1 to {x.shape[1]}")
    at = _causal_index(causal, names)
    return TargetInputs(tuple(x.detach().cpu().clone() for x in one), sizes, names, at, call, named)


def _positional(model: nn.Module, count: int) -> tuple[str, ...]:
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    names = [name for name, one in inspect.signature(model.forward).parameters.items() if one.kind in kinds]
    return tuple([*names, *(f"input {i}" for i in range(len(names), count))][:count])


def _input_lengths(lengths: Any, names: Sequence[str], inputs: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
    """The lengths of each input; one tensor (or list of numbers) is those of the first."""
    if lengths is None:
        return tuple(None for _ in inputs)
    if isinstance(lengths, Mapping):
        for name in lengths:
            if name not in names:
                raise BadInput(f"there are lengths of '{name}', but the inputs are {', '.join(names)}")
        found = [lengths.get(name) for name in names]
    elif isinstance(lengths, Tensor) or all(isinstance(n, int) for n in lengths):
        found = [lengths, *(None for _ in names[1:])]
    else:
        found = list(lengths)
    if len(found) != len(inputs):
        raise BadInput(f"{len(found)} lengths for {len(inputs)} inputs; give one tensor, or one (or None) for each")
    return tuple(None if own is None else torch.as_tensor(own).cpu() for own in found)


def _causal_index(causal: bool | int | str | None, names: Sequence[str]) -> int | None:
    """The input that `causal` means: True is the last."""
    if causal is None or isinstance(causal, bool):
        return len(names) - 1 if causal else None
    if isinstance(causal, int):
        if not 0 <= causal < len(names):
            raise BadInput(f"causal={causal}, but the inputs are numbered from 0 to {len(names) - 1}")
        return causal
    if causal not in names:
        raise BadInput(f"causal='{causal}', but the inputs are {', '.join(names)}")
    return list(names).index(causal)
