"""Hardware probes run in a child process, because they may crash it: dtypes, peak speeds, kernels.

    python -P probe.py SECONDS "works cpu bfloat16" "peak cpu float32" ...

Each probe prints one line when it begins and one, with its result as JSON, when it is done: so a crash shows which
probe caused it. Nothing of Regard is imported, so that this file can be run by its path.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

BEGIN, DONE, FAILED = "regard-begin ", "regard-done ", "regard-failed "


def works(device: str, dtype: str) -> dict[str, Any]:
    """Run the operations of a model in a dtype, forward and backward, and return the error against float64."""
    import torch
    import torch.nn.functional as F

    kind, worst = getattr(torch, dtype), 0.0
    torch.manual_seed(0)
    for n, k, m in ((1, 256, 512), (48, 192, 576), (256, 256, 256)):  # a vector, something odd, a square
        a, b = torch.randn(n, k, dtype=torch.float64), torch.randn(k, m, dtype=torch.float64) * k**-0.5
        low_a, low_b = a.to(device, kind), b.to(device, kind)
        expected = low_a.cpu().double() @ low_b.cpu().double()
        worst = max(worst, float((low_a @ low_b).cpu().double().sub(expected).abs().max() / expected.abs().max()))
    x = torch.randn(2, 24, 64).to(device, kind).requires_grad_()
    w = torch.randn(192, 64).mul(0.1).to(device, kind).requires_grad_()
    q, k, v = F.linear(F.layer_norm(x, (64,)), w).unflatten(-1, (3, 4, 16)).permute(2, 0, 3, 1, 4)
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    F.gelu(out).float().logsumexp(-1).sum().backward()
    fine = all(bool(t.isfinite().all()) for t in (out, x.grad, w.grad))  # type: ignore[union-attr]
    return {"error": worst, "finite": fine, "epsilon": torch.finfo(kind).eps}


def peak(device: str, dtype: str) -> dict[str, Any]:
    """Return the fastest matrix product in a dtype: GFLOP/s and matrix size."""
    import torch

    kind, size, best = getattr(torch, dtype), 256, {"gflops": 0.0, "size": 0}
    max_size, began = 2048 if device == "cpu" else 8192, time.perf_counter()
    while True:
        a, b = (torch.randn(size, size, device=device).to(kind) for _ in range(2))
        out = torch.empty_like(a)
        seconds = best_time(lambda: torch.mm(a, b, out=out), device)  # noqa: B023
        if (speed := 2 * size**3 / seconds / 1e9) > best["gflops"]:
            best = {"gflops": speed, "size": size}
        size *= 2
        if size > max_size or 8 * seconds > 2 * SECONDS or time.perf_counter() - began > 4 * SECONDS:
            return best


def copy(device: str, source: str = "") -> dict[str, Any]:
    """Return the bandwidth of a copy on a device, or to it from the host, in GB/s (bytes read plus bytes written)."""
    import torch

    size = 2**26 if device == "cpu" else 2**30  # larger than the caches
    b = torch.zeros(size, dtype=torch.uint8, device=device)
    a = torch.ones(size, dtype=torch.uint8, pin_memory=True) if source else torch.ones_like(b)
    return {"gbytes": (1 if source else 2) * size / best_time(lambda: b.copy_(a, non_blocking=True), device) / 1e9}


def block(device: str, dtype: str) -> dict[str, Any]:
    """Return the seconds of one Transformer block, forward and backward: in float32, and under autocast in a dtype.

    The two alternate, so that other load on the machine slows both.
    """
    import torch
    import torch.nn.functional as F

    rows, n, c, h = (8, 64, 256, 4) if device == "cpu" else (16, 1024, 1024, 16)
    torch.manual_seed(0)
    shapes = (3 * c, c), (c, c), (4 * c, c), (c, 4 * c)
    qkv, out_proj, up, down = (torch.randn(shape, device=device).mul_(0.03).requires_grad_() for shape in shapes)
    x = torch.randn(rows, n, c, device=device, requires_grad=True)
    kind = getattr(torch, dtype)

    def step(use_autocast: bool) -> None:
        with torch.autocast(torch.device(device).type, dtype=kind, enabled=use_autocast):
            q, k, v = F.linear(F.layer_norm(x, (c,)), qkv).unflatten(-1, (3, h, c // h)).permute(2, 0, 3, 1, 4)
            attended = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
            y = x + F.linear(attended, out_proj)
            y = y + F.linear(F.gelu(F.linear(F.layer_norm(y, (c,)), up)), down)
        y.float().square().mean().backward()

    times = {True: math.inf, False: math.inf}
    for _ in range(2 if SECONDS > 0.05 else 1):
        for use_autocast in times:
            times[use_autocast] = min(times[use_autocast], best_time(lambda: step(use_autocast), device))  # noqa: B023
    return {"seconds": times[True], "float32": times[False], "tokens": rows * n}


def threads(_: str = "cpu", max_count: str = "") -> dict[str, Any]:
    """Return GFLOP/s of small and large products for several numbers of threads."""
    import torch

    max_threads = int(max_count) if max_count else torch.get_num_threads()
    counts = sorted({1, 2, max_threads // 4, max_threads // 2, max_threads} & set(range(1, max_threads + 1)))
    small = torch.randn(16, 512), torch.randn(2048, 512)
    large = torch.randn(1024, 1024), torch.randn(1024, 1024)
    found: dict[str, Any] = {}
    before = torch.get_num_threads()
    for count in counts:
        torch.set_num_threads(count)
        # Synchronisation dominates small products and varies from run to run, so take the upper quartile.
        times = _times(lambda: torch.nn.functional.linear(*small), 24, 4)
        small_time = sorted(times)[len(times) * 3 // 4]
        large_time = _best_wall_time(lambda: large[0] @ large[1])
        found[str(count)] = {"small": 2 * 16 * 512 * 2048 / small_time / 1e9, "large": 2 * 1024**3 / large_time / 1e9}
    torch.set_num_threads(before)
    return found


def attention(device: str, backend: str) -> dict[str, Any]:
    """Check an attention backend, forward and backward, and return the dtype it was tried in."""
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    kind = torch.float32 if device == "cpu" else torch.float16
    q, k, v = (torch.randn(2, 4, 128, 64, device=device, dtype=kind, requires_grad=True) for _ in range(3))
    hidden = torch.ones(128, 128, device=device, dtype=torch.bool).triu(1)
    if backend == "flex":
        from torch.nn.attention.flex_attention import flex_attention

        out = flex_attention(q.detach(), k.detach(), v.detach())  # eager: compiling takes too long
        pairs = [(out, _reference_attention(q, k, v, None))]
    else:
        names = {"flash": "FLASH_ATTENTION", "efficient": "EFFICIENT_ATTENTION", "cudnn": "CUDNN_ATTENTION"}
        with sdpa_kernel([getattr(SDPBackend, names.get(backend, "MATH"))]):
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            found = torch.autograd.grad(out.sum(), (q, k, v))
        expected = _reference_attention(q, k, v, hidden)
        pairs = [(out, expected), *zip(found, torch.autograd.grad(expected.sum(), (q, k, v)), strict=True)]
    for actual, reference in pairs:
        error = (actual.float() - reference.float()).abs().max().item()
        if not error < 0.05:  # also for NaN
            share = os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")
            hint = f" (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={share} is known to cause this: unset it)" if share else ""
            raise RuntimeError(f"wrong results, off by {error:.1g}{hint}")
    return {"dtype": str(kind).removeprefix("torch."), "compiled": False}


def _reference_attention(q: Any, k: Any, v: Any, hidden: Any) -> Any:
    """Attention from its formula, in float32."""
    scores = q.float() @ k.float().mT / q.shape[-1] ** 0.5
    if hidden is not None:
        scores = scores.masked_fill(hidden, float("-inf"))
    return scores.softmax(-1) @ v.float()


def devices(_: str = "", __: str = "") -> dict[str, Any]:
    """Return torch's version and threads, and the accelerators it sees with name, memory and capability."""
    import torch

    found: dict[str, Any] = {"torch": str(torch.__version__), "threads": torch.get_num_threads(), "devices": []}
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            supports_bfloat16 = torch.cuda.is_bf16_supported(including_emulation=False)
            device = {
                "name": f"cuda:{index}",
                "what": properties.name,
                "memory": properties.total_memory,
                "bfloat16": supports_bfloat16,
            }
            found["devices"].append(device | {"capability": f"{properties.major}.{properties.minor}"})
    for kind in ("mps", "xpu"):
        backend_module = getattr(torch, kind, None) if kind == "xpu" else getattr(torch.backends, kind, None)
        if backend_module is not None and backend_module.is_available():
            found["devices"].append({"name": kind, "what": kind, "memory": 0, "bfloat16": False, "capability": ""})
    return found


