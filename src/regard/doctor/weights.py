"""Checks of the weights: are they numbers, are tied ones tied, does each one learn, do they bear a narrower type?"""

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

DTYPE_TOLERANCE = {"bfloat16": 0.1, "float16": 0.02}  # how far outputs in a type may be off, as a share of their spread
SLOW = 2e10  # multiply-adds in float16 that a CPU is not asked for


def finite(p: CheckTarget) -> str:
    """Every weight is a number."""
    bad = list[str]()
    for name, weight in p.original.named_parameters():
        if count := int((~weight.detach().isfinite()).sum()):
            bad.append(f"{name} ({count:,} of {weight.numel():,})")
    for name, buffer in p.original.named_buffers():
        if buffer.is_floating_point() and (count := int(buffer.isnan().sum())):  # -inf is what masks are made of
            bad.append(f"{name} ({count:,} of {buffer.numel():,}, a buffer)")
    if bad:
        p.has_nonfinite = True
        raise Failed(f"not finite: {join_names(bad)}", bad[0].partition(" ")[0])
    return f"{sum(weight.numel() for weight in p.original.parameters()):,} parameters, all finite"


def tied(p: CheckTarget) -> str:
    """Weights that should be one tensor are one."""
    own = dict(p.original.named_parameters(remove_duplicate=False))
    groups = p.ties or _built(p.original) or _shared(p.original)
    for group in groups:
        if missing := [name for name in group if name not in own]:
            raise BadInput(f"tied: the model has no parameter '{missing[0]}'; {did_you_mean(missing[0], own)}")
        if apart := [name for name in group[1:] if own[name] is not own[group[0]]]:
            same = own[apart[0]].shape == own[group[0]].shape and torch.equal(own[apart[0]], own[group[0]])
            how = "equal still, and will part with the first update" if same else "with other numbers"
            raise Failed(f"{apart[0]} should be {group[0]} itself and is a tensor of its own, {how}", apart[0])
    if groups:
        return "; ".join(" = ".join(group) for group in groups)
    if (copied := _copied(p.original)) is not None:
        raise Failed(f"{copied[1]} is a copy of {copied[0]}: equal, but not one tensor (tied once?)", copied[1])
    return "no weights are shared, and no head is a copy of an embedding"


def _built(model: nn.Module) -> list[tuple[str, ...]]:
    """The groups of names that are one tensor when a model of ours is built from its Config."""
    if model_family(model) is None or not hasattr(model, "config"):
        return []
    with torch.device("meta"), skip_init():
        return _shared(type(model)(model.config))


def _shared(model: nn.Module) -> list[tuple[str, ...]]:
    """The groups of names that are one tensor in a model."""
    groups: dict[int, list[str]] = {}
    for name, weight in model.named_parameters(remove_duplicate=False):
        groups.setdefault(id(weight), []).append(name)
    return [tuple(group) for group in groups.values() if len(group) > 1]


def _copied(model: nn.Module) -> tuple[str, str] | None:
    """An embedding and a linear map that hold the same numbers twice."""
    tables = [(f"{name}.weight", m.weight) for name, m in model.named_modules() if isinstance(m, nn.Embedding)]
    heads = [(f"{name}.weight", m.weight) for name, m in model.named_modules() if isinstance(m, nn.Linear)]
    for table, a in tables:
        for head, b in heads:
            if a is not b and a.shape == b.shape and a.numel() > 1 and torch.equal(a, b):
                return table, head
    return None


