"""The model under test: a float64 copy of it, its inputs, and how it is called.

Equality is checked in float64, where rounding is small and leaks stand out. Each input is a sequence: token ids B N or
vectors B N C; it may have true lengths, and the rest of it is padding. How lengths are passed follows from the names
of the model's arguments:

    lengths, <input>_lengths                        the true lengths
    attention_mask, <input>_mask                    True (or 1) at valid positions
    key_padding_mask, <input>_key_padding_mask      True at padding, as in PyTorch's own modules
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

FLOAT64_TOLERANCE, FLOAT32_TOLERANCE = 1e-9, 1e-4  # largest difference of equal values, as a share of the largest value
MAX_PARAMETERS = 400_000_000  # larger models are not copied to float64


@dataclass(frozen=True, eq=False)
class TargetInputs:
    """The inputs of a model, their lengths, and how to call it."""

    inputs: tuple[Tensor, ...] = ()
    lengths: tuple[Tensor | None, ...] = ()  # of each input; None: no padding
    names: tuple[str, ...] = ()
    causal: int | None = None  # index of the input whose future the output must not see; it is as long as the output
    call: Callable[..., Any] | None = None  # call(model, *inputs, *lengths), if not by argument names
    by_name: bool = False  # inputs are keyword arguments
    steps: Callable[..., Tensor] | None = None  # like `call`, position by position, if `step` takes no tokens

    def row(self, b: int) -> tuple[tuple[Tensor, ...], tuple[Tensor | None, ...]]:
        """Return row `b` as a batch of one, without its padding."""
        pairs = list(zip(self.inputs, self.lengths, strict=True))
        inputs = tuple(x[b : b + 1] if length is None else x[b : b + 1, : int(length[b])] for x, length in pairs)
        return inputs, tuple(None if length is None else length[b : b + 1] for length in self.lengths)


class CheckTarget:
    """The copy of a model that the checks run, with its outputs; the original is not changed."""

    def __init__(self, model: nn.Module, example: TargetInputs, ties: Sequence[Sequence[str]] = ()) -> None:
        self.original, self.example, self.ties = model, example, [tuple(group) for group in ties]
        self.is_nondeterministic = False  # two runs differ: equality means nothing
        self.has_nonfinite = False  # some weights are not finite
        self.mutated_input = ""  # the input that the model writes into
        try:
            self.model = copy.deepcopy(model).to("cpu").eval()
        except Exception as error:
            reason = " ".join(str(error).split())[:120]
            raise BadInput(f"the model cannot be copied, and checks run on a copy: {reason}") from None
        self.tolerance = self._to_float64()

    def _to_float64(self) -> float:
        """Convert the copy to float64 if it runs there; return the tolerance of equality."""
        if sum(p.numel() for p in self.model.parameters()) > MAX_PARAMETERS:
            return FLOAT32_TOLERANCE
        copied, example = copy.deepcopy(self.model).double(), self.example
        inputs = tuple(x.double() if x.is_floating_point() else x for x in example.inputs)
        original_dtype_model = self.model
        self.model, self.example = copied, replace(example, inputs=inputs)
        if not example.inputs:
            return FLOAT64_TOLERANCE
        watch = _DtypeWatch()
        try:
            with torch.no_grad(), watch:
                self.run()
        except Exception:  # something in it has a fixed dtype: keep the original one
            self.model, self.example = original_dtype_model, example
            return FLOAT32_TOLERANCE
        return FLOAT32_TOLERANCE if watch.narrow else FLOAT64_TOLERANCE

    # -- running -------------------------------------------------------------------------------------------------------

    def run(
        self,
        inputs: Sequence[Tensor] | None = None,
        lengths: Sequence[Tensor | None] | None = None,
        model: nn.Module | None = None,
    ) -> Tensor:
        """Run the model on its example inputs, or on others, and return the output as one tensor."""
        example = self.example
        inputs, lengths = example.inputs if inputs is None else inputs, example.lengths if lengths is None else lengths
        model = self.model if model is None else model
        if not inputs:
            raise Skipped(f"no example inputs are known for {type(model).__name__}; pass inputs=")
        copies = [x.clone() for x in inputs]
        out = output_tensor(self._call(model, copies, lengths))
        for name, copied, x in zip(example.names, copies, inputs, strict=True):
            if not torch.equal(copied.detach().nan_to_num(), x.detach().nan_to_num()):
                self.mutated_input = name
        return out

    def _call(self, model: nn.Module, inputs: Sequence[Tensor], lengths: Sequence[Tensor | None]) -> Any:
        example = self.example
        if example.call is not None:
            return example.call(model, *inputs, *(length for length in lengths if length is not None))
        keywords: dict[str, Any] = {}
        for name, x, length in zip(example.names, inputs, lengths, strict=True):
            if length is not None and (argument := self.lengths_argument(name)) is not None:
                keywords[argument] = _as_argument(argument, x, length)
        if example.by_name:
            return model(**dict(zip(example.names, inputs, strict=True)), **keywords)
        return model(*inputs, **keywords)

    def lengths_argument(self, name: str) -> str | None:
        """Return the argument of `forward` that takes the lengths or mask of an input."""
        parameters, example = inspect.signature(self.model.forward).parameters, self.example
        is_only_one = sum(specific is not None for specific in example.lengths) == 1
        singular = name.removesuffix("s")  # frames: frame_lengths
        specific = [f"{name}_lengths", f"{singular}_lengths", f"{name}_mask", f"{name}_key_padding_mask"]
        shared = ["lengths", "attention_mask", "key_padding_mask"] if is_only_one else []
        return next((argument for argument in [*specific, *shared] if argument in parameters), None)

    @cached_property
    def output(self) -> Tensor:
        """The output for the example inputs, without a graph."""
        with torch.no_grad():
            return self.run()

    # -- positions -----------------------------------------------------------------------------------------------------

    @cached_property
    def aligned_input(self) -> int | None:
        """The index of the input as long as the output; None if there is one output per row."""
        if self.example.causal is not None or self.output.dim() < 3:
            return self.example.causal
        candidates = [
            i for i, x in enumerate(self.example.inputs) if x.dim() > 1 and x.shape[1] == self.output.shape[1]
        ]
        return candidates[-1] if candidates else None

    @cached_property
    def valid(self) -> Tensor:
        """Mask B T of outputs that are not padding (B if there is no T)."""
        out, index = self.output, self.aligned_input
        if index is None:
            return torch.ones(out.shape[0], dtype=torch.bool)
        return self.valid_mask(index)

    def valid_mask(self, index: int) -> Tensor:
        """Return the mask B N of positions of an input that are not padding."""
        x, lengths = self.example.inputs[index], self.example.lengths[index]
        if lengths is None:
            return torch.ones(x.shape[:2], dtype=torch.bool)
        return torch.arange(x.shape[1]) < lengths[:, None]

    @property
    def padded_inputs(self) -> list[int]:
        """The inputs that have padding."""
        return [
            i for i, own in enumerate(self.example.lengths) if own is not None and not bool(self.valid_mask(i).all())
        ]

    def difference(self, a: Tensor, b: Tensor) -> float:
        """Return the relative difference of two values that should be equal; 0 within the tolerance."""
        distance = relative_difference(a, b)
        return distance if distance > self.tolerance else 0.0


class _DtypeWatch(TorchFunctionMode):
    """Detect whether a model in float64 computes in a narrower dtype somewhere."""

    narrow = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor) and out.dtype in (torch.float32, torch.float16, torch.bfloat16):
            self.narrow = True
        return out


def relative_difference(a: Tensor, b: Tensor) -> float:
    """Return the largest difference as a share of the largest value; infinite if only one is finite."""
    if a.shape != b.shape:
        return float("inf")
    if not a.numel():
        return 0.0
    a, b = a.detach().double(), b.detach().double()
    if bool((a.isfinite() != b.isfinite()).any()):
        return float("inf")
    largest = max(float(a.nan_to_num(0, 0, 0).abs().max()), 1e-30)
    return float((a - b).nan_to_num(0, 0, 0).abs().max()) / largest


def output_tensor(out: Any) -> Tensor:
    """Return the output tensor: itself, its logits, or the first floating-point one of several."""
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
    raise BadInput(f"the model returns a {type(out).__name__}; pass call= that returns one tensor")


def _as_argument(argument: str, x: Tensor, lengths: Tensor) -> Tensor:
    """Return lengths, or the mask that this argument expects."""
    if argument.endswith("lengths"):
        return lengths
    valid = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
    if argument.endswith("key_padding_mask"):
        return ~valid
    return valid.long() if argument == "attention_mask" else valid


# -- arguments of check() ----------------------------------------------------------------------------------------------


def parse_inputs(
    model: nn.Module,
    inputs: Tensor | Sequence[Tensor] | Mapping[str, Tensor],
    lengths: Any,
    causal: bool | int | str | None,
    call: Callable[..., Any] | None,
) -> TargetInputs:
    """Check the arguments of `check` and return them as `TargetInputs`; raise `BadInput` if they do not fit."""
    by_name = isinstance(inputs, Mapping)
    tensors = (
        (inputs,) if isinstance(inputs, Tensor) else tuple(inputs.values() if isinstance(inputs, Mapping) else inputs)
    )
    for x in tensors:
        if not isinstance(x, Tensor) or not x.dim():
            raise BadInput(f"an input is a {type(x).__name__}; expected tensors whose first dimension is the batch")
    if len({x.shape[0] for x in tensors}) != 1:
        raise BadInput(
            f"the inputs have {[x.shape[0] for x in tensors]} rows; all inputs must have the same batch size"
        )
    names = tuple(inputs) if isinstance(inputs, Mapping) else _positional(model, len(tensors))
    sizes = _input_lengths(lengths, names, tensors)
    for name, x, length in zip(names, tensors, sizes, strict=True):
        if length is None:
            continue
        if x.dim() < 2 or length.shape != (x.shape[0],):
            raise BadInput(
                f"the lengths of '{name}' have shape {tuple(length.shape)}; expected {x.shape[0]} numbers, one per row"
            )
        if int(length.min()) < 1 or int(length.max()) > x.shape[1]:
            raise BadInput(f"the lengths of '{name}' are {length.tolist()}; each must be from 1 to {x.shape[1]}")
    causal_index = _causal_index(causal, names)
    return TargetInputs(tuple(x.detach().cpu().clone() for x in tensors), sizes, names, causal_index, call, by_name)


def _positional(model: nn.Module, count: int) -> tuple[str, ...]:
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    names = [name for name, parameter in inspect.signature(model.forward).parameters.items() if parameter.kind in kinds]
    return tuple([*names, *(f"input {i}" for i in range(len(names), count))][:count])


def _input_lengths(lengths: Any, names: Sequence[str], inputs: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
    """Return the lengths of each input; one tensor (or list of numbers) belongs to the first."""
    if lengths is None:
        return tuple(None for _ in inputs)
    if isinstance(lengths, Mapping):
        for name in lengths:
            if name not in names:
                raise BadInput(f"lengths are given for '{name}', but the inputs are {', '.join(names)}")
        found = [lengths.get(name) for name in names]
    elif isinstance(lengths, Tensor) or all(isinstance(n, int) for n in lengths):
        found = [lengths, *(None for _ in names[1:])]
    else:
        found = list(lengths)
    if len(found) != len(inputs):
        raise BadInput(
            f"{len(found)} lengths for {len(inputs)} inputs; pass one tensor, or one (or None) for each input"
        )
    return tuple(None if length is None else torch.as_tensor(length).cpu() for length in found)


def _causal_index(causal: bool | int | str | None, names: Sequence[str]) -> int | None:
    """Return the index of the input that `causal` names; True is the last."""
    if causal is None or isinstance(causal, bool):
        return len(names) - 1 if causal else None
    if isinstance(causal, int):
        if not 0 <= causal < len(names):
            raise BadInput(f"causal={causal}, but the inputs are numbered from 0 to {len(names) - 1}")
        return causal
    if causal not in names:
        raise BadInput(f"causal='{causal}', but the inputs are {', '.join(names)}")
    return list(names).index(causal)
