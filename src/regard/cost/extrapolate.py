"""Count a stack of equal blocks by running four of them.

The log entries of the third block (forward) and of the second (backward) are repeated for every block that was left
out; the first and the last block differ, as they touch the embedding and the head. Counting a hundred layers then takes
no longer than counting four, and gives the same entries: a test compares both. Stacks of unequal blocks run in full.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from regard.core.shapes import Tensor
from regard.cost.meter import Meter
from regard.cost.op_log import Allocation, Marker, OpLog

KEPT_BLOCKS = 4
FORWARD_BLOCK, BACKWARD_BLOCK = 2, 1  # repeated for the blocks left out: both neighbours are ordinary blocks


class IrregularStack(Exception):
    """The blocks did not run in order, each once."""


def block_stacks(model: nn.Module) -> dict[str, nn.ModuleList]:
    """Return the lists of repeated blocks, by name."""
    every = model.named_modules()
    return {name: m for name, m in every if name.split(".")[-1] == "blocks" and isinstance(m, nn.ModuleList)}


def drop_repeated_blocks(model: nn.Module) -> dict[str, int]:
    """Shorten every stack of equal blocks to four; return how many are missing in each."""
    missing = {}
    for name, blocks in block_stacks(model).items():
        if len(blocks) > KEPT_BLOCKS and len({_block_signature(block) for block in blocks}) == 1:
            missing[name] = len(blocks) - KEPT_BLOCKS
            setattr(model.get_submodule(name.rpartition(".")[0]), "blocks", nn.ModuleList(list(blocks)[:KEPT_BLOCKS]))  # noqa: B010
    return missing


def _block_signature(block: nn.Module) -> tuple[str, tuple[Any, ...]]:
    return repr(block), tuple((name, p.shape, p.dtype, p.requires_grad) for name, p in block.named_parameters())


@contextmanager
def mark_blocks(model: nn.Module, meter: Meter, missing: dict[str, int]) -> Iterator[None]:
    """Inside the context, log where each block of a shortened stack begins and ends, forward and backward."""
    handles = []

    def hooks(stack: str, i: int) -> tuple[Any, Any]:
        def enter(*_: Any) -> None:
            meter.mark("enter", stack, i)

        def leave(module: nn.Module, args: Any, out: Any) -> None:
            meter.mark("leave", stack, i)
            if isinstance(out, Tensor) and out.requires_grad:
                out.register_hook(lambda _: meter.mark("back", stack, i))

        return enter, leave

    def left(stack: str) -> Any:
        return lambda *_: meter.mark("left", stack)

    for stack in missing:
        handles.append(model.get_submodule(stack.rpartition(".")[0]).register_forward_hook(left(stack)))
        for i, block in enumerate(model.get_submodule(stack).children()):
            enter, leave = hooks(stack, i)
            handles += [block.register_forward_pre_hook(enter), block.register_forward_hook(leave)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def restore_blocks(op_log: OpLog, missing: dict[str, int]) -> OpLog:
    """Return the log as it would be with all blocks."""
    for stack, times in missing.items():
        op_log = OpLog(_restore_stack(op_log.entries, stack, times), op_log.labels)
    return op_log


def _restore_stack(entries: list[Any], stack: str, times: int) -> list[Any]:
    _check([entry for entry in entries if isinstance(entry, Marker) and entry.stack == stack])
    found: list[Any] = []
    piece: list[Any] | None = None  # entries of the block to repeat, while they are read
    forward_tensors: set[int] = set()  # allocated by the block to repeat
    inside, is_forward = False, False
    for entry in entries:
        if isinstance(entry, Marker) and entry.stack == stack:
            what, _, block = entry
            ends = piece is not None and (what, block) in (("enter", FORWARD_BLOCK + 1), ("back", BACKWARD_BLOCK - 1))
            if ends and piece is not None:
                found += piece * (times + 1)
                piece, is_forward = None, False
            if (what, block) in (("enter", FORWARD_BLOCK), ("back", BACKWARD_BLOCK)):
                piece, is_forward = [], what == "enter"
            inside = what != "left"  # from the first block to the end of the stack, and in the whole backward pass
        elif isinstance(entry, Allocation) and not inside and entry.size < 0 and entry.number in forward_tensors:
            entry = Allocation(entry.number, entry.size * (times + 1))  # freed once for every block
        if isinstance(entry, Allocation) and is_forward and entry.size > 0:
            forward_tensors.add(entry.number)
        (found if piece is None else piece).append(entry)
    return found


def _check(marks: list[Marker]) -> None:
    """Raise unless every pass runs the blocks in order, and backward in reverse."""
    forward = [mark.block for mark in marks if mark.what == "enter"]
    backward = [mark.block for mark in marks if mark.what == "back"]
    passes = len(forward) // KEPT_BLOCKS
    if forward != [*range(KEPT_BLOCKS)] * passes or backward not in ([], [*reversed(range(KEPT_BLOCKS))] * passes):
        raise IrregularStack
