"""The host around the devices: cores, memory, a compiler that compiles, a disk that keeps, processes that meet."""

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
    """The cores this process may use: those it is bound to, and no more than its container's share."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="utf-8").split()
        if quota != "max":
            count = min(count, max(1, round(int(quota) / int(period))))
    return count


def memory() -> int:
    """The bytes of memory there are: the machine's, or what its container allows."""
    size = 0
    with suppress(OSError, ValueError, AttributeError):
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):
        most = int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="utf-8"))
        size = min(size, most) if size else most
    return size


def find_compiler(quick: bool = False) -> Compiler:
    """The C++ compiler that torch.compile would use, and whether it compiles what torch.compile writes."""
    triton = ""
    if importlib.util.find_spec("triton") is not None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            triton = version("triton")
        except PackageNotFoundError:
            triton = "there"
    names = [name for name in (os.environ.get("CXX"), "g++", "c++", "clang++") if name and shutil.which(name)]
    if not names:
        return Compiler(why="no C++ compiler found: install g++ or clang++, or set CXX", triton=triton)
    command = names[0]
    version_line = (_output_lines([command, "--version"]) or [""])[0]
    if quick:
        return Compiler(command, version_line, True, triton=triton)
    program = "#include <Python.h>\n#include <cmath>\nint main() { return (int)std::exp(0.0) - 1; }\n"
    with tempfile.TemporaryDirectory() as here:
        file = Path(here) / "try.cpp"
        file.write_text(program, encoding="utf-8")
        include = f"-I{sysconfig.get_paths()['include']}"
        openmp = ["-fopenmp"] if platform.system() == "Linux" else []
        done = subprocess.run(
            [command, "-O1", *openmp, include, "-c", str(file), "-o", str(Path(here) / "try.o")],
            capture_output=True, text=True, errors="replace", check=False,
        )  # fmt: skip
    errors = [line for line in done.stderr.splitlines() if "error" in line]
    why = "" if done.returncode == 0 else (errors or ["it fails"])[0].split("error:")[-1].strip()
    return Compiler(command, version_line, done.returncode == 0, why, triton)


def _output_lines(command: list[str]) -> list[str]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.strip().splitlines()


def disk_speed(folder: Path, size: int = 2**25) -> Disk:
    """How fast a folder takes what a checkpoint writes: one large file flushed to the disk, and small ones."""
    named = str(folder)
    while not folder.exists() and folder != folder.parent:  # it will be made where it is to be
        folder = folder.parent
    try:
        free = shutil.disk_usage(folder).free
        if free < 4 * size:
            return Disk(named, free, why="nearly full: not measured")
        with tempfile.TemporaryDirectory(prefix=".regard-", dir=folder) as here:
            chunk = os.urandom(2**22)  # not zeros, which some file systems do not write
            began = time.perf_counter()
            with open(Path(here) / "large", "wb") as file:
                for _ in range(size // len(chunk)):
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
            large = time.perf_counter() - began
            taken = []
            for number in range(5):
                began = time.perf_counter()
                with open(Path(here) / "part", "wb") as file:
                    file.write(chunk[:4096])
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(Path(here) / "part", Path(here) / f"small-{number}")
                taken.append(time.perf_counter() - began)
    except OSError as error:
        return Disk(named, why=f"cannot be written: {(error.strerror or str(error)).lower()}")
    return Disk(named, free, size / large / 1e6, statistics.median(taken) * 1e3)


def join_two_processes() -> Ranks:
    """Two processes of this machine that meet and add up a tensor."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    words = [f"rank {number} {port}" for number in range(2)]
    with ThreadPoolExecutor(2) as pool:
        found = [tried[word] for word, tried in zip(words, pool.map(lambda w: run_probes([w]), words), strict=True)]
    if bad := [one for one in found if one.result is None or not one.result["right"]]:
        return Ranks(why=bad[0].why or "the sum was wrong")
    values = [one.result for one in found if one.result is not None]
    return Ranks(2, max(v["joined"] for v in values), min(v["gbytes"] for v in values))
