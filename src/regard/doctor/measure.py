"""Measure the machine: probe everything in child processes, time it and cache the result.

A dtype that crashes the child is tried again under settings that are known to help.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.core.config import from_dict
from regard.core.errors import RegardError
from regard.doctor.hardware import Device, Dtype, Kernel, Machine, Speed
from regard.doctor.host import disk_speed, find_compiler, join_two_processes, memory, usable_cores
from regard.runtime import hardware as core
from regard.runtime.hardware import ISA_FALLBACKS, ISA_VARIABLE, ProbeResult, run_probes

DTYPES = ("float32", "bfloat16", "float16", "float64")
KERNELS = ("flash", "efficient", "cudnn", "math", "flex")


def load_measured() -> Machine | None:
    """Return the cached measurement, if it is of this machine."""
    cached = core.read_cache().get("machine")
    try:
        found = from_dict(Machine, {name: value for name, value in cached.items() if name != "choice"})  # type: ignore[union-attr]
    except (RegardError, TypeError, AttributeError):  # nothing cached, or in another format
        return None
    return (
        found if _gpu_names() == [device.what for device in found.devices if device.name.startswith("cuda")] else None
    )


def measure(
    quick: bool = False, folder: Path | None = None, on_progress: Callable[[str], None] | None = None
) -> Machine:
    """Probe and time everything in about 15 seconds, `quick` in about 4 (no disk, no ranks, float32 and bfloat16 only).

    `on_progress` gets a line for each step. The result is cached (runtime.hardware.write_cache).
    """
    on_progress = on_progress or (lambda line: None)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    began, seconds, cores = time.monotonic(), 0.03 if quick else 0.06, usable_cores()
    dtypes = DTYPES[:2] if quick else DTYPES
    on_progress("CPU: dtypes, matrix products, threads, attention")
    probes = ["devices", *_probes("cpu", dtypes, quick), f"threads cpu {cores}"]
    found = run_probes(probes, seconds=seconds)
    listed = found["devices"].result or {"torch": "?", "devices": []}
    cpu = _device(
        "cpu", core.cpu_name(), memory(), 1, dtypes, found, lambda kind, how: _retry_with_isa(kind, how, quick)
    )
    if not quick and ISA_VARIABLE in os.environ:
        cpu = _without_setting(cpu)
    devices = [cpu, *_accelerators(listed["devices"], dtypes, quick, on_progress)]
    speeds = found[f"threads cpu {cores}"].result or {}
    on_progress("compiler")
    compiler = find_compiler(quick)
    disk = ranks = None
    if not quick:
        on_progress("disk")
        disk = disk_speed(folder or Path.cwd())
        on_progress("two processes")
        ranks = join_two_processes()
    machine = Machine(
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        torch=str(listed["torch"]),
        cores=cores,
        devices=tuple(devices),
        speeds=tuple(Speed(int(count), result["small"], result["large"]) for count, result in speeds.items()),
        compiler=compiler,
        disk=disk,
        ranks=ranks,
        seconds=round(time.monotonic() - began, 2),
        load=round(load, 2),
    )
    core.write_cache("machine", machine.to_json())
    cached = {
        probe: {"result": result.result, "why": result.why, "crashed": result.crashed}
        for probe, result in found.items()
    }
    core.write_cache("probes", core.read_cache().get("probes", {}) | cached)
    return machine


def _probes(device: str, dtypes: Sequence[str], quick: bool) -> list[str]:
    """Return the probes of a device, the riskiest dtypes last, so that little is lost if one crashes the child."""
    order = sorted(dtypes, key=("float32", "float64", "float16", "bfloat16").index)
    blocks = [kind for kind in order if kind == "bfloat16" or (kind == "float16" and device != "cpu")]
    probes = [f"{what} {device} {kind}" for kind in order for what in ("works", "peak")]
    probes += [f"block {device} {kind}" for kind in blocks] + [f"copy {device}"]
    if device != "cpu":
        probes.append(f"copy {device} host")
    kernels = [name for name in KERNELS if device != "cpu" or name not in ("efficient", "cudnn")]
    return probes + ([] if quick else [f"attention {device} {name}" for name in kernels])


def _device(
    name: str,
    what: str,
    size: int,
    count: int,
    names: Sequence[str],
    found: dict[str, ProbeResult],
    rescue: Callable[[str, ProbeResult], Dtype],
) -> Device:
    """Build a device from the results of its probes."""
    dtypes = []
    for kind in names:
        result = found[f"works {name} {kind}"]
        if result.result is None or not core.is_accurate(result.result):
            dtypes.append(rescue(kind, result))
            continue
        peak = found[f"peak {name} {kind}"].result or {"gflops": 0.0}
        block = core.speedup(found.get(f"block {name} {kind}", ProbeResult()))
        dtypes.append(Dtype(kind, True, gflops=peak["gflops"], block=block))
    kernels = [
        Kernel(probe.split()[2], probed.result is not None, probed.why)
        for probe, probed in found.items()
        if probe.startswith(f"attention {name} ")
    ]
    copied, sent = (found.get(probe, ProbeResult()).result or {} for probe in (f"copy {name}", f"copy {name} host"))
    return Device(
        name, what, size, count, tuple(dtypes), tuple(kernels), copied.get("gbytes", 0.0), sent.get("gbytes", 0.0)
    )


def _retry_with_isa(kind: str, failed: ProbeResult, quick: bool) -> Dtype:
    """Retry a dtype that fails on this CPU under other instruction sets."""
    reason = failed.why or f"wrong results (off by {(failed.result or {}).get('error', 0):.1g})"
    if failed.crashed:
        for isa in ISA_FALLBACKS:
            probes = [f"works cpu {kind}"] if quick else [f"works cpu {kind}", f"peak cpu {kind}"]
            results = run_probes(probes, {ISA_VARIABLE: isa}, seconds=0.03)
            values = results[probes[0]].result
            if values is not None and core.is_accurate(values):
                peak = results[probes[-1]].result or {}
                return Dtype(
                    kind,
                    False,
                    f"crashes the process ({reason})",
                    f"{ISA_VARIABLE}={isa}",
                    gflops=peak.get("gflops", 0.0),
                )
        reason = f"crashes the process ({reason})"
    return Dtype(kind, False, reason)


def _without_setting(cpu: Device) -> Device:
    """If the setting is already active, note whether bfloat16 would work without it."""
    bare = run_probes(["works cpu bfloat16"], {ISA_VARIABLE: None})["works cpu bfloat16"]
    setting = f"{ISA_VARIABLE}={os.environ[ISA_VARIABLE]}"
    return replace(
        cpu,
        dtypes=tuple(
            replace(kind, setting=setting, why=f"crashes the process ({bare.why})")
            if kind.name == "bfloat16" and kind.works and bare.crashed
            else kind
            for kind in cpu.dtypes
        ),
    )


def _accelerators(
    listed: Sequence[dict[str, Any]], kinds: Sequence[str], quick: bool, on_progress: Callable[[str], None]
) -> list[Device]:
    """Return one device per kind of accelerator; CUDA devices are measured."""
    devices: list[Device] = []
    for device in listed:
        alike = [same for same in listed if same["what"] == device["what"]]
        if device is not alike[0]:
            continue
        if not device["name"].startswith("cuda"):
            devices.append(Device(device["name"], device["what"], device["memory"], len(alike)))
            continue
        on_progress(device["what"])
        found = run_probes(_probes(device["name"], kinds, quick), seconds=0.1 if quick else 0.3, timeout=120)
        description = device["name"], device["what"], device["memory"], len(alike)
        devices.append(
            _device(*description, kinds, found, lambda kind, how: Dtype(kind, False, how.why or "wrong results"))
        )
    return devices


def _gpu_names() -> list[str]:
    """Return the names of the GPUs, without duplicates."""
    import torch

    if not torch.cuda.is_available():
        return []
    return list(dict.fromkeys(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())))
