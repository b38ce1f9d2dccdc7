"""Threads and dtype that are fastest on this machine, found by measuring.

    choose_threads()       set the number of threads that is fastest for small matrix products; 20 ms
    choose_dtype("cpu")    the dtype in which a Transformer block is fastest and correct; some seconds, once
    run_probes(...)        run probes that may crash, in a child process
    read_cache()           results stored in the user's cache folder for this machine and this torch

Decoding is many small products, and threads synchronise after each. On a shared machine a thread that is not running
keeps all others waiting, and two threads can be fifty times slower than one. And a dtype that exists need not work: on
CPUs that advertise AMX and lack it, a bfloat16 product crashes the process. So both are measured, and whatever may
crash runs in a child process (runtime/probe.py).
"""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.core.errors import BadInput
from regard.core.files import atomic_write
from regard.runtime import probe

if TYPE_CHECKING:
    import torch

FORMAT = 2
ISA_VARIABLE = "ONEDNN_MAX_CPU_ISA"  # read by torch at import, so it must be set before
ISA_FALLBACKS = ("AVX512_CORE_BF16", "AVX512_CORE", "AVX2")  # possible values, fastest first
MIN_SPEEDUP = 1.5  # a narrower dtype must make a block this many times as fast


# -- threads -----------------------------------------------------------------------------------------------------------


