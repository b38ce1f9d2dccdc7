"""Checks of equality: twice, in a batch and alone, in steps and at once, before and after the disk."""

from __future__ import annotations

import copy
import io
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from regard.core.shapes import Tensor
from regard.doctor.example_inputs import model_family
from regard.doctor.gradient_trace import ModuleCall, find_dimension, first_bad_module, record_modules
from regard.doctor.report import Failed, Skipped
from regard.doctor.target import CheckTarget, relative_difference
from regard.doctor.weights import join_names


def runs(p: CheckTarget) -> str:
    """The model runs on its inputs, gives numbers, and leaves its inputs alone."""
    out = p.output
    if p.mutated_input:
        raise Failed(f"the model writes into its input '{p.mutated_input}'")
    if bad := int((~out[p.valid].isfinite()).sum()):
        with torch.no_grad(), record_modules(p.model) as parts:
            p.run()
        where = first_bad_module(parts, lambda x: bool(x.isnan().any()), p.model)
        raise Failed(f"{bad:,} of {out[p.valid].numel():,} outputs are not finite", where)
    r, said = p.reads, []
    for name, x, own in zip(r.names, r.inputs, r.lengths, strict=True):
        real = "" if own is None else f" ({', '.join(map(str, own.tolist()))} real)"
        said.append(f"{name} {' × '.join(map(str, x.shape))}{real}")
    inside = "" if p.tolerance < 1e-6 else "; it computes in float32 inside, so equal means up to 1e-4"
    return f"{', '.join(said)} -> {' × '.join(map(str, out.shape))}{inside}"


def repeatable(p: CheckTarget) -> str:
    """In eval mode, two runs give the same."""
    outs, passes = list[Tensor](), list[list[ModuleCall]]()
    for seed in (1, 2):
        torch.manual_seed(seed)
        with torch.no_grad(), record_modules(p.model) as parts:
            outs.append(p.run())
        passes.append(parts)
    if not torch.equal(outs[0].nan_to_num(), outs[1].nan_to_num()):
        p.is_nondeterministic = True
        raise Failed("in eval mode two runs differ: something is drawn at random, as by dropout", _differ(*passes))
    if awake := [f"{name or 'the model'} ({type(m).__name__})" for name, m in p.model.named_modules() if m.training]:
        raise Failed(f"eval() leaves in training mode: {join_names(awake)}")
    return "two runs in eval mode are equal to the bit"


def _differ(one: Sequence[ModuleCall], other: Sequence[ModuleCall]) -> str:
    """The first part that makes different things of the same."""
    for a, b in zip(one, other, strict=False):
        same = all(relative_difference(x, y) == 0 for x, y in zip(a.inputs, b.inputs, strict=False))
        if same and any(relative_difference(x, y) > 0 for x, y in zip(a.outputs, b.outputs, strict=False)):
            return f"{a.name} ({a.kind})"
    return ""


def batch(p: CheckTarget) -> str:
    """A row in a batch gives what it gives alone, without padding."""
    rows, largest = p.output.shape[0], 0.0
    if rows < 2:
        raise Skipped("the inputs are one row; give several")
    for b in range(rows):
        with torch.no_grad():
            alone = p.run(*p.reads.row(b))[0]
        whole = p.output[b] if p.aligned_input is None else p.output[b, : alone.shape[0]]
        if whole.shape != alone.shape:
            raise Failed(f"row {b} alone gives {tuple(alone.shape)}, in the batch {tuple(whole.shape)}")
        if p.difference(whole, alone):
            how = f"{relative_difference(whole, alone):.2g} of the largest value"
            raise Failed(f"row {b} alone and in a batch of {rows} differ by {how}", _where_apart(p, b))
        largest = max(largest, relative_difference(whole, alone))
    return f"{rows} rows equal themselves alone and unpadded (to {_digits(largest)})"


