"""Checks of influence: inputs that must not affect an output have zero gradient, and changing them changes nothing.

    rows      d output[b] / d input[c]            = 0 for b != c
    padding   d output[real] / d input[padding]   = 0
    causal    d output[t] / d input[s]            = 0 for s > t

Gradients show an influence of any size, even 1e-9. Values also show what has no gradient: an argmax, a length or a
grouping that depends on what it should not. So both are checked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from regard.core.shapes import Tensor
from regard.doctor.gradient_trace import (
    GradientTrace,
    find_dimension,
    first_bad_module,
    random_projection,
    trace_gradients,
)
from regard.doctor.report import Failed, Skipped
from regard.doctor.target import CheckTarget, relative_difference

GRADIENT_ROUNDING = 1e-12  # share of the largest gradient below which a gradient counts as rounding
MAX_POSITIONS = 12  # positions of a sequence whose gradients are checked


def rows(target: CheckTarget) -> str:
    """Check that no row depends on another."""
    count = target.output.shape[0]
    if count < 2:
        raise Skipped("the inputs have only one row; pass several")
    trace = trace_gradients(target)
    for b in range(count):
        is_row = torch.arange(count) == b
        selected = target.valid & is_row.view(-1, *[1] * (target.valid.dim() - 1))
        for name, influence in zip(
            target.example.names, trace.influence(random_projection(trace.output, selected)), strict=True
        ):
            if _has_leak(influence, influence[~is_row]):
                other_row = int((influence.flatten(1).amax(1) * ~is_row).argmax())
                amount = f"gradient {_ratio(influence, influence[~is_row])} of the largest"
                location = _locate_leak(
                    target,
                    lambda x, is_row=is_row: is_row,  # type: ignore[misc]
                    lambda found, is_row=is_row: [f[~is_row] for f in found],  # type: ignore[misc]
                )
                raise Failed(f"row {b} depends on row {other_row} of '{name}' ({amount})", location)
    return f"no gradient between {count} rows"


def padding(target: CheckTarget) -> str:
    """Check that padding has no influence."""
    if not target.padded_inputs:
        raise Skipped("no input has padding; pass lengths=")
    changed_inputs = [target.example.names[i] for i in target.padded_inputs if _padding_changes_nothing(target, i)]
    summary = (
        "other padding changes nothing"
        if changed_inputs
        else "forward takes no lengths or mask, so only gradients count"
    )
    try:
        trace = trace_gradients(target, needs=target.padded_inputs)
    except Skipped as skipped:
        if not changed_inputs:
            raise
        return f"{summary} (by values only: {skipped})"
    influence = trace.influence(random_projection(trace.output, target.valid))
    for i in target.padded_inputs:
        hidden = influence[i][~target.valid_mask(i)]
        if _has_leak(influence[i], hidden):
            b, n = (int(k) for k in (~target.valid_mask(i) & (influence[i] == hidden.max())).nonzero()[0])
            raise Failed(
                f"outputs depend on the padding of '{target.example.names[i]}' at row {b}, position {n} (gradient "
                f"{_ratio(influence[i], hidden)} of the largest)",
                _locate_padding_leak(target),
            )
    zero = not any(bool(influence[i][~target.valid_mask(i)].any()) for i in target.padded_inputs)
    return f"{summary}, and its gradient is {'exactly 0' if zero else 'rounding'}"


def _padding_changes_nothing(target: CheckTarget, i: int) -> bool:
    """Change the padding of input `i` and compare; return False where the model may recognise padding by its token."""
    example, valid = target.example, target.valid_mask(i)
    name, x = example.names[i], example.inputs[i]
    if (
        example.call is None
        and target.lengths_argument(name) is None
        and example.causal != i
        and not x.is_floating_point()
    ):
        return False
    changed = x.clone()
    changed[~valid] = (x.flip(0, 1) + 1 if x.is_floating_point() else x.roll(1, 0).flip(1))[~valid]
    with torch.no_grad():
        out = target.run([changed if j == i else y for j, y in enumerate(example.inputs)])
    if target.difference(target.output[target.valid], out[target.valid]):
        amount = f"{relative_difference(target.output[target.valid], out[target.valid]):.2g} of the largest value"
        raise Failed(f"other padding in '{name}' changes the outputs by {amount}", _locate_padding_leak(target))
    return True


def _locate_padding_leak(target: CheckTarget) -> str:
    """Return the first module whose valid positions depend on padding."""
    indices = [
        *target.padded_inputs,
        *(
            [target.aligned_input]
            if target.aligned_input is not None and target.aligned_input not in target.padded_inputs
            else []
        ),
    ]
    sizes = [(target.example.inputs[i].shape[1], target.valid_mask(i)) for i in indices]
    return _locate_leak(
        target,
        lambda x: _valid_positions(x, sizes),
        lambda influence: [influence[i][~target.valid_mask(i)] for i in target.padded_inputs],
    )


def _valid_positions(x: Tensor, sizes: Sequence[tuple[int, Tensor]]) -> tuple[int, Tensor] | Tensor | None:
    """Return the sequence dimension of an activation and its valid positions, or a mask of its rows."""
    if x.dim() < 3:
        return torch.ones(x.shape[0], dtype=torch.bool)
    return next(((d, valid) for size, valid in sizes if (d := find_dimension(x, size)) is not None), None)


def empty(target: CheckTarget) -> str:
    """Check that a fully padded row affects neither the other rows nor their gradients."""
    example, last = target.example, target.output.shape[0] - 1
    indices = [
        i
        for i, length in enumerate(example.lengths)
        if length is not None and i != example.causal and target.lengths_argument(example.names[i])
    ]
    if not indices or last < 1:
        raise Skipped("forward takes no lengths except those of the generated input")
    lengths = [None if length is None else length.clone() for length in example.lengths]
    for i in indices:
        lengths[i][last] = 0  # type: ignore[index]
    try:
        out = target.run(lengths=lengths)
    except Exception as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
        raise Skipped(f"the model refuses an empty row ({reason})") from None
    other_rows = target.valid.clone()
    other_rows[last] = False
    if target.difference(target.output[other_rows], out[other_rows]):
        amount = f"{relative_difference(target.output[other_rows], out[other_rows]):.2g} of the largest value"
        raise Failed(f"an empty row changes the others by {amount}")
    parameters = [weight for weight in target.model.parameters() if weight.requires_grad]
    grads = torch.autograd.grad(random_projection(out, other_rows), parameters, allow_unused=True)
    if any(grad is not None and not bool(grad.isfinite().all()) for grad in grads):
        raise Failed("with an empty row in the batch, the gradient of the other rows is not finite")
    suffix = (
        "and its own outputs are finite"
        if bool(out[last].isfinite().all())
        else "though its own outputs are not finite"
    )
    return f"an empty row does not change the others, {suffix}"


def causal(target: CheckTarget) -> str:
    """Check that no output depends on a later input, and that prefixes give the same outputs."""
    index = target.example.causal
    if index is None:
        raise Skipped("not declared causal; pass causal=True")
    name, length = target.example.names[index], target.example.inputs[index].shape[1]
    if target.output.dim() < 2 or target.output.shape[1] != length:
        raise Failed(f"'{name}' has {length} positions, but the output is {' × '.join(map(str, target.output.shape))}")
    detail = ", and prefixes give the same outputs"
    try:
        trace = trace_gradients(target, needs=[index])
    except Skipped as skipped:
        detail = f" (by values only: {skipped})"
    else:
        _check_future_gradients(target, trace, index)
    for n in sorted({1, length // 2, length - 1} - {0, length}):
        _check_prefix(target, index, n)
    return f"no output depends on a later position of '{name}'{detail}"


def _check_future_gradients(target: CheckTarget, trace: GradientTrace, index: int) -> None:
    """Raise if the gradient of an output with respect to a later position is not zero."""
    length = target.output.shape[1]
    sampled = (
        range(length)
        if length <= MAX_POSITIONS
        else [round(k * (length - 2) / (MAX_POSITIONS - 1)) for k in range(MAX_POSITIONS)]
    )
    for t in sampled:
        is_current = torch.arange(length) == t
        if not bool((target.valid & is_current).any()):
            continue
        influence = trace.influence(random_projection(trace.output, target.valid & is_current))[index]
        later = influence[:, t + 1 :]
        if _has_leak(influence, later):
            position = t + 1 + int((later.amax(0) > GRADIENT_ROUNDING * influence.max()).nonzero()[0])
            amount = f"gradient {_ratio(influence, later)} of the largest"
            location = _locate_leak(
                target,
                lambda x, is_current=is_current: (
                    None if (d := find_dimension(x, length)) is None else (d, target.valid & is_current)
                ),  # type: ignore[misc]
                lambda influence, t=t: [influence[index][:, t + 1 :]],  # type: ignore[misc]
            )
            raise Failed(
                f"output {t} depends on position {position} of '{target.example.names[index]}' ({amount})", location
            )


def _check_prefix(target: CheckTarget, index: int, n: int) -> None:
    """Raise if the first n outputs change when the input is longer than n."""
    example, valid = target.example, target.valid[:, :n]
    lengths = [
        length.clamp(max=n) if length is not None and i == index else length for i, length in enumerate(example.lengths)
    ]
    with torch.no_grad():
        prefix = target.run([x[:, :n] if i == index else x for i, x in enumerate(example.inputs)], lengths)
    full = target.output[:, :n]
    if target.difference(full[valid], prefix[valid]):
        amount = f"{relative_difference(full[valid], prefix[valid]):.2g} of the largest value"
        raise Failed(
            f"the first {n} outputs change by {amount} when '{example.names[index]}' is longer than {n}, with no "
            f"gradient from there: an argmax or a size depends on later positions"
        )


# -- locating leaks ----------------------------------------------------------------------------------------------------


def _locate_leak(
    target: CheckTarget,
    select: Callable[[Tensor], tuple[int, Tensor] | Tensor | None],
    hidden: Callable[[list[Tensor]], list[Tensor]],
) -> str:
    """Return the first module with a selected output that depends on a hidden input.

    `select` returns which positions of an activation to test: a mask over rows, or a dimension and a mask over rows
    and that dimension, or None if unknown. `hidden` returns the influences that must be zero.
    """
    try:
        trace = trace_gradients(target, parts=True)
    except Skipped:
        return ""

    def has_bad_influence(x: Tensor) -> bool:
        if not x.dim() or x.shape[0] != target.output.shape[0] or not x.requires_grad or (picked := select(x)) is None:
            return False
        projection = (
            random_projection(x, picked)
            if isinstance(picked, Tensor)
            else random_projection(x.movedim(picked[0], 1), picked[1])
        )
        influence = trace.influence(projection)
        return any(_has_leak(torch.cat([f.flatten() for f in influence]), part) for part in hidden(influence))

    return first_bad_module(trace.parts, has_bad_influence, target.model)


def _has_leak(influence: Tensor, hidden: Tensor) -> bool:
    """Return whether a hidden influence exceeds rounding."""
    return bool(hidden.numel()) and not float(hidden.max()) <= GRADIENT_ROUNDING * float(influence.max())


def _ratio(influence: Tensor, hidden: Tensor) -> str:
    return f"{float(hidden.max()) / max(float(influence.max()), 1e-300):.2g}"
