"""Every attention mechanism beside dense softmax attention: time and peak memory by length, forward and backward.

    python benchmarks/variants.py                        N = 256 ... 16,384 on a CPU, float32, one thread
                                                         -> results/variants/speed-cpu.json
    python benchmarks/variants.py --device cuda          N = 256 ... 65,536 on a GPU, bfloat16 -> speed-cuda.json
    python benchmarks/variants.py --only linear,nystrom  these alone; what was measured before of others is kept
    python benchmarks/variants.py --missing              those that the record lacks
    python benchmarks/variants.py --report               what the record says; nothing is measured
    python benchmarks/variants.py --quick                small, nothing written

The mechanisms are those of the table `MECHANISMS`, with their default settings, from q, k, v to mixed values; mixers
(`MIXERS`) from tokens to tokens, with their own projections, at the same width. Each has its own process, and a few of
them take turns with dense attention (the kernel behind F.scaled_dot_product_attention), at equal heads. A turn is the
best of some calls. Times are medians over the rounds: on a CPU the processor time of one thread, which other programs
on the machine disturb less than the clock on the wall. Peak memory is what a call adds to what the process had before
it: resident memory on a CPU, allocated memory on a GPU.

A cell that was not measured says why: refused (by the mechanism), out of memory, or more than `--limit` seconds a call;
longer inputs are then left out. The exponent is fitted over the three largest lengths and stands beside the claimed
cost: a mechanism that claims N and measures N² is a defect.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import harness

from regard.attention import MECHANISMS, MIXERS
from regard.core.spec import resolve
from regard.cost.measurements import (
    DENSE,
    MODES,
    claimed_exponent,
    find_crossover,
    fit_exponent,
    measurement_folder,
    total_times,
)

GROUP = 6  # contenders that take turns with dense attention
CALL_SECONDS = 0.1  # of one turn, if a call is shorter
TOLERANCE = 0.35  # of the exponent, before it counts as a defect


# -- one contender -----------------------------------------------------------------------------------------------------


def child(name: str, args: argparse.Namespace) -> None:
    import torch

    from regard.core.errors import RegardError, is_out_of_memory

    if args.device == "cpu":
        _limit_memory(args.memory)

    def turn(mode: str, length: int) -> dict[str, Any]:
        try:
            return measure(name, mode, length, args)
        except RegardError as error:
            return {"failed": f"refused: {error}"}
        except (RuntimeError, MemoryError, torch.OutOfMemoryError) as error:
            if is_out_of_memory(error) or "memory" in str(error):
                return {"failed": "out of memory"}
            return {"failed": f"error: {type(error).__name__}: {str(error).splitlines()[0][:200]}"}

    harness.serve_requests(turn)


def measure(name: str, mode: str, length: int, args: argparse.Namespace) -> dict[str, Any]:
    """Return seconds of forward and backward and the bytes that a call adds."""
    import torch

    torch.manual_seed(0)
    call, inputs = contender(name, mode, length, args)

    now = time.process_time if args.device == "cpu" else time.perf_counter

    def run() -> tuple[float, float]:
        wait(args.device)
        began = now()
        out = call()
        wait(args.device)
        half = now()
        torch.autograd.backward(out, torch.ones_like(out))
        wait(args.device)
        ended = now()
        for x in inputs:
            x.grad = None
        return half - began, ended - half

    first = sum(run())
    with PeakMemory(args.device) as peak:
        times = [run()]
    calls = max(0, min(20, int(CALL_SECONDS / max(sum(times[0]), 1e-6)))) if first < args.limit else 0
    times += [run() for _ in range(calls)]
    forward, backward = min(times, key=sum)
    return {"forward": forward, "backward": backward, "memory": peak.bytes}


def contender(name: str, mode: str, length: int, args: argparse.Namespace) -> tuple[Any, list[Any]]:
    """Return a function without arguments that attends, and the tensors that get gradients."""
    import torch

    from regard.attention.mask import CausalMask
    from regard.attention.mixers import build_mixer
    from regard.core.layer_state import PassState

    dtype, width = getattr(torch, args.dtype), args.heads * args.head_dim
    bits = length.bit_length() - 1
    grid = (1 << bits // 2, length >> bits // 2)
    causal = mode == "causal"
    mixer = build_mixer(name, width=width, heads=args.heads, length=length, causal=causal, grid=grid, prefix=0)
    mixer = mixer.to(args.device, dtype).train()
    mask = CausalMask() if causal else None
    if name in MECHANISMS:
        shape = args.batch, args.heads, length, args.head_dim
        q, k, v = (torch.randn(shape, device=args.device, dtype=dtype, requires_grad=True) for _ in range(3))
        attend: Any = mixer.attend
        return lambda: attend(q, k, v, mask, layer_state=PassState().layer(0)), [q, k, v, *attend.parameters()]
    x = torch.randn(args.batch, length, width, device=args.device, dtype=dtype, requires_grad=True)
    return lambda: mixer(x, None, mask, layer_state=PassState().layer(0)), [x, *mixer.parameters()]


class PeakMemory:
    """The bytes that a block added at its peak."""

    def __init__(self, device: str) -> None:
        self.device, self.bytes = device, 0

    def __enter__(self) -> PeakMemory:
        if self.device == "cuda":
            import torch

            torch.cuda.reset_peak_memory_stats()
            self.before = torch.cuda.memory_allocated()
        elif sys.platform == "linux":
            import ctypes

            ctypes.CDLL(None).malloc_trim(0)
            Path("/proc/self/clear_refs").write_text("5")  # resets the peak of resident memory
            self.before = _status("VmRSS")
        return self

    def __exit__(self, *_: object) -> None:
        if self.device == "cuda":
            import torch

            self.bytes = torch.cuda.max_memory_allocated() - self.before
        elif sys.platform == "linux":
            self.bytes = max(0, _status("VmHWM") - self.before)


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) * 1024


def _limit_memory(gib: float) -> None:
    """Let allocations beyond so many GiB fail, instead of the machine."""
    import resource

    limit = _status("VmSize") + int(gib * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def wait(device: str) -> None:
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


# -- all of them -------------------------------------------------------------------------------------------------------


def names() -> list[str]:
    """Return the mechanisms and mixers that are measured, dense attention first."""
    return [*MECHANISMS, *(name for name in MIXERS if name != "multihead")]


def modes(name: str) -> list[str]:
    """Return the modes that a contender offers by its traits."""
    traits: Any = getattr(resolve(MECHANISMS if name in MECHANISMS else MIXERS, name, "attention"), "traits", None)
    if traits is None:
        return list(MODES)
    return [
        mode for mode in MODES if mode != "causal" or (traits.masks & {"any", "causal"} and traits.causality != "none")
    ]


def compare(group: list[str], args: argparse.Namespace) -> dict[str, Any]:
    """Measure some contenders, taking turns with dense attention; return their cells."""
    options = [f"--{key.replace('_', '-')}={getattr(args, key)}" for key in _OPTIONS]
    every = list(dict.fromkeys([DENSE, *group]))
    children = {name: harness.Child(name, str(Path(__file__)), options, threads=1) for name in every}
    cells: dict[str, Any] = {name: {mode: {} for mode in modes(name)} for name in every}
    for mode in MODES:
        going = [name for name in every if mode in cells[name]]
        for length in args.lengths:
            turns: dict[str, list[Any]] = {name: [] for name in going}
            for _ in range(args.rounds):
                for name in going:
                    if not turns[name] or _is_repeated(turns[name][-1], args):
                        turns[name].append(children[name].ask(mode=mode, length=length))
            for name in [*going]:
                cell = cells[name][mode][str(length)] = summary(turns[name])
                slow = "failed" not in cell and cell["forward"] + cell["backward"] > args.limit
                if slow or "failed" in cell:
                    going.remove(name)
                    why = cell.get("failed", f"above the limit of {args.limit:g} s")
                    for longer in args.lengths[args.lengths.index(length) + 1 :]:
                        cells[name][mode][str(longer)] = {"failed": f"left out ({why} at {length:,})"}
    for process in children.values():
        process.close()
    return cells


def _is_repeated(last: dict[str, Any], args: argparse.Namespace) -> bool:
    return "failed" not in last and last["forward"] + last["backward"] < args.limit


def summary(turns: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the medians of several turns, or why there are none."""
    if failed := [turn for turn in turns if "failed" in turn]:
        return failed[0]
    found: dict[str, Any] = {key: harness.median_and_range(t[key] for t in turns)["median"] for key in turns[0]}
    return found | {"rounds": len(turns)}


