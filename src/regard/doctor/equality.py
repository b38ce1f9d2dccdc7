"""Checks of equality: two runs, batch and single row, steps and one forward, before and after saving."""

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


def runs(target: CheckTarget) -> str:
    """Check that the model runs, gives finite outputs and does not modify its inputs."""
    out = target.output
    if target.mutated_input:
        raise Failed(f"the model writes into its input '{target.mutated_input}'")
    if nonfinite := int((~out[target.valid].isfinite()).sum()):
        with torch.no_grad(), record_modules(target.model) as parts:
            target.run()
        location = first_bad_module(parts, lambda x: bool(x.isnan().any()), target.model)
        raise Failed(f"{nonfinite:,} of {out[target.valid].numel():,} outputs are not finite", location)
    example, descriptions = target.example, []
    for name, x, lengths in zip(example.names, example.inputs, example.lengths, strict=True):
        valid = "" if lengths is None else f" (lengths {', '.join(map(str, lengths.tolist()))})"
        descriptions.append(f"{name} {' × '.join(map(str, x.shape))}{valid}")
    precision_note = "" if target.tolerance < 1e-6 else "; it computes in float32 internally, so the tolerance is 1e-4"
    return f"{', '.join(descriptions)} -> {' × '.join(map(str, out.shape))}{precision_note}"


def repeatable(target: CheckTarget) -> str:
    """Check that two runs in eval mode are equal."""
    outs, passes = list[Tensor](), list[list[ModuleCall]]()
    for seed in (1, 2):
        torch.manual_seed(seed)
        with torch.no_grad(), record_modules(target.model) as parts:
            outs.append(target.run())
        passes.append(parts)
    if not torch.equal(outs[0].nan_to_num(), outs[1].nan_to_num()):
        target.is_nondeterministic = True
        raise Failed(
            "two runs in eval mode differ: something is random, e.g. functional dropout", _first_difference(*passes)
        )
    if training_modules := [
        f"{name or 'the model'} ({type(m).__name__})" for name, m in target.model.named_modules() if m.training
    ]:
        raise Failed(f"eval() leaves in training mode: {join_names(training_modules)}")
    return "two runs in eval mode are bitwise equal"


def _first_difference(first: Sequence[ModuleCall], second: Sequence[ModuleCall]) -> str:
    """Return the first module with equal inputs but different outputs."""
    for x_call, y_call in zip(first, second, strict=False):
        same = all(relative_difference(x, y) == 0 for x, y in zip(x_call.inputs, y_call.inputs, strict=False))
        if same and any(relative_difference(x, y) > 0 for x, y in zip(x_call.outputs, y_call.outputs, strict=False)):
            return f"{x_call.name} ({x_call.kind})"
    return ""


def batch(target: CheckTarget) -> str:
    """Check that each row gives the same in a batch as alone without padding."""
    batch_size, largest = target.output.shape[0], 0.0
    if batch_size < 2:
        raise Skipped("the inputs have only one row; pass several")
    for b in range(batch_size):
        with torch.no_grad():
            single = target.run(*target.example.row(b))[0]
        batched = target.output[b] if target.aligned_input is None else target.output[b, : single.shape[0]]
        if batched.shape != single.shape:
            raise Failed(f"row {b} alone gives {tuple(single.shape)}, in the batch {tuple(batched.shape)}")
        if target.difference(batched, single):
            amount = f"{relative_difference(batched, single):.2g} of the largest value"
            raise Failed(
                f"row {b} alone and in a batch of {batch_size} differs by {amount}", _locate_batch_difference(target, b)
            )
        largest = max(largest, relative_difference(batched, single))
    return f"{batch_size} rows give the same alone and unpadded (to {_format_difference(largest)})"


