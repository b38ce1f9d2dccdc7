"""The machine, measured: what works, how fast it is, and what to choose.

    devices     names and memory; per type whether it works, 10⁹ operations a second, and a Transformer block's speed
    attention   which of torch's kernels run
    threads     how many are fastest for small products (decoding) and for large ones (training)
    compile     a C++ compiler that compiles, Triton
    disk        megabytes a second, written and flushed, where checkpoints go
    ranks       whether two processes of this machine can join and add up

Here is what was found, as values and in words; measure.py finds it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from regard.core.config import to_dict
from regard.runtime.hardware import MIN_SPEEDUP


@dataclass(frozen=True)
class Dtype:
    """A floating type on a device."""

    name: str
    works: bool
    why: str = ""  # what went wrong
    setting: str = ""  # with which setting of the environment it works, where it does not without
    gflops: float = 0.0  # 10⁹ operations a second of the fastest matrix product
    block: float = 0.0  # how many times as fast as in float32 a Transformer block is trained


@dataclass(frozen=True)
class Kernel:
    """A way of computing attention."""

    name: str
    works: bool
    why: str = ""


@dataclass(frozen=True)
class Device:
    """A CPU or a GPU."""

    name: str  # as torch calls it
    what: str
    memory: int  # bytes
    count: int = 1  # how many of the kind there are
    dtypes: tuple[Dtype, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    copy: float = 0.0  # 10⁹ bytes a second, read and written counted each
    upload: float = 0.0  # 10⁹ bytes a second, from the host


@dataclass(frozen=True)
class Speed:
    """What a number of threads does: 10⁹ operations a second."""

    threads: int
    small: float
    large: float


@dataclass(frozen=True)
class Compiler:
    """What torch.compile needs."""

    command: str = ""
    version: str = ""
    works: bool = False
    why: str = ""
    triton: str = ""  # its version


@dataclass(frozen=True)
class Disk:
    """Where checkpoints go."""

    folder: str
    free: int = 0  # bytes
    mbytes: float = 0.0  # 10⁶ bytes a second, written and flushed
    small: float = 0.0  # milliseconds for a small file, written, flushed and put in place
    why: str = ""


@dataclass(frozen=True)
class Ranks:
    """Processes of this machine that could join (gloo)."""

    joined: int = 0
    seconds: float = 0.0
    gbytes: float = 0.0  # 10⁹ bytes a second that were added up
    why: str = ""


@dataclass(frozen=True)
class Machine:
    """All that was found, and what follows from it."""

    system: str
    python: str
    torch: str
    cores: int  # that this process may use
    devices: tuple[Device, ...]
    speeds: tuple[Speed, ...]
    compiler: Compiler
    disk: Disk | None = None  # None: not measured
    ranks: Ranks | None = None
    seconds: float = 0.0  # that measuring took
    load: float = 0.0  # how many processes wanted to run in the minute before

    @property
    def best(self) -> Device:
        """The device to use."""
        return next((device for device in self.devices if device.name.startswith("cuda")), self.devices[0])

    @property
    def dtype(self) -> str:
        """The type for matrix products on it."""
        return self.choice[0]

    @property
    def choice(self) -> tuple[str, str]:
        """The type for matrix products on the best device, and why."""
        kinds = {kind.name: kind for kind in self.best.dtypes}
        narrow = kinds.get("bfloat16")
        if narrow is None or not narrow.works:
            return "float32", "bfloat16 does not work here"
        if not narrow.block:
            return "float32", "bfloat16 was not measured"
        said = f"a Transformer block is trained {narrow.block:.2g} times as fast in bfloat16"
        return (
            ("bfloat16", said) if narrow.block >= MIN_SPEEDUP else ("float32", f"{said}, which is not worth its digits")
        )

    @property
    def threads(self) -> tuple[int, int]:
        """The numbers of threads that are fastest for small products and for large ones; the smaller within a tenth."""
        if not self.speeds:
            return 1, 1
        small, large = max(s.small for s in self.speeds), max(s.large for s in self.speeds)
        return (
            min(s.threads for s in self.speeds if s.small >= 0.9 * small),
            min(s.threads for s in self.speeds if s.large >= 0.9 * large),
        )

    def to_json(self) -> dict[str, Any]:
        """As plain values, with the choice."""
        small, large = self.threads
        chosen = {"device": self.best.name, "dtype": self.choice[0], "why": self.choice[1]}
        return to_dict(self) | {"choice": chosen | {"threads_small": small, "threads_large": large}}


# -- in words ----------------------------------------------------------------------------------------------------------


def lines(found: Machine) -> list[tuple[str, str]]:
    """What was found as (label, words), a line each."""
    cpu = found.devices[0]
    host = f"{cpu.what}, {found.cores} core{'s' * (found.cores > 1)}, {_size(cpu.memory)}, {found.system}"
    said = [("machine", f"{host}; Python {found.python}, torch {found.torch}")]
    if found.load > 0.5 * found.cores:
        said.append(("busy", f"load {found.load:.1f}: others are at work, and what follows is what they leave"))
    for device in found.devices:
        if device.name != "cpu":
            many = f"{device.count} × " if device.count > 1 else ""
            said.append((device.name, f"{many}{device.what}, {_size(device.memory)}"))
        prefix = "" if device.name == "cpu" else f"{device.name.partition(':')[0]} "
        said += [(f"{prefix}{kind.name}", _kind(kind)) for kind in device.dtypes]
        if device.copy:
            up = f"; from the host {device.upload:,.3g} GB/s" if device.upload else ""
            said.append((f"{prefix}copy", f"{device.copy:,.3g} GB/s{up}"))
        if device.kernels:
            said.append((f"{prefix}attention", _kernels(device.kernels)))
    said.append(("threads", _threads(found)))
    said.append(("compile", _compiler(found)))
    if found.disk is not None:
        d = found.disk
        speed = f"{d.mbytes:,.0f} MB/s written and flushed, {d.small:.2g} ms a small file, {_size(d.free)} free"
        said.append(("disk", f"{d.folder}: {d.why or speed}"))
    if found.ranks is not None:
        r = found.ranks
        fine = f"{r.joined} local processes joined in {r.seconds:.1f} s (gloo) and add up {r.gbytes:.2g} GB/s"
        said.append(("ranks", f"two local processes could not join: {r.why}" if r.why else fine))
    small, large = found.threads
    both = f"{large} thread{'s' * (large > 1)}" + (f" ({small} to decode)" if small != large else "")
    said.append(("choice", f"{found.choice[0]} on {found.best.name} ({found.choice[1]}); {both}"))
    return said


def _kind(kind: Dtype) -> str:
    speed = f"{kind.gflops:,.3g} GFLOP/s" if kind.gflops < 1e4 else f"{kind.gflops / 1e3:,.4g} TFLOP/s"
    if not kind.works:
        cure = f"; works with {kind.setting} set before torch is imported" if kind.setting else ""
        return f"{kind.why}{cure}{f' ({speed})' if kind.gflops else ''}"
    block = f"; a Transformer block is trained {kind.block:.2g} times as fast as in float32" if kind.block else ""
    only = f"; only with {kind.setting}, as it is set here: without it, it {kind.why}" if kind.setting else ""
    return f"{speed}{block}{only}"


def _kernels(kernels: Sequence[Kernel]) -> str:
    fine = [f"{kernel.name}{' (uncompiled)' * (kernel.name == 'flex')}" for kernel in kernels if kernel.works]
    bad = [kernel.name for kernel in kernels if not kernel.works]
    return f"{', '.join(fine) or 'none'} run{'; not here: ' + ', '.join(bad) if bad else ''}"


def _threads(found: Machine) -> str:
    if not found.speeds:
        return "could not be measured"
    counts = "; ".join(f"{s.threads}: {s.small:,.3g} and {s.large:,.3g}" for s in found.speeds)
    fixed = os.environ.get("OMP_NUM_THREADS")
    note = f" (OMP_NUM_THREADS={fixed} is set)" if fixed else ""
    return f"{found.threads[0]} for small products, {found.threads[1]} for large ones (GFLOP/s with {counts}){note}"


def _compiler(found: Machine) -> str:
    c = found.compiler
    gpu = found.best.name.startswith("cuda")
    triton = f"Triton {c.triton}" if c.triton else "no Triton" + (", which a GPU needs" if gpu else "")
    if not c.command:
        return f"{c.why}; {triton}"
    return f"{c.version or c.command}{'' if c.works else f', which cannot compile: {c.why}'}; {triton}"


def _size(count: int) -> str:
    if not count:
        return "memory unknown"
    return f"{count / 2**30:,.0f} GiB" if count >= 2**30 else f"{count / 2**20:,.0f} MiB"