_OPTIONS = ("device", "dtype", "batch", "heads", "head_dim", "memory", "limit")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--dtype", help="default: float32 on a CPU, bfloat16 on a GPU")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--heads", type=int, help="default: 4 on a CPU, 16 on a GPU")
    parser.add_argument("--head-dim", type=int, help="default: 32 on a CPU, 64 on a GPU")
    parser.add_argument("--longest", type=int, help="default: 16,384 on a CPU, 65,536 on a GPU")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=10.0, help="seconds of a call beyond which longer inputs wait")
    parser.add_argument("--memory", type=float, default=8.0, help="GiB that a process may add (CPU)")
    parser.add_argument("--only", help="names, separated by commas")
    parser.add_argument("--missing", action="store_true", help="only those that the record lacks")
    parser.add_argument("--report", action="store_true", help="print the record; nothing is measured")
    parser.add_argument("--quick", action="store_true", help="small, and nothing is written")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    on_gpu = args.device == "cuda"
    args.dtype = args.dtype or ("bfloat16" if on_gpu else "float32")
    args.heads, args.head_dim = args.heads or (16 if on_gpu else 4), args.head_dim or (64 if on_gpu else 32)
    if args.child:
        child(args.child, args)
        return
    longest = 64 if args.quick else args.longest or (65_536 if on_gpu else 16_384)
    args.lengths = [n for n in (1 << k for k in range(4 if args.quick else 8, 20)) if n <= longest]
    args.rounds = 1 if args.quick else args.rounds
    file = measurement_folder() / f"speed-{args.device}.json"
    record: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.is_file() and not args.quick else {"cases": {}}
    wanted = args.only.split(",") if args.only else [n for n in names() if not (args.missing and n in record["cases"])]
    if not args.report:
        settings = {key: getattr(args, key) for key in ("batch", "heads", "head_dim", "dtype", "lengths")} | {
            "threads": 1
        }
        others = [name for name in wanted if name != DENSE] or [DENSE]
        for start in range(0, len(others), GROUP):
            group, machine, steal = others[start : start + GROUP], harness.machine(args.device), harness.Steal()
            cells = compare(group, args)
            for name, found in cells.items():
                if name == DENSE and DENSE in record["cases"] and start:
                    continue  # of the first group; the others' serve as a check of the machine
                when = {key: machine[key] for key in ("date", "load_at_start") if key in machine} | {
                    "steal": steal.share()
                }
                record["cases"][name] = found | {"measured": when}
            record = machine | settings | {"cases": record["cases"]}
            record["cases"] = {name: record["cases"][name] for name in names() if name in record["cases"]}
            if not args.quick:
                file.parent.mkdir(parents=True, exist_ok=True)
                harness.write(f"variants/{file.name}", record)
            print(report({**record, "cases": {name: record["cases"][name] for name in cells}}), flush=True)
    elif record["cases"]:
        print(report(record))


