"""What this machine does best, found by trying: threads for small matrix products, and a type for large ones.

    choose_threads()       set the number of threads that does small products fastest; 20 ms
    choose_dtype("cpu")    the type in which a Transformer block is fastest and safe; some seconds, once
    attempt(...)           try what may end a process, in a process of its own
    remembered()           what was found, kept in the user's cache folder for this machine and this torch

Decoding is many small products, and threads meet at the end of each. On a machine that others use too, a thread that is
not running keeps all of them waiting, and two threads can be fifty times slower than one. And a type that is there need
not work: on CPUs that advertise AMX and lack it, a product in bfloat16 ends the process. So it is measured, not
assumed, and what may end a process is tried in another one (runtime/probe.py).
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
ISA_VARIABLE = "ONEDNN_MAX_CPU_ISA"  # read once by torch, so it is set before torch is imported
ISA_FALLBACKS = ("AVX512_CORE_BF16", "AVX512_CORE", "AVX2")  # what it may be set to, fastest first
MIN_SPEEDUP = 1.5  # a narrower type loses digits: it is chosen where a block is at least so many times as fast


# -- threads -----------------------------------------------------------------------------------------------------------


def choose_threads() -> int:
    """Set the number of threads that does small products fastest; OMP_NUM_THREADS is respected. Takes some 20 ms."""
    import torch

    most = torch.get_num_threads()
    if "OMP_NUM_THREADS" in os.environ or most == 1:
        return most
    found = {number: _seconds(number) for number in sorted({1, max(1, most // 2), most})}
    best = min(found, key=lambda number: found[number])
    torch.set_num_threads(best)
    return best


def _seconds(threads: int) -> float:
    """The time of a row of products like those of a decoding step; the upper quartile, since waiting comes and goes."""
    import torch

    torch.set_num_threads(threads)
    x, w = torch.randn(16, 512), torch.randn(2048, 512)
    taken, start = list[float](), time.perf_counter()
    while len(taken) < 4 or (len(taken) < 12 and time.perf_counter() - start < 0.1):
        began = time.perf_counter()
        for _ in range(3):
            torch.nn.functional.linear(x, w)
        taken.append(time.perf_counter() - began)
    return statistics.quantiles(taken[2:], n=4)[2]


# -- types -------------------------------------------------------------------------------------------------------------


def choose_dtype(device: torch.device | str = "cpu") -> torch.dtype:
    """The type for the matrix products of a model: bfloat16 where it is safe and faster, else float32.

    On a CPU it is tried in a child process the first time and remembered, so that the caller never meets an illegal
    instruction; a GPU is asked what it can do.
    """
    import torch

    device = torch.device(device)
    if device.type == "cuda":
        with torch.cuda.device(device):
            able = torch.cuda.is_bf16_supported(including_emulation=False)
        return torch.bfloat16 if able else torch.float32
    if device.type != "cpu" or not supports_dtype("bfloat16"):
        return torch.float32
    gain = speedup(cached_probe("block cpu bfloat16"))
    return torch.bfloat16 if gain >= MIN_SPEEDUP else torch.float32


def supports_dtype(dtype: str) -> bool:
    """Whether this CPU, with the settings of this process, computes in a type without ending the process."""
    found = cached_probe(f"works cpu {dtype}").result
    return found is not None and is_accurate(found)


def is_accurate(found: Mapping[str, Any]) -> bool:
    """Whether what a type computed was right."""
    epsilon = float(found["epsilon"])
    return bool(found["finite"]) and float(found["error"]) < (2 if epsilon > 1e-4 else 64) * epsilon  # sums are wider


def speedup(found: ProbeResult) -> float:
    """How many times as fast as in float32 a block was; 0 where it was not measured."""
    return 0.0 if found.result is None else float(found.result["float32"]) / float(found.result["seconds"])


# -- trying ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProbeResult:
    """How a probe ended: with what it found, or with an error, or with the process."""

    result: dict[str, Any] | None = None
    why: str = ""  # what went wrong, in a few words: an error's own, "illegal instruction", "took over 60 s"
    crashed: bool = False  # the process ended with it
    settings: dict[str, str] = field(default_factory=dict)  # the environment it was tried in, beyond the present one


def cached_probe(word: str) -> ProbeResult:
    """One probe of the CPU as remembered; else tried now, in a child of its own, and remembered."""
    known = read_cache().get("probes", {})
    if word not in known:
        halves = tuple(f"works cpu {name}" for name in ("float16", "bfloat16"))  # one child for both
        found = run_probes(halves if word in halves else (word,), seconds=0.1)
        known |= {name: {"result": one.result, "why": one.why, "crashed": one.crashed} for name, one in found.items()}
        write_cache("probes", known)
    return ProbeResult(**known[word])


def run_probes(
    probes: Sequence[str], settings: Mapping[str, str | None] | None = None, timeout: float = 60, seconds: float = 0.2
) -> dict[str, ProbeResult]:
    """Try probes (runtime/probe.py) in a child process, `spend` seconds on each measurement; the caller always survives.

    Where the child dies, or a probe takes over `patience` seconds, another child goes on with the probe after it.
    `make_generation_config` change the child's environment (None: leave the variable out).
    """
    settings = dict(settings or {})
    changed = {name: value for name, value in settings.items() if value is not None}
    environment = {name: value for name, value in os.environ.items() if name not in settings} | changed
    found: dict[str, ProbeResult] = {}
    left = list(probes)
    while left:
        lines, how = _run_child(left, environment, timeout, seconds)
        at = None
        for line in lines:
            if line.startswith(probe.BEGIN):
                at = line.removeprefix(probe.BEGIN)
            elif line.startswith(probe.DONE):
                values = json.loads(line.removeprefix(probe.DONE))
                found[values["probe"]], at = ProbeResult(values["result"], settings=changed), None
            elif line.startswith(probe.FAILED):
                values = json.loads(line.removeprefix(probe.FAILED))
                found[values["probe"]], at = ProbeResult(why=values["why"], settings=changed), None
        if at is None and any(word not in found for word in left):
            at = next(word for word in left if word not in found)  # it did not even begin
        if at is not None:
            found[at] = ProbeResult(why=how, crashed=True, settings=changed)
        left = [word for word in left if word not in found]
    return found


def _run_child(
    probes: Sequence[str], environment: dict[str, str], timeout: float, seconds: float
) -> tuple[list[str], str]:
    """The lines of one child, and how it ended; a child that says nothing for too long is ended."""
    command = [sys.executable or "python", "-P", probe.__file__, str(seconds), *probes]
    with tempfile.TemporaryDirectory() as here:  # its folder too, so that nothing in the caller's is imported
        out, err = Path(here) / "out", Path(here) / "err"
        try:
            with open(out, "wb") as said, open(err, "wb") as noise:
                child = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=said, stderr=noise, env=environment, cwd=here
                )
            how = _wait(child, out, timeout)
        except OSError as error:
            return [], f"no child process could be started: {error.strerror}"
        lines, last = (file.read_text(encoding="utf-8", errors="replace").splitlines() for file in (out, err))
    return lines, how or _exit_reason(child.returncode, last[-1] if last else "")


def _wait(child: subprocess.Popen[bytes], out: Path, timeout: float) -> str:
    """Wait until a child ends; or end it, and say so, when what it writes has not grown for a while."""
    size, since = 0, time.monotonic()
    try:
        while True:
            with suppress(subprocess.TimeoutExpired):
                child.wait(0.02)
                return ""
            if (now := out.stat().st_size) > size:
                size, since = now, time.monotonic()
            elif time.monotonic() - since > timeout:
                return f"took over {timeout:g} s"
    finally:
        child.kill()  # nothing, where it has ended
        child.wait()


def _exit_reason(status: int, last: str) -> str:
    """How a process ended, in words."""
    if status < 0:
        with suppress(ValueError):
            return (signal.strsignal(-status) or f"signal {-status}").lower()
    if status & 0xFFFFFFFF == 0xC000001D:  # Windows
        return "illegal instruction"
    return last[:200] or f"exit status {status}"


# -- remembering -------------------------------------------------------------------------------------------------------


def cache_dir() -> Path:
    """The folder where what was measured is kept: ``$REGARD_CACHE``, else ``regard`` in the user's cache folder."""
    if named := os.environ.get("REGARD_CACHE"):
        return Path(named).expanduser()
    home = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA") or "~/.cache"
    return Path(home).expanduser() / "regard"