def _locate_batch_difference(target: CheckTarget, b: int) -> str:
    """Return the first module whose output for row `b` differs between the batch and the single row."""
    passes = []
    for inputs, lengths in ((target.example.inputs, target.example.lengths), target.example.row(b)):
        with torch.no_grad(), record_modules(target.model) as parts:
            target.run(inputs, lengths)
        passes.append(parts)
    pairs = zip(target.example.inputs, target.example.lengths, strict=True)
    sizes = [(x.shape[1], int(length[b])) for x, length in pairs if length is not None]

    def differ(x: Tensor, y: Tensor) -> bool:
        if not x.dim() or x.shape[0] != target.output.shape[0] or y.shape[:1] != (1,):
            return False
        x = x[b : b + 1]
        for padded_size, length in sizes:
            if (
                x.shape != y.shape
                and (d := find_dimension(x, padded_size)) is not None
                and y.dim() > d
                and y.shape[d] == length
            ):
                x = x.narrow(d, 0, length)
        return x.shape == y.shape and bool(target.difference(x, y))

    differing: set[int] = set()
    for batch_call, single_call in zip(*passes, strict=False):
        if batch_call.name != single_call.name:
            break
        for batch_values, single_values in (
            (batch_call.inputs, single_call.inputs),
            (batch_call.outputs, single_call.outputs),
        ):
            differing |= {id(x) for x, y in zip(batch_values, single_values, strict=False) if differ(x, y)}
    return first_bad_module(passes[0], lambda x: id(x) in differing, target.model)


# -- decoding ----------------------------------------------------------------------------------------------------------


