"""Checks of influence: what must not bear on an output has no gradient, and changing it changes nothing.

    rows      d output[b] / d input[c]            = 0 for b != c
    padding   d output[real] / d input[padding]   = 0
    causal    d output[t] / d input[s]            = 0 for s > t

A gradient sees what values hide: an influence of 1e-9 is there or is not. Values see what a gradient does not: a
choice, a length, a grouping that depends on what it should not. So both are looked at.
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

GRADIENT_ROUNDING = 1e-12  # of the largest gradient: what is smaller is not influence but rounding
PLACES = 12  # outputs of a sequence whose influences are followed


def rows(p: CheckTarget) -> str:
    """No row depends on another one."""
    count = p.output.shape[0]
    if count < 2:
        raise Skipped("the inputs are one row; give several")
    followed = trace_gradients(p)
    for b in range(count):
        own = torch.arange(count) == b
        chosen = p.valid & own.view(-1, *[1] * (p.valid.dim() - 1))
        for name, felt in zip(
            p.reads.names, followed.influence(random_projection(followed.output, chosen)), strict=True
        ):
            if _has_leak(felt, felt[~own]):
                other = int((felt.flatten(1).amax(1) * ~own).argmax())
                raise Failed(
                    f"row {b} depends on row {other} of '{name}' (gradient {_ratio(felt, felt[~own])} of the largest)",
                    _where(p, lambda x, own=own: own, lambda felt, own=own: [f[~own] for f in felt]),  # type: ignore[misc]
                )
    return f"no gradient between {count} rows"


def padding(p: CheckTarget) -> str:
    """What stands behind the end of a row changes nothing."""
    if not p.padded_inputs:
        raise Skipped("no input has padding; give lengths=")
    tried = [p.reads.names[i] for i in p.padded_inputs if _other_padding(p, i)]
    said = "other padding changes nothing" if tried else "no lengths are among the arguments, so only gradients count"
    try:
        followed = trace_gradients(p, needs=p.padded_inputs)
    except Skipped as why:
        if not tried:
            raise
        return f"{said} (by values only: {why})"
    felt = followed.influence(random_projection(followed.output, p.valid))
    for i in p.padded_inputs:
        hidden = felt[i][~p.valid_mask(i)]
        if _has_leak(felt[i], hidden):
            b, n = (int(k) for k in (~p.valid_mask(i) & (felt[i] == hidden.max())).nonzero()[0])
            raise Failed(
                f"real outputs depend on the padding of '{p.reads.names[i]}' at row {b}, place {n} (gradient "
                f"{_ratio(felt[i], hidden)} of the largest)",
                _where_padding(p),
            )
    zero = not any(bool(felt[i][~p.valid_mask(i)].any()) for i in p.padded_inputs)
    return f"{said}, and its gradient is {'exactly 0' if zero else 'rounding'}"


def _other_padding(p: CheckTarget, i: int) -> bool:
    """Put something else behind the ends of an input's rows; False where the model may know padding by what it is."""
    r, there = p.reads, p.valid_mask(i)
    name, x = r.names[i], r.inputs[i]
    if r.call is None and p.lengths_argument(name) is None and r.causal != i and not x.is_floating_point():
        return False
    other = x.clone()
    other[~there] = (x.flip(0, 1) + 1 if x.is_floating_point() else x.roll(1, 0).flip(1))[~there]
    with torch.no_grad():
        out = p.run([other if j == i else y for j, y in enumerate(r.inputs)])
    if p.difference(p.output[p.valid], out[p.valid]):
        how = f"{relative_difference(p.output[p.valid], out[p.valid]):.2g} of the largest value"
        raise Failed(f"other padding in '{name}' changes real outputs by {how}", _where_padding(p))
    return True


def _where_padding(p: CheckTarget) -> str:
    """The first part whose real places depend on padding."""
    at = [
        *p.padded_inputs,
        *([p.aligned_input] if p.aligned_input is not None and p.aligned_input not in p.padded_inputs else []),
    ]
    sizes = [(p.reads.inputs[i].shape[1], p.valid_mask(i)) for i in at]
    return _where(p, lambda x: _real_of(x, sizes), lambda felt: [felt[i][~p.valid_mask(i)] for i in p.padded_inputs])


def _real_of(x: Tensor, sizes: Sequence[tuple[int, Tensor]]) -> tuple[int, Tensor] | Tensor | None:
    """The real places of something inside the model, and along which dimension they lie."""
    if x.dim() < 3:
        return torch.ones(x.shape[0], dtype=torch.bool)
    return next(((d, there) for size, there in sizes if (d := find_dimension(x, size)) is not None), None)