def machine_key() -> str:
    """A few letters that change when the machine, the torch or a setting does that what is remembered depends on."""
    about = [FORMAT, platform.system(), platform.machine(), cpu_name(), os.cpu_count(), torch_version()]
    settings = [os.environ.get(name) for name in (ISA_VARIABLE, "OMP_NUM_THREADS", "ATEN_CPU_CAPABILITY")]
    return blake2b(json.dumps(about + settings).encode(), digest_size=6).hexdigest()


def torch_version() -> str:
    """The version of torch, read from its own file without importing it."""
    spec = find_spec("torch")
    if spec is not None and spec.origin:
        with suppress(OSError):
            found = re.search(r"__version__ = '([^']+)'", Path(spec.origin).with_name("version.py").read_text("utf-8"))
            if found:
                return found[1]
    import torch

    return str(torch.__version__)


def cpu_name() -> str:
    """The CPU by its own name."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def read_cache() -> dict[str, Any]:
    """What is kept of this machine; nothing where it cannot be read."""
    try:
        values = json.loads((cache_dir() / f"machine-{machine_key()}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) and values.get("format") == FORMAT else {}


def write_cache(name: str, value: Any) -> Path | None:
    """Keep something of this machine, whole or not at all; None where there is no place to keep it."""
    file = cache_dir() / f"machine-{machine_key()}.json"
    values = {"format": FORMAT, "torch": torch_version(), "processor": cpu_name()} | read_cache()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        return atomic_write((json.dumps(values | {name: value}, indent=2) + "\n").encode(), file)
    except (OSError, BadInput):  # a home that cannot be written: measured again the next time
        return None
