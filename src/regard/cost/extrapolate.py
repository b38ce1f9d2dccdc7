"""A stack of equal blocks is run with four of them; what the third does on the way forth, and the second on the way
back, is repeated for all that were left out.

The first block begins with what the embedding left, the last ends at the head; those in between do the same, one after
the other. So a hundred layers cost no more to count than four, and the count is that of all of them: a test compares it
with the count of the whole, entry by entry. Stacks whose blocks differ are run whole.
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
FORWARD_BLOCK, BACKWARD_BLOCK = (
    2,
    1,
)  # the blocks that stand for those left out: their neighbours on the way are like themselves


class IrregularStack(Exception):
    """The blocks were not run one after the other, each once."""


def block_stacks(model: nn.Module) -> dict[str, nn.ModuleList]:
    """The lists of repeated blocks, by name."""
    every = model.named_modules()
    return {name: m for name, m in every if name.split(".")[-1] == "blocks" and isinstance(m, nn.ModuleList)}


def drop_repeated_blocks(model: nn.Module) -> dict[str, int]:
    """Take out blocks where all are alike; gives how many are missing in each stack."""
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
    """Inside, the tape shows where each block of a shortened stack begins and ends, and begins on the way back."""
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
    """The tape as it would be with the blocks that were left out."""
    for stack, times in missing.items():
        op_log = OpLog(_restore_stack(op_log.entries, stack, times), op_log.labels)
    return op_log


def _restore_stack(entries: list[Any], stack: str, times: int) -> list[Any]:
    _check([entry for entry in entries if isinstance(entry, Marker) and entry.stack == stack])
    found: list[Any] = []
    piece: list[Any] | None = None  # what is repeated, while it is read
    forth: set[int] = set()  # tensors of the block that stands for others
    among, first = False, False
    for entry in entries:
        if isinstance(entry, Marker) and entry.stack == stack:
            what, _, block = entry
            ends = piece is not None and (what, block) in (("enter", FORWARD_BLOCK + 1), ("back", BACKWARD_BLOCK - 1))
            if ends and piece is not None:
                found += piece * (times + 1)
                piece, first = None, False
            if (what, block) in (("enter", FORWARD_BLOCK), ("back", BACKWARD_BLOCK)):
                piece, first = [], what == "enter"
            among = what != "left"  # from the first block to the end of the stack, and all the way back
        elif isinstance(entry, Allocation) and not among and entry.size < 0 and entry.number in forth:
            entry = Allocation(entry.number, entry.size * (times + 1))  # what all of them held until now
        if isinstance(entry, Allocation) and first and entry.size > 0:
            forth.add(entry.number)
        (found if piece is None else piece).append(entry)
    return found


def _check(marks: list[Marker]) -> None:
    """Every pass goes through the blocks in order, and back."""
    forth = [mark.block for mark in marks if mark.what == "enter"]
    back = [mark.block for mark in marks if mark.what == "back"]
    passes = len(forth) // KEPT_BLOCKS
    if forth != [*range(KEPT_BLOCKS)] * passes or back not in ([], [*reversed(range(KEPT_BLOCKS))] * passes):
        raise IrregularStack