def report(record: dict[str, Any]) -> str:
    """Return a table: milliseconds by length, the exponent beside the claimed cost, the crossover."""
    lengths = [int(n) for n in record["lengths"]]
    rows: list[list[str]] = [
        ["ms, forward + backward", *(f"{n:,}" for n in lengths), "exponent", "claimed", "crossover"]
    ]
    for mode in MODES:
        dense = total_times(record, DENSE, mode)
        for name, cells in record["cases"].items():
            if mode not in cells:
                continue
            times = total_times(record, name, mode)
            shown = [f"{1000 * times[n]:.3g}" if n in times else _why(cells[mode].get(str(n), {})) for n in lengths]
            traits: Any = resolve(MECHANISMS if name in MECHANISMS else MIXERS, name, "attention")
            cost = getattr(getattr(traits, "traits", None), "cost", "?")
            power, claimed = fit_exponent(times), claimed_exponent(cost)
            wrong = power is not None and claimed is not None and power > claimed + TOLERANCE
            crossover = find_crossover(times, dense) if name != DENSE else None
            rows.append([
                f"{name}, {mode}", *shown, f"{power}{' !' if wrong else ''}", f"{cost}",
                "" if name == DENSE else f"{crossover:,}" if crossover else "none",
            ])  # fmt: skip
    return harness.table(rows)


def _why(cell: dict[str, Any]) -> str:
    failed = cell.get("failed", "")
    return "memory" if "out of memory" in failed else "refused" if "refused" in failed else "-" if failed else ""


if __name__ == "__main__":
    main()