def empty(p: CheckTarget) -> str:
    """A row of nothing but padding spoils neither the others nor their gradient."""
    r, last = p.reads, p.output.shape[0] - 1
    told = [
        i for i, own in enumerate(r.lengths) if own is not None and i != r.causal and p.lengths_argument(r.names[i])
    ]
    if not told or last < 1:
        raise Skipped("the model is told no lengths but of what it writes")
    lengths = [None if own is None else own.clone() for own in r.lengths]
    for i in told:
        lengths[i][last] = 0  # type: ignore[index]
    try:
        out = p.run(lengths=lengths)
    except Exception as error:
        why = f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
        raise Skipped(f"a row of no tokens is refused ({why})") from None
    others = p.valid.clone()
    others[last] = False
    if p.difference(p.output[others], out[others]):
        how = f"{relative_difference(p.output[others], out[others]):.2g} of the largest value"
        raise Failed(f"a row of no tokens changes the others by {how}")
    wanted = [weight for weight in p.model.parameters() if weight.requires_grad]
    grads = torch.autograd.grad(random_projection(out, others), wanted, allow_unused=True)
    if any(grad is not None and not bool(grad.isfinite().all()) for grad in grads):
        raise Failed("with a row of no tokens in the batch, the gradient of the other rows is not finite")
    own = "and gives numbers itself" if bool(out[last].isfinite().all()) else "though its own outputs are no numbers"
    return f"a row of no tokens changes nothing in the others, {own}"


def causal(p: CheckTarget) -> str:
    """No output depends on a later input, and a prefix gives what the whole gives."""
    at = p.reads.causal
    if at is None:
        raise Skipped("not said to be causal; give causal=True")
    name, length = p.reads.names[at], p.reads.inputs[at].shape[1]
    if p.output.dim() < 2 or p.output.shape[1] != length:
        raise Failed(f"'{name}' has {length} places, but the output is {' × '.join(map(str, p.output.shape))}")
    how = ", and prefixes give what the whole gives"
    try:
        followed = trace_gradients(p, needs=[at])
    except Skipped as why:
        how = f" (by values only: {why})"
    else:
        _no_future(p, followed, at)
    for n in sorted({1, length // 2, length - 1} - {0, length}):
        _prefix(p, at, n)
    return f"no output depends on a later place of '{name}'{how}"


def _no_future(p: CheckTarget, followed: GradientTrace, at: int) -> None:
    """Raise where the gradient of an output with respect to a later place is not zero."""
    length = p.output.shape[1]
    every = range(length) if length <= PLACES else [round(k * (length - 2) / (PLACES - 1)) for k in range(PLACES)]
    for t in every:
        now = torch.arange(length) == t
        if not bool((p.valid & now).any()):
            continue
        felt = followed.influence(random_projection(followed.output, p.valid & now))[at]
        later = felt[:, t + 1 :]
        if _has_leak(felt, later):
            place = t + 1 + int((later.amax(0) > GRADIENT_ROUNDING * felt.max()).nonzero()[0])
            how = f"gradient {_ratio(felt, later)} of the largest"
            where = _where(
                p,
                lambda x, now=now: None if (d := find_dimension(x, length)) is None else (d, p.valid & now),  # type: ignore[misc]
                lambda felt, t=t: [felt[at][:, t + 1 :]],  # type: ignore[misc]
            )
            raise Failed(f"output {t} depends on place {place} of '{p.reads.names[at]}' ({how})", where)


def _prefix(p: CheckTarget, at: int, n: int) -> None:
    """Raise where the first n outputs are others when more than n is read."""
    r, there = p.reads, p.valid[:, :n]
    lengths = [own.clamp(max=n) if own is not None and i == at else own for i, own in enumerate(r.lengths)]
    with torch.no_grad():
        part = p.run([x[:, :n] if i == at else x for i, x in enumerate(r.inputs)], lengths)
    whole = p.output[:, :n]
    if p.difference(whole[there], part[there]):
        how = f"{relative_difference(whole[there], part[there]):.2g} of the largest value"
        raise Failed(
            f"the first {n} outputs change by {how} when '{r.names[at]}' is longer than {n}, though no gradient comes "
            f"from there: a choice or a size depends on what comes later"
        )


# -- leaks -------------------------------------------------------------------------------------------------------------


def _where(
    p: CheckTarget,
    chosen: Callable[[Tensor], tuple[int, Tensor] | Tensor | None],
    hidden: Callable[[list[Tensor]], list[Tensor]],
) -> str:
    """The first part of which something chosen depends on something hidden.

    `chosen` says which places of a tensor inside the model count (a mask over its rows, or a dimension and a mask over
    rows and that), None where that cannot be told; `hidden` picks out of the influences those that must be zero.
    """
    try:
        followed = trace_gradients(p, parts=True)
    except Skipped:
        return ""

    def bad(x: Tensor) -> bool:
        if not x.dim() or x.shape[0] != p.output.shape[0] or not x.requires_grad or (picked := chosen(x)) is None:
            return False
        number = (
            random_projection(x, picked)
            if isinstance(picked, Tensor)
            else random_projection(x.movedim(picked[0], 1), picked[1])
        )
        felt = followed.influence(number)
        return any(_has_leak(torch.cat([f.flatten() for f in felt]), one) for one in hidden(felt))

    return first_bad_module(followed.parts, bad, p.model)


def _has_leak(felt: Tensor, hidden: Tensor) -> bool:
    """Whether what should be hidden is felt, beyond rounding."""
    return bool(hidden.numel()) and not float(hidden.max()) <= GRADIENT_ROUNDING * float(felt.max())


def _ratio(felt: Tensor, hidden: Tensor) -> str:
    return f"{float(hidden.max()) / max(float(felt.max()), 1e-300):.2g}"