def rank(number: str, port: str) -> dict[str, Any]:
    """Join a process group of two on this machine, and all-reduce a tensor."""
    from datetime import timedelta

    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    began = time.perf_counter()
    store = dist.TCPStore("127.0.0.1", int(port), 2, number == "0", timeout=timedelta(seconds=20))
    dist.init_process_group("gloo", store=store, rank=int(number), world_size=2, timeout=timedelta(seconds=20))
    joined = time.perf_counter() - began
    x = torch.full((2**20,), float(number) + 1.0)
    dist.all_reduce(x)
    right = bool((x == 3.0).all())
    x = torch.zeros(2**22)
    seconds = min(_timed(lambda: dist.all_reduce(x), 1) for _ in range(3))
    dist.destroy_process_group()
    return {"joined": joined, "right": right, "gbytes": x.numel() * 4 / seconds / 1e9}


# -- clocks ------------------------------------------------------------------------------------------------------------

SECONDS = 0.2  # time for each measurement, approximately


def best_time(work: Callable[[], object], device: str) -> float:
    """Return the seconds of the fastest of many runs: by CUDA events on a GPU, with all threads or one on a CPU.

    One thread is timed by its CPU time, so that other load on the machine does not count.
    """
    if device.startswith("cuda"):
        return _best_cuda_time(work)
    if device != "cpu":
        return _best_wall_time(work)
    import torch

    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    found = [_best_wall_time(work, time.process_time)]
    torch.set_num_threads(num_threads)
    return min(found if num_threads == 1 else [*found, _best_wall_time(work)])


