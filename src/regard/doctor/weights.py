"""Checks of the weights: finite, tied, trained by a gradient, usable in bfloat16 and float16."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import torch
from torch import nn

from regard.attention.aligners.hard import ForcedChoices
from regard.core.errors import BadInput, did_you_mean
from regard.core.shapes import Tensor
from regard.core.skip_init import skip_init
from regard.doctor.example_inputs import model_family
from regard.doctor.gradient_trace import first_bad_module, random_projection, record_modules
from regard.doctor.report import Failed, Skipped
from regard.doctor.target import CheckTarget
from regard.runtime import hardware

DTYPE_TOLERANCE = {"bfloat16": 0.1, "float16": 0.02}  # largest error of outputs, as a share of their standard deviation
SLOW = 2e10  # multiply-adds above which float16 on a CPU takes minutes


def finite(target: CheckTarget) -> str:
    """Check that every weight is finite."""
    nonfinite = list[str]()
    for name, weight in target.original.named_parameters():
        if count := int((~weight.detach().isfinite()).sum()):
            nonfinite.append(f"{name} ({count:,} of {weight.numel():,})")
    for name, buffer in target.original.named_buffers():
        if buffer.is_floating_point() and (count := int(buffer.isnan().sum())):  # masks contain -inf
            nonfinite.append(f"{name} ({count:,} of {buffer.numel():,}, a buffer)")
    if nonfinite:
        target.has_nonfinite = True
        raise Failed(f"not finite: {join_names(nonfinite)}", nonfinite[0].partition(" ")[0])
    return f"{sum(weight.numel() for weight in target.original.parameters()):,} parameters, all finite"


def tied(target: CheckTarget) -> str:
    """Check that tied weights are one tensor."""
    parameters = dict(target.original.named_parameters(remove_duplicate=False))
    groups = target.ties or _tied_by_config(target.original) or _shared_parameters(target.original)
    for group in groups:
        if missing := [name for name in group if name not in parameters]:
            raise BadInput(f"tied: the model has no parameter '{missing[0]}'; {did_you_mean(missing[0], parameters)}")
        if separate := [name for name in group[1:] if parameters[name] is not parameters[group[0]]]:
            is_equal = parameters[separate[0]].shape == parameters[group[0]].shape and torch.equal(
                parameters[separate[0]], parameters[group[0]]
            )
            detail = "equal now, different after the first update" if is_equal else "with other values"
            raise Failed(
                f"{separate[0]} should be the same tensor as {group[0]} but is a separate one, {detail}", separate[0]
            )
    if groups:
        return "; ".join(" = ".join(group) for group in groups)
    if (copied := _find_copy(target.original)) is not None:
        raise Failed(f"{copied[1]} is a copy of {copied[0]}: equal, but not one tensor (was it tied?)", copied[1])
    return "no weights are shared, and no head is a copy of an embedding"


def _tied_by_config(model: nn.Module) -> list[tuple[str, ...]]:
    """Return the names that share a tensor when a model of this library is built from its Config."""
    if model_family(model) is None or not hasattr(model, "config"):
        return []
    with torch.device("meta"), skip_init():
        return _shared_parameters(type(model)(model.config))


def _shared_parameters(model: nn.Module) -> list[tuple[str, ...]]:
    """Return the groups of names that share a tensor."""
    groups: dict[int, list[str]] = {}
    for name, weight in model.named_parameters(remove_duplicate=False):
        groups.setdefault(id(weight), []).append(name)
    return [tuple(group) for group in groups.values() if len(group) > 1]


def _find_copy(model: nn.Module) -> tuple[str, str] | None:
    """Return the names of an embedding and a linear layer with equal but separate weights."""
    tables = [(f"{name}.weight", m.weight) for name, m in model.named_modules() if isinstance(m, nn.Embedding)]
    heads = [(f"{name}.weight", m.weight) for name, m in model.named_modules() if isinstance(m, nn.Linear)]
    for table, a in tables:
        for head, b in heads:
            if a is not b and a.shape == b.shape and a.numel() > 1 and torch.equal(a, b):
                return table, head
    return None


def learns(target: CheckTarget) -> str:
    """Check that every parameter gets a gradient."""
    model = copy.deepcopy(target.model)
    named = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    frozen = sum(not weight.requires_grad for weight in model.parameters())
    if not named:
        raise Skipped("no parameter requires a gradient")
    grads = _gradients(target, model, named)
    if nonfinite := [name for name, grad in grads.items() if grad is not None and not bool(grad.isfinite().all())]:
        raise Failed(f"the gradient is not finite in {join_names(nonfinite)}", nonfinite[0])
    choosers = tuple(f"{path}." for path, part in model.named_modules() if isinstance(part, ForcedChoices))
    choosers += tuple(f"{path}." for path in getattr(model, "trained_by_task", ()))
    # sampled choices are trained by the task (REINFORCE), and so are winners (ranking)
    hard_choices = [name for name in grads if f"{name}.".startswith(choosers)]
    without_gradient = [name for name in _without_gradient(grads) if name not in hard_choices]
    learn_later = []
    zeros = [name for name, weight in named.items() if name not in without_gradient and not bool(weight.any())]
    if without_gradient and zeros:
        with torch.no_grad():  # a branch scaled by 0 at the start: the scale learns first, then the branch
            for name in zeros:
                named[name].normal_(std=0.1)
        remaining = _without_gradient(_gradients(target, model, named))
        learn_later, without_gradient = (
            [name for name in without_gradient if name not in remaining],
            [name for name in without_gradient if name in remaining],
        )
    if without_gradient:
        raise Failed(f"no gradient reaches {join_names(without_gradient)}")
    notes = [f"{len(learn_later)} of them once weights that start at 0 have changed"] * bool(learn_later)
    notes += [f"{frozen} more are frozen"] * bool(frozen) + [f"{join_names(hard_choices)}: trained by the task"] * bool(
        hard_choices
    )
    note = f" ({'; '.join(notes)})" if notes else ""
    return f"a gradient reaches all {len(named) - len(hard_choices)} parameter tensors{note}"


def _gradients(target: CheckTarget, model: nn.Module, named: dict[str, nn.Parameter]) -> dict[str, Tensor | None]:
    model.zero_grad()
    with torch.enable_grad():
        random_projection(target.run(model=model), target.valid).backward()
    return {name: weight.grad for name, weight in named.items()}


def _without_gradient(grads: dict[str, Tensor | None]) -> list[str]:
    return [name for name, grad in grads.items() if grad is None or not bool(grad.any())]


def low_precision(dtype: str) -> Callable[[CheckTarget], str]:
    """Return the check of a dtype: with all weights in it, and with autocast."""

    def check(target: CheckTarget) -> str:
        if (
            dtype == "float16"
            and sum(weight.numel() for weight in target.model.parameters()) * target.valid.numel() > SLOW
        ):
            raise Skipped("a CPU would need minutes for this model in float16")
        if not hardware.supports_dtype(dtype):
            reason = hardware.cached_probe(f"works cpu {dtype}").why or "wrong results"
            raise Skipped(f"{dtype} does not work on this CPU: {reason} (see `regard doctor`)")
        errors = {
            mode: error
            for mode in ("weights", "autocast")
            if (error := _low_precision_error(target, dtype, mode)) is not None
        }
        if not errors:
            raise Skipped(f"torch lacks CPU kernels that this model needs in {dtype}")
        summary = " and ".join(f"{error:.1%} with {mode} in {dtype}" for mode, error in errors.items())
        if max(errors.values()) > DTYPE_TOLERANCE[dtype]:
            raise Failed(
                f"outputs are off by {summary} (of their standard deviation; at most {DTYPE_TOLERANCE[dtype]:.0%})"
            )
        return f"outputs are off by {summary} (of their standard deviation)"

    return check


def _low_precision_error(target: CheckTarget, dtype: str, mode: str) -> float | None:
    """Return the error of the outputs as a share of their standard deviation; None if torch lacks a kernel."""
    torch_dtype = getattr(torch, dtype)
    float32_model = copy.deepcopy(target.model).float()
    model = copy.deepcopy(float32_model).to(torch_dtype) if mode == "weights" else float32_model
    inputs = [x.float() if x.is_floating_point() else x for x in target.example.inputs]
    cast_inputs = [x.to(torch_dtype) if x.is_floating_point() and mode == "weights" else x for x in inputs]
    try:
        with torch.no_grad():
            expected = target.run(inputs, model=float32_model)[target.valid].double()
            with torch.autocast("cpu", dtype=torch_dtype, enabled=mode == "autocast"), record_modules(model) as parts:
                actual = target.run(cast_inputs, model=model)[target.valid].double()
    except (RuntimeError, NotImplementedError) as error:
        if "not implemented" in str(error):
            return None
        raise
    if not bool(actual.isfinite().all()):
        location = first_bad_module(parts, lambda x: not bool(x.isfinite().all()), model)
        raise Failed(f"outputs are not finite with {mode} in {dtype}", location)
    return float((actual - expected).square().mean().sqrt()) / max(float(expected.std()), 1e-30)


def join_names(names: Sequence[str], limit: int = 4) -> str:
    """Join the first few names."""
    rest = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + rest