def steps(target: CheckTarget) -> str:
    """Check that N decoding steps equal one forward."""
    if target.example.steps is not None:
        return _custom_steps(target, target.example.steps)
    index, model, largest = _decoded_input(target, ("start", "step")), cast(Any, target.model), 0.0
    tokens, example = target.example.inputs[index], target.example
    lengths = example.lengths[index]
    lengths = torch.full((len(tokens),), tokens.shape[1]) if lengths is None else lengths
    with torch.no_grad():
        if len(example.inputs) == 1:  # the first half of each row is its prompt
            prompt_lengths = (lengths // 2).clamp(min=1)
            _, state = model.start(tokens, prompt_lengths, capacity=tokens.shape[1])
            first = prompt_lengths - 1
        else:
            _, state = model.start(
                *(x for i, x in enumerate(example.inputs) if i != index),
                *_other_lengths(target, index),
                capacity=tokens.shape[1],
            )
            first = torch.zeros_like(lengths)
        num_steps = int((lengths - first).max())
        for step in range(num_steps):
            current = (first + step).clamp(max=tokens.shape[1] - 1)
            logits, state = model.step(tokens.gather(1, current[:, None]), state)
            active = first + step < lengths
            expected, actual = target.output[torch.arange(len(current)), current][active], logits[active, 0]
            if target.difference(expected, actual):
                amount = f"{relative_difference(expected, actual):.2g} of the largest value"
                raise Failed(f"step {step} and one forward differ by {amount}: the cached state is wrong")
            largest = max(largest, relative_difference(expected, actual))
    return f"{num_steps} steps equal one forward (to {_format_difference(largest)})"


def _custom_steps(target: CheckTarget, run_steps: Callable[..., Tensor]) -> str:
    """Check a model whose steps take something other than tokens."""
    with torch.no_grad():
        actual = run_steps(
            target.model, *target.example.inputs, *(length for length in target.example.lengths if length is not None)
        )
    expected, actual, num_steps = target.output[target.valid], actual[target.valid], target.output.shape[1]
    if target.difference(expected, actual):
        amount = f"{relative_difference(expected, actual):.2g} of the largest value"
        raise Failed(f"{num_steps} steps and one forward differ by {amount}: the cached state is wrong")
    return f"{num_steps} steps equal one forward (to {_format_difference(relative_difference(expected, actual))})"


def decoding(target: CheckTarget) -> str:
    """Check that search finds the same for a batch as for single inputs."""
    index = _decoded_input(target, ("start", "step", "select"))
    is_decoder_only = len(target.example.inputs) == 1
    inputs = [x for i, x in enumerate(target.example.inputs) if i != index or is_decoder_only]
    lengths = [target.example.lengths[0]] if is_decoder_only else _other_lengths(target, index)
    if len(inputs) != 1 or lengths[0] is None:
        raise Skipped("only for one input with lengths")
    max_length = getattr(getattr(target.model, "config", None), "length", None) or 10**6
    num_tokens = min(8, max_length - (inputs[0].shape[1] if is_decoder_only else 0))
    if num_tokens < 1:
        raise Skipped("the inputs already have the maximum length")
    x, input_lengths = inputs[0], lengths[0]
    batched, num_ties = _search(target.model, x, input_lengths, num_tokens), 0
    for row, batch_outputs in enumerate(batched):
        (single_outputs,) = _search(
            target.model, x[row : row + 1, : int(input_lengths[row])], input_lengths[row : row + 1], num_tokens
        )
        for kind, a, b in zip(("greedy", "beam", "beam"), batch_outputs, single_outputs, strict=False):
            if a.tokens == b.tokens:
                continue
            if abs(a.score - b.score) > 1e-5:
                raise Failed(f"{kind} search of row {row} gives {a.tokens} in the batch and {b.tokens} alone")
            num_ties += 1  # scores are summed in float32: either may come first
    ties = f" ({num_ties} with equal scores differ)" if num_ties else ""
    return f"greedy and beam search of {len(batched)} rows, {num_tokens} tokens: the same tokens alone{ties}"


def _search(model: nn.Module, x: Tensor, lengths: Tensor, num_tokens: int) -> list[list[Any]]:
    """Return the outputs of greedy search and the two best beams for every row."""
    from regard.decoding.beam_search import beam_search, greedy_search

    decodable, arguments = cast(Any, model), (x.clone(), lengths.clone())
    with torch.no_grad():
        greedy = greedy_search(decodable, *arguments, max_length=num_tokens)
        beams = beam_search(decodable, *arguments, max_length=num_tokens, beam_size=3, num_candidates=2)
    if not torch.equal(arguments[0], x) or not torch.equal(arguments[1], lengths):
        raise Failed("search modifies its inputs")
    return [[best, *candidates] for best, candidates in zip(greedy, beams, strict=True)]


def _decoded_input(target: CheckTarget, methods: Sequence[str]) -> int:
    """Return the index of the input that the model generates token by token."""
    missing = [verb for verb in methods if not callable(getattr(target.model, verb, None))]
    if missing:
        raise Skipped(f"the model has no {' and no '.join(missing)}")
    if target.example.causal is None:
        raise Skipped("unknown which input the model generates; pass causal=")
    return target.example.causal


def _other_lengths(target: CheckTarget, index: int) -> list[Tensor | None]:
    return [length for i, length in enumerate(target.example.lengths) if i != index]


# -- saving ------------------------------------------------------------------------------------------------------------


def saved(target: CheckTarget) -> str:
    """Check that outputs after save and load are bitwise equal."""
    from regard.models import MODELS

    model = copy.deepcopy(target.original).cpu().eval()
    dtype = next((x.dtype for x in model.parameters() if x.is_floating_point()), torch.float32)
    inputs = [x.to(dtype) if x.is_floating_point() else x for x in target.example.inputs]
    with torch.no_grad():
        before = target.run(inputs, model=model)
    if (type(model).__module__, type(model).__qualname__) == MODELS.get(model_family(model) or ""):
        from regard.weights.folder import load_model, save_model

        with tempfile.TemporaryDirectory() as folder:
            save_model(Path(folder) / "model", model)
            after, route = load_model(Path(folder) / "model").model, "saving to a folder"
    else:
        after, route = _reload_state_dict(model), "saving its state_dict"
    with torch.no_grad():
        restored = target.run(inputs, model=after)
    if not torch.equal(before.nan_to_num(), restored.nan_to_num()):
        parameters = dict(after.named_parameters())
        lost = [name for name, x in model.named_parameters() if not torch.equal(x, parameters[name])]
        amount = f"{relative_difference(before, restored):.2g} of the largest value"
        raise Failed(
            f"after {route} and loading, outputs differ by {amount}{f': {join_names(lost)} changed' if lost else ''}",
            lost[0] if lost else "",
        )
    return f"after {route} and loading: bitwise equal"


def _reload_state_dict(model: nn.Module) -> nn.Module:
    """Return a copy, randomised and then loaded from the saved state_dict, so that missing entries show."""
    box = io.BytesIO()
    torch.save(model.state_dict(), box)
    box.seek(0)
    copied = copy.deepcopy(model)
    with torch.no_grad():
        for x in [*copied.parameters(), *(x for x in copied.state_dict().values() if x.is_floating_point())]:
            x.copy_(torch.randn(x.shape))
    copied.load_state_dict(torch.load(box, weights_only=True))
    return copied


def _format_difference(difference: float) -> str:
    return "the bit" if difference == 0 else f"{difference:.0e}"