def _best_wall_time(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    warm = _timed(work, 1)
    first = _timed(work, 1, clock)
    if warm > 4 * SECONDS:  # the machine is busy: one run is enough
        return first
    return min(first, *_times(work, 1000, max(1, min(64, int(0.002 / max(first, 1e-9)))), clock))  # at least 2 ms each


def _times(
    work: Callable[[], object], max_series: int, repeats: int, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """Return the mean times of up to `max_series` series of `repeats` runs, as many as fit into SECONDS."""
    found, began = [_timed(work, repeats, clock)], time.perf_counter()
    while len(found) < max_series and time.perf_counter() - began < SECONDS:
        found.append(_timed(work, repeats, clock))
    return found


def _timed(work: Callable[[], object], repeats: int, clock: Callable[[], float] = time.perf_counter) -> float:
    began = clock()
    for _ in range(repeats):
        work()
    return (clock() - began) / repeats


def _best_cuda_time(work: Callable[[], object]) -> float:
    import torch

    for _ in range(3):
        work()
    best, began, repeats = math.inf, time.perf_counter(), 10
    while time.perf_counter() - began < max(SECONDS, 0.1):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(repeats):
            work()
        end.record()
        end.synchronize()
        best = min(best, start.elapsed_time(end) / 1e3 / repeats)
    return best


# -- the child ---------------------------------------------------------------------------------------------------------

PROBES: dict[str, Callable[..., dict[str, Any]]] = {
    "works": works,
    "peak": peak,
    "copy": copy,
    "block": block,
    "threads": threads,
    "attention": attention,
    "devices": devices,
    "rank": rank,
}


def main(args: list[str]) -> int:
    """Run the probes one after the other and print their results."""
    global SECONDS
    SECONDS = float(args[0])
    for spec in args[1:]:
        _write_line(BEGIN + spec)
        name, *rest = spec.split()
        try:
            found = PROBES[name](*rest)
        except Exception as error:
            reason = " ".join(str(error).split())[:300] or type(error).__name__
            _write_line(FAILED + json.dumps({"probe": spec, "why": reason}))
        else:
            _write_line(DONE + json.dumps({"probe": spec, "result": found}))
    return 0


def _write_line(line: str) -> None:
    os.write(1, (line + "\n").encode())  # unbuffered: a crash may follow


if __name__ == "__main__":
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # no core dumps
    sys.exit(main(sys.argv[1:]))
