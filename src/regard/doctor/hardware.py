"""The machine, measured: what works, how fast it is, and what to choose.

    devices     names and memory; per dtype whether it works, GFLOP/s, and the speed of a Transformer block
    attention   which of torch's kernels run
    threads     how many are fastest for small products (decoding) and for large ones (training)
    compile     whether the C++ compiler works, and the version of Triton
    disk        MB/s, written and flushed, where checkpoints go
    ranks       whether two processes of this machine can run an all-reduce

This file holds the results and prints them; measure.py measures.
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
    """A floating-point dtype on a device."""

    name: str
    works: bool
    why: str = ""  # what went wrong
    setting: str = ""  # environment variable that it needs to work
    gflops: float = 0.0  # GFLOP/s of the fastest matrix product
    block: float = 0.0  # speed of training a Transformer block, relative to float32


@dataclass(frozen=True)
class Kernel:
    """An attention kernel."""

    name: str
    works: bool
    why: str = ""


@dataclass(frozen=True)
class Device:
    """A CPU or a GPU."""

    name: str  # torch's name
    what: str
    memory: int  # bytes
    count: int = 1  # number of equal devices
    dtypes: tuple[Dtype, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    copy: float = 0.0  # GB/s, reads and writes both counted
    upload: float = 0.0  # GB/s from the host


@dataclass(frozen=True)
class Speed:
    """GFLOP/s of small and large products with a number of threads."""

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
    mbytes: float = 0.0  # MB/s, written and flushed
    small: float = 0.0  # milliseconds to write, flush and rename a small file
    why: str = ""


@dataclass(frozen=True)
class Ranks:
    """Whether two processes of this machine can form a group (gloo), and its speed."""

    joined: int = 0
    seconds: float = 0.0
    gbytes: float = 0.0  # GB/s of an all-reduce
    why: str = ""


@dataclass(frozen=True)
class Machine:
    """All measurements, and the choices that follow from them."""

    system: str
    python: str
    torch: str
    cores: int  # usable by this process
    devices: tuple[Device, ...]
    speeds: tuple[Speed, ...]
    compiler: Compiler
    disk: Disk | None = None  # None: not measured
    ranks: Ranks | None = None
    seconds: float = 0.0  # duration of the measurement
    load: float = 0.0  # load average before the measurement

    @property
    def best(self) -> Device:
        """The device to use."""
        return next((device for device in self.devices if device.name.startswith("cuda")), self.devices[0])

    @property
    def dtype(self) -> str:
        """The dtype for matrix products on the best device."""
        return self.choice[0]

    @property
    def choice(self) -> tuple[str, str]:
        """The dtype for matrix products on the best device, and the reason."""
        dtypes = {kind.name: kind for kind in self.best.dtypes}
        bfloat16 = dtypes.get("bfloat16")
        if bfloat16 is None or not bfloat16.works:
            return "float32", "bfloat16 does not work here"
        if not bfloat16.block:
            return "float32", "bfloat16 was not measured"
        reason = f"a Transformer block is trained {bfloat16.block:.2g} times as fast in bfloat16"
        return (
            ("bfloat16", reason)
            if bfloat16.block >= MIN_SPEEDUP
            else ("float32", f"{reason}, too little to give up precision")
        )

    @property
    def threads(self) -> tuple[int, int]:
        """The fastest numbers of threads for small and for large products; the smallest within 10 %."""
        if not self.speeds:
            return 1, 1
        small, large = max(s.small for s in self.speeds), max(s.large for s in self.speeds)
        return (
            min(s.threads for s in self.speeds if s.small >= 0.9 * small),
            min(s.threads for s in self.speeds if s.large >= 0.9 * large),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the measurements and the choice as JSON values."""
        small, large = self.threads
        chosen = {"device": self.best.name, "dtype": self.choice[0], "why": self.choice[1]}
        return to_dict(self) | {"choice": chosen | {"threads_small": small, "threads_large": large}}


