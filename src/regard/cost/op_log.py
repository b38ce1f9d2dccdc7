"""What happened, in order: kernels that ran, tensors that came and went, marks. All else is read off it afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Kernel(NamedTuple):
    """An operation as a device sees it. Kinds: product, attention, pointwise (which a compiler fuses away), other."""

    kind: str
    operations: int  # two a multiply-add
    moved: int  # bytes


class KernelRun(NamedTuple):
    """A kernel, in which phase and for which part of the model."""

    phase: str
    part: str
    kernel: Kernel


class Allocation(NamedTuple):
    """A tensor's memory: its number, and its bytes; negative when it goes."""

    number: int
    size: int


class Note(NamedTuple):
    """Something else that is counted, by name."""

    phase: str
    what: str
    amount: int


class Marker(NamedTuple):
    """A moment: ``enter`` and ``leave`` of a block, ``back`` to it in the backward pass; or any other."""

    what: str
    stack: str = ""
    block: int = 0


@dataclass
class OpLog:
    """The entries, and what is known of tensors: number -> label."""

    entries: list[Any] = field(default_factory=list)
    labels: dict[int, str] = field(default_factory=dict)

    def kernels(self) -> dict[str, Counter[Kernel]]:
        """How often each kernel ran, by phase."""
        found: dict[str, Counter[Kernel]] = {}
        for entry in self.entries:
            if isinstance(entry, KernelRun):
                found.setdefault(entry.phase, Counter())[entry.kernel] += 1
        return found

    def work(self, phase: str) -> dict[str, int]:
        """Operations of a phase, by part."""
        found: Counter[str] = Counter()
        for entry in self.entries:
            if isinstance(entry, KernelRun) and entry.phase == phase and entry.kernel.operations:
                found[entry.part] += entry.kernel.operations
        return dict(found)

    def noted(self, phase: str) -> Counter[str]:
        """What else was counted in a phase."""
        found: Counter[str] = Counter()
        for entry in self.entries:
            if isinstance(entry, Note) and entry.phase == phase:
                found[entry.what] += entry.amount
        return found

    def peak(self, leave_out: Iterable[str] = ()) -> dict[str, int]:
        """What was alive when most was, by label ("" for what has none), of all but what is labelled so."""
        ignored, now, total = set(leave_out), Counter[str](), 0
        most, best = 0, dict[str, int]()
        for entry in self.entries:
            if isinstance(entry, Allocation) and (what := self.labels.get(entry.number, "")) not in ignored:
                now[what] += entry.size
                total += entry.size
                if total > most:
                    most, best = total, dict(now)
        return {what: size for what, size in best.items() if size}

    def alive(self, moment: str) -> dict[str, int]:
        """What was alive at the last mark of this name, by label."""
        now, found = Counter[str](), dict[str, int]()
        for entry in self.entries:
            if isinstance(entry, Allocation):
                now[self.labels.get(entry.number, "")] += entry.size
            elif isinstance(entry, Marker) and entry.what == moment:
                found = dict(now)
        return found