def choose_threads() -> int:
    """Set the number of threads that is fastest for small products; OMP_NUM_THREADS wins. Takes 20 ms."""
    import torch

    max_threads = torch.get_num_threads()
    if "OMP_NUM_THREADS" in os.environ or max_threads == 1:
        return max_threads
    found = {number: _seconds(number) for number in sorted({1, max(1, max_threads // 2), max_threads})}
    best = min(found, key=lambda number: found[number])
    torch.set_num_threads(best)
    return best


def _seconds(threads: int) -> float:
    """Return the time of products like those of a decoding step: the upper quartile, since waiting times vary."""
    import torch

    torch.set_num_threads(threads)
    x, w = torch.randn(16, 512), torch.randn(2048, 512)
    times, start = list[float](), time.perf_counter()
    while len(times) < 4 or (len(times) < 12 and time.perf_counter() - start < 0.1):
        began = time.perf_counter()
        for _ in range(3):
            torch.nn.functional.linear(x, w)
        times.append(time.perf_counter() - began)
    return statistics.quantiles(times[2:], n=4)[2]


# -- dtypes ------------------------------------------------------------------------------------------------------------


def choose_dtype(device: torch.device | str = "cpu") -> torch.dtype:
    """Return the dtype for a model's matrix products: bfloat16 where it is correct and faster, else float32.

    On a CPU it is probed in a child process the first time and cached, so that the caller never meets an illegal
    instruction; a GPU reports what it supports.
    """
    import torch

    device = torch.device(device)
    if device.type == "cuda":
        with torch.cuda.device(device):
            is_supported = torch.cuda.is_bf16_supported(including_emulation=False)
        return torch.bfloat16 if is_supported else torch.float32
    if device.type != "cpu" or not supports_dtype("bfloat16"):
        return torch.float32
    gain = speedup(cached_probe("block cpu bfloat16"))
    return torch.bfloat16 if gain >= MIN_SPEEDUP else torch.float32


def supports_dtype(dtype: str) -> bool:
    """Return whether this CPU, with the environment of this process, computes correctly in a dtype."""
    found = cached_probe(f"works cpu {dtype}").result
    return found is not None and is_accurate(found)


def is_accurate(found: Mapping[str, Any]) -> bool:
    """Return whether the result of a `works` probe is correct."""
    epsilon = float(found["epsilon"])
    return bool(found["finite"]) and float(found["error"]) < (2 if epsilon > 1e-4 else 64) * epsilon  # sums are wider


def speedup(found: ProbeResult) -> float:
    """Return how many times as fast as float32 a block was; 0 if it was not measured."""
    return 0.0 if found.result is None else float(found.result["float32"]) / float(found.result["seconds"])


# -- probes ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProbeResult:
    """Result of a probe, or why it failed."""

    result: dict[str, Any] | None = None
    why: str = ""  # reason of a failure: the error message, "illegal instruction", "took over 60 s"
    crashed: bool = False  # the process died
    settings: dict[str, str] = field(default_factory=dict)  # environment variables set for the child only


def cached_probe(name: str) -> ProbeResult:
    """Return the result of one CPU probe from the cache; else run it in a child process and cache it."""
    cached = read_cache().get("probes", {})
    if name not in cached:
        halves = tuple(f"works cpu {key}" for key in ("float16", "bfloat16"))  # one child for both
        found = run_probes(halves if name in halves else (name,), seconds=0.1)
        cached |= {
            key: {"result": result.result, "why": result.why, "crashed": result.crashed}
            for key, result in found.items()
        }
        write_cache("probes", cached)
    return ProbeResult(**cached[name])


def run_probes(
    probes: Sequence[str], settings: Mapping[str, str | None] | None = None, timeout: float = 60, seconds: float = 0.2
) -> dict[str, ProbeResult]:
    """Run probes (runtime/probe.py) in a child process, with `seconds` for each measurement; the caller survives.

    Where the child dies, or a probe takes over `timeout` seconds, another child continues with the next probe.
    `settings` change the child's environment (None: unset the variable).
    """
    settings = dict(settings or {})
    changed = {name: value for name, value in settings.items() if value is not None}
    environment = {name: value for name, value in os.environ.items() if name not in settings} | changed
    found: dict[str, ProbeResult] = {}
    remaining = list(probes)
    while remaining:
        lines, reason = _run_child(remaining, environment, timeout, seconds)
        current = None
        for line in lines:
            if line.startswith(probe.BEGIN):
                current = line.removeprefix(probe.BEGIN)
            elif line.startswith(probe.DONE):
                values = json.loads(line.removeprefix(probe.DONE))
                found[values["probe"]], current = ProbeResult(values["result"], settings=changed), None
            elif line.startswith(probe.FAILED):
                values = json.loads(line.removeprefix(probe.FAILED))
                found[values["probe"]], current = ProbeResult(why=values["why"], settings=changed), None
        if current is None and any(name not in found for name in remaining):
            current = next(name for name in remaining if name not in found)  # the child ended before it began
        if current is not None:
            found[current] = ProbeResult(why=reason, crashed=True, settings=changed)
        remaining = [name for name in remaining if name not in found]
    return found


def _run_child(
    probes: Sequence[str], environment: dict[str, str], timeout: float, seconds: float
) -> tuple[list[str], str]:
    """Return the lines printed by one child, and how it ended; a silent child is killed after `timeout` seconds."""
    command = [sys.executable or "python", "-P", probe.__file__, str(seconds), *probes]
    # The folder is also the working directory, so that nothing from the caller's is imported.
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder) / "out", Path(folder) / "err"
        try:
            with open(out, "wb") as stdout_file, open(err, "wb") as stderr_file:
                child = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=stdout_file,
                    stderr=stderr_file,
                    env=environment,
                    cwd=folder,
                )
            reason = _wait(child, out, timeout)
        except OSError as error:
            return [], f"no child process could be started: {error.strerror}"
        lines, errors = (file.read_text(encoding="utf-8", errors="replace").splitlines() for file in (out, err))
    return lines, reason or _exit_reason(child.returncode, errors[-1] if errors else "")


def _wait(child: subprocess.Popen[bytes], out: Path, timeout: float) -> str:
    """Wait until a child ends; kill it, and return why, when its output has not grown for `timeout` seconds."""
    size, last_growth = 0, time.monotonic()
    try:
        while True:
            with suppress(subprocess.TimeoutExpired):
                child.wait(0.02)
                return ""
            if (current_size := out.stat().st_size) > size:
                size, last_growth = current_size, time.monotonic()
            elif time.monotonic() - last_growth > timeout:
                return f"took over {timeout:g} s"
    finally:
        child.kill()  # does nothing if it has ended
        child.wait()


def _exit_reason(status: int, last: str) -> str:
    """Describe how a process ended."""
    if status < 0:
        with suppress(ValueError):
            return (signal.strsignal(-status) or f"signal {-status}").lower()
    if status & 0xFFFFFFFF == 0xC000001D:  # Windows
        return "illegal instruction"
    return last[:200] or f"exit status {status}"


# -- cache -------------------------------------------------------------------------------------------------------------


def cache_dir() -> Path:
    """Return the folder of cached results: ``$REGARD_CACHE``, else ``regard`` in the user's cache folder."""
    if folder := os.environ.get("REGARD_CACHE"):
        return Path(folder).expanduser()
    home = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA") or "~/.cache"
    return Path(home).expanduser() / "regard"


def machine_key() -> str:
    """Return a hash of the machine, torch version and environment variables that the results depend on."""
    facts = [FORMAT, platform.system(), platform.machine(), cpu_name(), os.cpu_count(), torch_version()]
    settings = [os.environ.get(name) for name in (ISA_VARIABLE, "OMP_NUM_THREADS", "ATEN_CPU_CAPABILITY")]
    return blake2b(json.dumps(facts + settings).encode(), digest_size=6).hexdigest()


def torch_version() -> str:
    """Return torch's version without importing torch."""
    spec = find_spec("torch")
    if spec is not None and spec.origin:
        with suppress(OSError):
            found = re.search(r"__version__ = '([^']+)'", Path(spec.origin).with_name("version.py").read_text("utf-8"))
            if found:
                return found[1]
    import torch

    return str(torch.__version__)


def cpu_name() -> str:
    """Return the name of the CPU."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def read_cache() -> dict[str, Any]:
    """Return what is cached for this machine; empty if it cannot be read."""
    try:
        values = json.loads((cache_dir() / f"machine-{machine_key()}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) and values.get("format") == FORMAT else {}


def write_cache(name: str, value: Any) -> Path | None:
    """Add an entry to this machine's cache, atomically; return None if the cache cannot be written."""
    file = cache_dir() / f"machine-{machine_key()}.json"
    values = {"format": FORMAT, "torch": torch_version(), "processor": cpu_name()} | read_cache()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        return atomic_write((json.dumps(values | {name: value}, indent=2) + "\n").encode(), file)
    except (OSError, BadInput):  # not writable: measured again next time
        return None