def learns(p: CheckTarget) -> str:
    """Every parameter gets a gradient."""
    model = copy.deepcopy(p.model)
    named = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    frozen = sum(not weight.requires_grad for weight in model.parameters())
    if not named:
        raise Skipped("no parameter wants a gradient")
    grads = _gradients(p, model, named)
    if wrong := [name for name, grad in grads.items() if grad is not None and not bool(grad.isfinite().all())]:
        raise Failed(f"the gradient is not finite in {join_names(wrong)}", wrong[0])
    choosers = tuple(f"{path}." for path, part in model.named_modules() if isinstance(part, ForcedChoices))
    chosen = [name for name in grads if name.startswith(choosers)]  # drawn choices: a task teaches them (REINFORCE)
    dead = [name for name in _without_gradient(grads) if name not in chosen]
    behind = []
    closed = [name for name, weight in named.items() if name not in dead and not bool(weight.any())]
    if dead and closed:
        with torch.no_grad():  # a branch may begin at nothing, its last scale at 0: what learns first is that scale
            for name in closed:
                named[name].normal_(std=0.1)
        still = _without_gradient(_gradients(p, model, named))
        behind, dead = [name for name in dead if name not in still], [name for name in dead if name in still]
    if dead:
        raise Failed(f"no gradient reaches {join_names(dead)}")
    notes = [f"{len(behind)} of them once what is still 0 has moved"] * bool(behind)
    notes += [f"{frozen} more are frozen"] * bool(frozen) + [f"{join_names(chosen)}: choices, for the task"] * bool(
        chosen
    )
    note = f" ({'; '.join(notes)})" if notes else ""
    return f"a gradient reaches all {len(named) - len(chosen)} parameter tensors{note}"


def _gradients(p: CheckTarget, model: nn.Module, named: dict[str, nn.Parameter]) -> dict[str, Tensor | None]:
    model.zero_grad()
    with torch.enable_grad():
        random_projection(p.run(model=model), p.valid).backward()
    return {name: weight.grad for name, weight in named.items()}


def _without_gradient(grads: dict[str, Tensor | None]) -> list[str]:
    return [name for name, grad in grads.items() if grad is None or not bool(grad.any())]


def low_precision(dtype: str) -> Callable[[CheckTarget], str]:
    """The check of a narrower type: with all weights in it, and with its products only (autocast)."""

    def check(p: CheckTarget) -> str:
        if dtype == "float16" and sum(weight.numel() for weight in p.model.parameters()) * p.valid.numel() > SLOW:
            raise Skipped("a CPU would need minutes for this model in float16")
        if not hardware.supports_dtype(dtype):
            why = hardware.cached_probe(f"works cpu {dtype}").why or "wrong results"
            raise Skipped(f"{dtype} does not work on this CPU: {why} (regard doctor says more)")
        off = {how: apart for how in ("weights", "autocast") if (apart := _off(p, dtype, how)) is not None}
        if not off:
            raise Skipped(f"torch lacks what this model needs in {dtype} on a CPU")
        said = " and ".join(f"{apart:.1%} with {how} in {dtype}" for how, apart in off.items())
        if max(off.values()) > DTYPE_TOLERANCE[dtype]:
            raise Failed(f"outputs are off by {said} (of their spread; at most {DTYPE_TOLERANCE[dtype]:.0%} is usual)")
        return f"outputs are off by {said} (of their spread)"

    return check


def _off(p: CheckTarget, dtype: str, how: str) -> float | None:
    """How far the outputs in a type are off, as a share of their spread; None where torch lacks a kernel for it."""
    kind = getattr(torch, dtype)
    wide = copy.deepcopy(p.model).float()
    model = copy.deepcopy(wide).to(kind) if how == "weights" else wide
    inputs = [x.float() if x.is_floating_point() else x for x in p.reads.inputs]
    own = [x.to(kind) if x.is_floating_point() and how == "weights" else x for x in inputs]
    try:
        with torch.no_grad():
            wanted = p.run(inputs, model=wide)[p.valid].double()
            with torch.autocast("cpu", dtype=kind, enabled=how == "autocast"), record_modules(model) as parts:
                got = p.run(own, model=model)[p.valid].double()
    except (RuntimeError, NotImplementedError) as error:
        if "not implemented" in str(error):
            return None
        raise
    if not bool(got.isfinite().all()):
        where = first_bad_module(parts, lambda x: not bool(x.isfinite().all()), model)
        raise Failed(f"outputs are not finite with {how} in {dtype}", where)
    return float((got - wanted).square().mean().sqrt()) / max(float(wanted.std()), 1e-30)


def join_names(names: Sequence[str], most: int = 4) -> str:
    """The first few of many names."""
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest
