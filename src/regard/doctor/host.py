"""The host: usable cores, memory, C++ compiler, disk speed, and local processes joined by gloo."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import socket
import statistics
import subprocess
import sysconfig
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from regard.doctor.hardware import Compiler, Disk, Ranks
from regard.runtime.hardware import run_probes


def usable_cores() -> int:
    """Return the cores this process may use, by affinity and the container's quota."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="utf-8").split()
        if quota != "max":
            count = min(count, max(1, round(int(quota) / int(period))))
    return count


def memory() -> int:
    """Return the bytes of memory of the machine, or of its container if less."""
    size = 0
    with suppress(OSError, ValueError, AttributeError):
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="utf-8"))
        size = min(size, limit) if size else limit
    return size


def find_compiler(quick: bool = False) -> Compiler:
    """Find the C++ compiler that torch.compile would use, and try it on a few lines (unless `quick`)."""
    triton = ""
    if importlib.util.find_spec("triton") is not None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            triton = version("triton")
        except PackageNotFoundError:
            triton = "installed"
    names = [name for name in (os.environ.get("CXX"), "g++", "c++", "clang++") if name and shutil.which(name)]
    if not names:
        return Compiler(why="no C++ compiler found: install g++ or clang++, or set CXX", triton=triton)
    command = names[0]
    version_line = (_output_lines([command, "--version"]) or [""])[0]
    if quick:
        return Compiler(command, version_line, True, triton=triton)
    program = "#include <Python.h>\n#include <cmath>\nint main() { return (int)std::exp(0.0) - 1; }\n"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "try.cpp"
        file.write_text(program, encoding="utf-8")
        include = f"-I{sysconfig.get_paths()['include']}"
        openmp = ["-fopenmp"] if platform.system() == "Linux" else []
        process = subprocess.run(
            [command, "-O1", *openmp, include, "-c", str(file), "-o", str(Path(folder) / "try.o")],
            capture_output=True, text=True, errors="replace", check=False,
        )  # fmt: skip
    errors = [line for line in process.stderr.splitlines() if "error" in line]
    reason = "" if process.returncode == 0 else (errors or ["unknown error"])[0].split("error:")[-1].strip()
    return Compiler(command, version_line, process.returncode == 0, reason, triton)


def _output_lines(command: list[str]) -> list[str]:
    try:
        process = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return process.stdout.strip().splitlines()


def disk_speed(folder: Path, size: int = 2**25) -> Disk:
    """Measure how fast a folder takes one large flushed file and several small ones, as a checkpoint writes."""
    name = str(folder)
    while not folder.exists() and folder != folder.parent:  # the nearest existing folder is on the same disk
        folder = folder.parent
    try:
        free = shutil.disk_usage(folder).free
        if free < 4 * size:
            return Disk(name, free, why="nearly full: not measured")
        with tempfile.TemporaryDirectory(prefix=".regard-", dir=folder) as temporary:
            chunk = os.urandom(2**22)  # not zeros, which some file systems do not write
            began = time.perf_counter()
            with open(Path(temporary) / "large", "wb") as file:
                for _ in range(size // len(chunk)):
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
            large = time.perf_counter() - began
            times = []
            for number in range(5):
                began = time.perf_counter()
                with open(Path(temporary) / "part", "wb") as file:
                    file.write(chunk[:4096])
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(Path(temporary) / "part", Path(temporary) / f"small-{number}")
                times.append(time.perf_counter() - began)
    except OSError as error:
        return Disk(name, why=f"cannot be written: {(error.strerror or str(error)).lower()}")
    return Disk(name, free, size / large / 1e6, statistics.median(times) * 1e3)


def join_two_processes() -> Ranks:
    """Run an all-reduce over two processes of this machine."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    probes = [f"rank {number} {port}" for number in range(2)]
    with ThreadPoolExecutor(2) as pool:
        found = [
            results[probe] for probe, results in zip(probes, pool.map(lambda w: run_probes([w]), probes), strict=True)
        ]
    if failed := [listener for listener in found if listener.result is None or not listener.result["right"]]:
        return Ranks(why=failed[0].why or "the sum was wrong")
    values = [listener.result for listener in found if listener.result is not None]
    return Ranks(2, max(v["joined"] for v in values), min(v["gbytes"] for v in values))