def _where_apart(p: CheckTarget, b: int) -> str:
    """The first part that gives a row something else in the batch than alone."""
    passes = []
    for inputs, lengths in ((p.reads.inputs, p.reads.lengths), p.reads.row(b)):
        with torch.no_grad(), record_modules(p.model) as parts:
            p.run(inputs, lengths)
        passes.append(parts)
    both = zip(p.reads.inputs, p.reads.lengths, strict=True)
    sizes = [(x.shape[1], int(own[b])) for x, own in both if own is not None]

    def differ(x: Tensor, y: Tensor) -> bool:
        if not x.dim() or x.shape[0] != p.output.shape[0] or y.shape[:1] != (1,):
            return False
        x = x[b : b + 1]
        for whole, own in sizes:
            if x.shape != y.shape and (d := find_dimension(x, whole)) is not None and y.dim() > d and y.shape[d] == own:
                x = x.narrow(d, 0, own)
        return x.shape == y.shape and bool(p.difference(x, y))

    bad: set[int] = set()
    for mine, alone in zip(*passes, strict=False):
        if mine.name != alone.name:
            break
        for some_of, other in ((mine.inputs, alone.inputs), (mine.outputs, alone.outputs)):
            bad |= {id(x) for x, y in zip(some_of, other, strict=False) if differ(x, y)}
    return first_bad_module(passes[0], lambda x: id(x) in bad, p.model)


# -- writing -----------------------------------------------------------------------------------------------------------