# -- printing ----------------------------------------------------------------------------------------------------------


def lines(found: Machine) -> list[tuple[str, str]]:
    """Return the measurements as lines (label, text)."""
    cpu = found.devices[0]
    host = f"{cpu.what}, {found.cores} core{'s' * (found.cores > 1)}, {_size(cpu.memory)}, {found.system}"
    rows = [("machine", f"{host}; Python {found.python}, torch {found.torch}")]
    if found.load > 0.5 * found.cores:
        rows.append(("busy", f"load {found.load:.1f}: other processes are running, so the speeds below are too low"))
    for device in found.devices:
        if device.name != "cpu":
            count = f"{device.count} × " if device.count > 1 else ""
            rows.append((device.name, f"{count}{device.what}, {_size(device.memory)}"))
        prefix = "" if device.name == "cpu" else f"{device.name.partition(':')[0]} "
        rows += [(f"{prefix}{kind.name}", _dtype_line(kind)) for kind in device.dtypes]
        if device.copy:
            upload = f"; from the host {device.upload:,.3g} GB/s" if device.upload else ""
            rows.append((f"{prefix}copy", f"{device.copy:,.3g} GB/s{upload}"))
        if device.kernels:
            rows.append((f"{prefix}attention", _kernels_line(device.kernels)))
    rows.append(("threads", _threads_line(found)))
    rows.append(("compile", _compiler_line(found)))
    if found.disk is not None:
        d = found.disk
        speed = f"{d.mbytes:,.0f} MB/s written and flushed, {d.small:.2g} ms a small file, {_size(d.free)} free"
        rows.append(("disk", f"{d.folder}: {d.why or speed}"))
    if found.ranks is not None:
        r = found.ranks
        summary = f"{r.joined} local processes joined in {r.seconds:.1f} s (gloo) and all-reduce {r.gbytes:.2g} GB/s"
        rows.append(("ranks", f"two local processes could not join: {r.why}" if r.why else summary))
    small, large = found.threads
    both = f"{large} thread{'s' * (large > 1)}" + (f" ({small} to decode)" if small != large else "")
    rows.append(("choice", f"{found.choice[0]} on {found.best.name} ({found.choice[1]}); {both}"))
    return rows


def _dtype_line(kind: Dtype) -> str:
    speed = f"{kind.gflops:,.3g} GFLOP/s" if kind.gflops < 1e4 else f"{kind.gflops / 1e3:,.4g} TFLOP/s"
    if not kind.works:
        cure = f"; works with {kind.setting} set before torch is imported" if kind.setting else ""
        return f"{kind.why}{cure}{f' ({speed})' if kind.gflops else ''}"
    block = f"; a Transformer block is trained {kind.block:.2g} times as fast as in float32" if kind.block else ""
    only = f"; only with {kind.setting}, which is set: without it, it {kind.why}" if kind.setting else ""
    return f"{speed}{block}{only}"


def _kernels_line(kernels: Sequence[Kernel]) -> str:
    working = [f"{kernel.name}{' (uncompiled)' * (kernel.name == 'flex')}" for kernel in kernels if kernel.works]
    failing = [kernel.name for kernel in kernels if not kernel.works]
    return f"{', '.join(working) or 'none'} run{'; not here: ' + ', '.join(failing) if failing else ''}"


def _threads_line(found: Machine) -> str:
    if not found.speeds:
        return "could not be measured"
    counts = "; ".join(f"{s.threads}: {s.small:,.3g} and {s.large:,.3g}" for s in found.speeds)
    fixed = os.environ.get("OMP_NUM_THREADS")
    note = f" (OMP_NUM_THREADS={fixed} is set)" if fixed else ""
    return f"{found.threads[0]} for small products, {found.threads[1]} for large ones (GFLOP/s with {counts}){note}"


def _compiler_line(found: Machine) -> str:
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
