"""Log of a pass in order: kernels, allocations and frees, markers. All counts are computed from it afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Kernel(NamedTuple):
    """A kernel of a device. Kinds: product, attention, pointwise (which a compiler fuses), other."""

    kind: str
    operations: int  # two per multiply-add
    moved: int  # bytes


class KernelRun(NamedTuple):
    """One run of a kernel, with its phase and the part of the model it belongs to."""

    phase: str
    part: str
    kernel: Kernel


class Allocation(NamedTuple):
    """An allocation of `size` bytes for tensor `number`; a negative size frees it."""

    number: int
    size: int


class Note(NamedTuple):
    """An amount counted under a name, e.g. bytes that tensor parallelism would sum."""

    phase: str
    what: str
    amount: int


class Marker(NamedTuple):
    """A named moment: ``enter`` and ``leave`` of a block, ``back`` when backward reaches it, or another."""

    what: str
    stack: str = ""
    block: int = 0


@dataclass
class OpLog:
    """Log entries, and labels of tensors by number."""

    entries: list[Any] = field(default_factory=list)
    labels: dict[int, str] = field(default_factory=dict)

    def kernels(self) -> dict[str, Counter[Kernel]]:
        """Return how often each kernel ran, by phase."""
        found: dict[str, Counter[Kernel]] = {}
        for entry in self.entries:
            if isinstance(entry, KernelRun):
                found.setdefault(entry.phase, Counter())[entry.kernel] += 1
        return found

    def work(self, phase: str) -> dict[str, int]:
        """Return the operations of a phase, by part."""
        found: Counter[str] = Counter()
        for entry in self.entries:
            if isinstance(entry, KernelRun) and entry.phase == phase and entry.kernel.operations:
                found[entry.part] += entry.kernel.operations
        return dict(found)

    def noted(self, phase: str) -> Counter[str]:
        """Return the notes of a phase, summed by name."""
        found: Counter[str] = Counter()
        for entry in self.entries:
            if isinstance(entry, Note) and entry.phase == phase:
                found[entry.what] += entry.amount
        return found

    def peak(self, leave_out: Iterable[str] = ()) -> dict[str, int]:
        """Return the bytes alive at the peak, by label ("" without one); labels in `leave_out` are not counted."""
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
        """Return the bytes alive at the last marker of this name, by label."""
        now, found = Counter[str](), dict[str, int]()
        for entry in self.entries:
            if isinstance(entry, Allocation):
                now[self.labels.get(entry.number, "")] += entry.size
            elif isinstance(entry, Marker) and entry.what == moment:
                found = dict(now)
        return found