def steps(p: CheckTarget) -> str:
    """N steps equal one forward."""
    if p.reads.steps is not None:
        return _stepped(p, p.reads.steps)
    at, model, largest = _writes(p, ("start", "step")), cast(Any, p.model), 0.0
    tokens, r = p.reads.inputs[at], p.reads
    ends = r.lengths[at]
    ends = torch.full((len(tokens),), tokens.shape[1]) if ends is None else ends
    with torch.no_grad():
        if len(r.inputs) == 1:  # half of each text is read as its prompt
            begun = (ends // 2).clamp(min=1)
            _, state = model.start(tokens, begun, capacity=tokens.shape[1])
            place = begun - 1
        else:
            _, state = model.start(
                *(x for i, x in enumerate(r.inputs) if i != at), *_others(p, at), capacity=tokens.shape[1]
            )
            place = torch.zeros_like(ends)
        count = int((ends - place).max())
        for step in range(count):
            now = (place + step).clamp(max=tokens.shape[1] - 1)
            logits, state = model.step(tokens.gather(1, now[:, None]), state)
            live = place + step < ends
            wanted, got = p.output[torch.arange(len(now)), now][live], logits[live, 0]
            if p.difference(wanted, got):
                how = f"{relative_difference(wanted, got):.2g} of the largest value"
                raise Failed(f"step {step} and one forward differ by {how}: what is kept is not what was read")
            largest = max(largest, relative_difference(wanted, got))
    return f"{count} steps equal one forward (to {_digits(largest)})"


def _stepped(p: CheckTarget, stepping: Callable[..., Tensor]) -> str:
    """The same of a model whose steps read something other than tokens."""
    with torch.no_grad():
        got = stepping(p.model, *p.reads.inputs, *(own for own in p.reads.lengths if own is not None))
    wanted, got, many = p.output[p.valid], got[p.valid], p.output.shape[1]
    if p.difference(wanted, got):
        how = f"{relative_difference(wanted, got):.2g} of the largest value"
        raise Failed(f"{many} steps and one forward differ by {how}: what is kept is not what was read")
    return f"{many} steps equal one forward (to {_digits(relative_difference(wanted, got))})"


def decoding(p: CheckTarget) -> str:
    """Searching a batch finds what searching single inputs finds."""
    at = _writes(p, ("start", "step", "select"))
    alone = len(p.reads.inputs) == 1
    inputs = [x for i, x in enumerate(p.reads.inputs) if i != at or alone]
    lengths = [p.reads.lengths[0]] if alone else _others(p, at)
    if len(inputs) != 1 or lengths[0] is None:
        raise Skipped("only for one input with lengths")
    known = getattr(getattr(p.model, "config", None), "length", None) or 10**6
    most = min(8, known - (inputs[0].shape[1] if alone else 0))
    if most < 1:
        raise Skipped("the inputs leave no room to write")
    x, own = inputs[0], lengths[0]
    whole, close = _searched(p.model, x, own, most), 0
    for b, mine in enumerate(whole):
        (single,) = _searched(p.model, x[b : b + 1, : int(own[b])], own[b : b + 1], most)
        for kind, one, other in zip(("greedy", "beam", "beam"), mine, single, strict=False):
            if one.tokens == other.tokens:
                continue
            if abs(one.score - other.score) > 1e-5:
                raise Failed(f"{kind} search writes {one.tokens} for row {b} in the batch, and alone {other.tokens}")
            close += 1  # scores are added up in float32: either may come first
    ties = f" ({close} with equal scores differ)" if close else ""
    return f"greedy and beam search of {len(whole)} rows, {most} tokens: the same tokens alone{ties}"


def _searched(model: nn.Module, x: Tensor, own: Tensor, most: int) -> list[list[Any]]:
    """What greedy search and the two best beams write for every row."""
    from regard.decoding.beam_search import beam_search, greedy_search

    steps, given = cast(Any, model), (x.clone(), own.clone())
    with torch.no_grad():
        short = greedy_search(steps, *given, max_length=most)
        beams = beam_search(steps, *given, max_length=most, beam_size=3, num_candidates=2)
    if not torch.equal(given[0], x) or not torch.equal(given[1], own):
        raise Failed("searching writes into the inputs themselves")
    return [[one, *many] for one, many in zip(short, beams, strict=True)]


def _writes(p: CheckTarget, verbs: Sequence[str]) -> int:
    """The input that the model writes itself, one token after another."""
    missing = [verb for verb in verbs if not callable(getattr(p.model, verb, None))]
    if missing:
        raise Skipped(f"the model has no {' and no '.join(missing)}")
    if p.reads.causal is None:
        raise Skipped("it is not said what the model writes; give causal=")
    return p.reads.causal


def _others(p: CheckTarget, at: int) -> list[Tensor | None]:
    return [own for i, own in enumerate(p.reads.lengths) if i != at]


# -- the disk ----------------------------------------------------------------------------------------------------------


def saved(p: CheckTarget) -> str:
    """Saved and loaded, it gives the same, to the bit."""
    from regard.models import MODELS

    own = copy.deepcopy(p.original).cpu().eval()
    kind = next((x.dtype for x in own.parameters() if x.is_floating_point()), torch.float32)
    inputs = [x.to(kind) if x.is_floating_point() else x for x in p.reads.inputs]
    with torch.no_grad():
        before = p.run(inputs, model=own)
    if (type(own).__module__, type(own).__qualname__) == MODELS.get(model_family(own) or ""):
        from regard.weights.folder import load_model, save_model

        with tempfile.TemporaryDirectory() as here:
            save_model(Path(here) / "model", own)
            after, how = load_model(Path(here) / "model").model, "a folder"
    else:
        after, how = _through_state(own), "its state_dict"
    with torch.no_grad():
        again = p.run(inputs, model=after)
    if not torch.equal(before.nan_to_num(), again.nan_to_num()):
        new = dict(after.named_parameters())
        lost = [name for name, x in own.named_parameters() if not torch.equal(x, new[name])]
        how = f"through {how} and back, outputs differ by {relative_difference(before, again):.2g} of the largest value"
        raise Failed(f"{how}{f': {join_names(lost)} came back otherwise' if lost else ''}", lost[0] if lost else "")
    return f"through {how} and back: equal to the bit"


def _through_state(model: nn.Module) -> nn.Module:
    """A copy whose every number was lost and came back from the state_dict; what is in none is in the copy still."""
    box = io.BytesIO()
    torch.save(model.state_dict(), box)
    box.seek(0)
    copied = copy.deepcopy(model)
    with torch.no_grad():
        for x in [*copied.parameters(), *(x for x in copied.state_dict().values() if x.is_floating_point())]:
            x.copy_(torch.randn(x.shape))
    copied.load_state_dict(torch.load(box, weights_only=True))
    return copied


def _digits(apart: float) -> str:
    return "the bit" if apart == 0 else f"{apart:.0e}"
