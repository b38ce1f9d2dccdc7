"""Every attention mechanism beside dense softmax attention: time and peak memory by length, forward and backward.

    python benchmarks/variants.py                        N = 256 ... 16,384 on a CPU, float32, one thread
                                                         -> results/variants/speed-cpu.json
    python benchmarks/variants.py --device cuda          N = 256 ... 65,536 on a GPU, bfloat16 -> speed-cuda.json
    python benchmarks/variants.py --device cuda --minutes 6    stop then, and go on with the same command
    python benchmarks/variants.py --only linear,nystrom  these alone; what was measured before of others is kept
    python benchmarks/variants.py --missing              what the record lacks (on a GPU always)
    python benchmarks/variants.py --report               what the record says; nothing is measured
    python benchmarks/variants.py --count                operations, bytes and peak memory counted -> growth.json
    python benchmarks/variants.py --quick                small, nothing written

The mechanisms are those of the table `MECHANISMS`, with their default settings, from q, k, v to mixed values; mixers
(`MIXERS`) from tokens to tokens, with their own projections, at the same width. A turn is the best of some calls. Times
are medians over the rounds. Peak memory is what a call adds to what the process had before it: resident memory on a
CPU, allocated memory on a GPU.

On a CPU each has its own process, and a few of them take turns with dense attention (the kernel behind
F.scaled_dot_product_attention), at equal heads; times are the processor time of one thread, which other programs on the
machine disturb less than the clock on the wall.

On a GPU one process measures one after another, while nothing else runs, in this order: dense attention; what needs no
compiler, up to 8,192 tokens; what does (FlexAttention), whose kernels several processes compile before, side by side,
for a third of the time at most; longer inputs. What failed the time before comes last.

Every cell is written when it is there, so whatever ends the run loses the cell that was measured. A cell that hangs,
raises or takes its process along loses itself and the longer ones of its mechanism; they are tried again by the next
run, and a process that is lost is replaced by one that waits already.

A cell that was not measured says why: refused (by the mechanism), out of memory, or more than `--limit` seconds a call,
measured or foreseen from the two lengths before; longer inputs are then left out. The exponent is fitted over the three
largest lengths and stands beside the claimed cost: a mechanism that claims N and measures N² is a defect.

Counts (`--count`) need no quiet machine: the operations of products, the bytes that all operations read and write, and
the largest number of bytes alive at a time, of one forward and backward pass on a CPU. tests/contracts/test_growth.py
compares their growth with the claimed costs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable
from itertools import accumulate
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
    total_times,
)

GROUP = 6  # contenders that take turns with dense attention
CALL_SECONDS = {"cpu": 0.1, "cuda": 0.04}  # of one turn, if a call is shorter
TOLERANCE = 0.35  # of the exponent, before it counts as a defect
SHORT = 8192  # tokens: on a GPU, lengths up to it are measured of all mechanisms before longer ones
COUNTED = [1024, 4096]  # tokens at which operations are counted
COUNTS = ("operations", "bytes", "peak")
PATIENCE = 60.0  # seconds of a cell, after which it is given up
COMPILERS = 12  # processes that compile at a time, at most
HELD = 4 * 2**30  # bytes on a GPU that a process may keep in its caches
IMPORTANT = (DENSE, "linear", "performer", "nystrom", "reformer", "delta", "rfa", "longformer", "bigbird", "window")


# -- one contender -----------------------------------------------------------------------------------------------------


def child(args: argparse.Namespace) -> None:
    """Answer requests: a cell (of any contender), the machine, or nothing but a first call on the device."""
    import torch

    from regard.core.errors import RegardError, is_out_of_memory

    if args.device == "cpu":
        _limit_memory(args.memory)

    def turn(name: str = "", mode: str = "", length: int = 0, rounds: int = 1) -> dict[str, Any]:
        if not name:  # load PyTorch's kernels
            (torch.ones(64, 64, device=args.device) @ torch.ones(64, 64, device=args.device)).sum().item()
            return harness.machine(args.device)
        try:
            found = measure(name, mode, length, args, rounds)
        except RegardError as error:
            found = {"failed": f"refused: {error}"}
        except Exception as error:
            out_of_memory = is_out_of_memory(error) or (isinstance(error, RuntimeError) and "memory" in str(error))
            said = (str(error).splitlines() or [""])[0][:200]
            found = {"failed": "out of memory" if out_of_memory else f"error: {type(error).__name__}: {said}"}
        if args.device == "cuda":
            torch.cuda.empty_cache()
            found["held"] = torch.cuda.memory_allocated()
        return found

    harness.serve_requests(turn)


def measure(name: str, mode: str, length: int, args: argparse.Namespace, rounds: int = 1) -> dict[str, Any]:
    """Return seconds of forward and backward, medians over the rounds, and the bytes that a call adds.

    With no rounds, call it once and return nothing.
    """
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
    if not rounds:  # only to compile
        return {"seconds": first}
    with PeakMemory(args.device) as peak:
        times = [run()]
    once = min(first, sum(times[0]))
    calls = max(0, min(20, int(CALL_SECONDS[args.device] / max(once, 1e-6)))) if once < args.limit else 0
    turns = [min([run() for _ in range(max(1, calls))], key=sum) for _ in range(rounds - 1)]
    turns.append(min([*times, *(run() for _ in range(calls))], key=sum))
    return summary([{"forward": f, "backward": b, "memory": peak.bytes} for f, b in turns])


def contender(name: str, mode: str, length: int, args: argparse.Namespace) -> tuple[Any, list[Any]]:
    """Return a function without arguments that attends, and the tensors that get gradients."""
    import torch

    from regard.attention.mask import CausalMask
    from regard.attention.mixers import build_mixer
    from regard.core.errors import is_out_of_memory
    from regard.core.layer_state import PassState

    dtype, width = getattr(torch, args.dtype), args.heads * args.head_dim
    bits = length.bit_length() - 1
    grid = (1 << bits // 2, length >> bits // 2)
    causal = mode == "causal"
    place: dict[str, Any] = {"length": length, "causal": causal, "grid": grid, "prefix": 0}
    try:  # on the device at once: the largest parameters are matrices of all pairs of places
        with torch.device(args.device):
            mixer = build_mixer(name, width=width, heads=args.heads, **place)
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise
        mixer = build_mixer(name, width=width, heads=args.heads, **place)  # drawn by a generator of the CPU
    mixer = mixer.to(args.device, dtype).train()
    mask = CausalMask() if causal else None
    if name in MECHANISMS:
        shape = args.batch, args.heads, length, args.head_dim
        q, k, v = (torch.randn(shape, device=args.device, dtype=dtype, requires_grad=True) for _ in range(3))
        attend: Any = mixer.attend
        return lambda: attend(q, k, v, mask, layer_state=PassState().layer(0)), [q, k, v, *attend.parameters()]
    x = torch.randn(args.batch, length, width, device=args.device, dtype=dtype, requires_grad=True)
    return lambda: mixer(x, None, mask, layer_state=PassState().layer(0)), [x, *mixer.parameters()]


def count(name: str, mode: str, length: int, args: argparse.Namespace) -> dict[str, int]:
    """Return the operations and bytes moved of a forward and backward pass, and the bytes that it adds at its peak."""
    import torch

    from regard.cost.meter import Meter
    from regard.cost.op_log import Allocation, KernelRun

    torch.manual_seed(0)
    call, inputs = contender(name, mode, length, args)
    with Meter() as meter:
        meter.leave_out(inputs)
        out = call()
        torch.autograd.backward(out, torch.ones_like(out))
    kernels = [entry.kernel for entry in meter.op_log.entries if isinstance(entry, KernelRun)]
    alive = accumulate(entry.size for entry in meter.op_log.entries if isinstance(entry, Allocation))
    moved = sum(kernel.moved for kernel in kernels)
    return dict(zip(COUNTS, (sum(kernel.operations for kernel in kernels), moved, max(alive)), strict=True))


def count_all(wanted: list[str], args: argparse.Namespace) -> None:
    """Count what claims less than the square of the length, and write the record."""
    settings = {"heads": args.heads, "head_dim": args.head_dim, "lengths": COUNTED}
    record: dict[str, Any] = harness.machine() | settings | {"cases": {}}
    for name in wanted:
        traits: Any = getattr(resolve(MECHANISMS if name in MECHANISMS else MIXERS, name, "attention"), "traits", None)
        if (claimed_exponent(traits.cost) or 2) >= 2:
            continue
        record["cases"][name] = {mode: {str(n): count(name, mode, n, args) for n in COUNTED} for mode in modes(name)}
        for mode, cells in record["cases"][name].items():
            growth = {key: fit_exponent({int(n): cell[key] for n, cell in cells.items()}, 2) for key in COUNTS}
            print(f"{name}, {mode}: claimed {traits.cost}; exponents {growth}", flush=True)
    if not args.only:
        harness.write("variants/growth.json", record)


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


class CPURun:
    """Contenders a few at a time, taking turns with dense attention; the record is written after each length."""

    def __init__(self, record: dict[str, Any], wanted: list[str], args: argparse.Namespace) -> None:
        self.record, self.args, self.ends = record, args, time.monotonic() + 60 * args.minutes
        self.wanted = [name for name in wanted if name != DENSE] or [DENSE]

    def run(self) -> None:
        for start in range(0, len(self.wanted), GROUP):
            if time.monotonic() < self.ends:
                self.compare(self.wanted[start : start + GROUP], keep_dense=bool(start))

    def compare(self, group: list[str], keep_dense: bool) -> None:
        """Measure some contenders; dense attention is that of the first group, later it checks the machine."""
        args, cases = self.args, self.record["cases"]
        self.record |= harness.machine() | _settings(self.record, args) | {"merged": True}
        steal, every = harness.Steal(), list(dict.fromkeys([DENSE, *group]))
        children = {name: harness.Child(name, sys.argv[0], _child_options(args), threads=1) for name in every}
        cells: dict[str, Any] = {name: {mode: {} for mode in modes(name)} for name in every}
        kept = [name for name in every if not (name == DENSE and keep_dense and DENSE in cases)]
        for mode in MODES:
            going = [name for name in every if mode in cells[name]]
            for length in args.lengths:
                if time.monotonic() > self.ends:
                    break
                turns: dict[str, list[Any]] = {name: [] for name in going}
                for _ in range(args.rounds):
                    for name in going:
                        if not turns[name] or _is_repeated(turns[name][-1], args):
                            answer = children[name].try_ask(args.patience, name=name, mode=mode, length=length)
                            turns[name].append(answer)
                for name in [*going]:
                    cell = cells[name][mode][str(length)] = summary(turns[name])
                    slow = "failed" not in cell and cell["forward"] + cell["backward"] > args.limit
                    if slow or "failed" in cell:
                        going.remove(name)
                        why = cell.get("failed", f"above the limit of {args.limit:g} s")
                        for longer in args.lengths[args.lengths.index(length) + 1 :]:
                            cells[name][mode][str(longer)] = {"failed": f"left out ({why} at {length:,})"}
                for name in kept:
                    done = {other: cases[name][other] for other in cells[name] if other in cases.get(name, {})}
                    cases[name] = done | {other: found for other, found in cells[name].items() if found}
                self.write(kept, steal)
        for process in children.values():
            process.close()
        print(report({**self.record, "cases": {name: cells[name] for name in every}}), flush=True)

    def write(self, names: list[str], steal: harness.Steal) -> None:
        for name in names:
            self.record["cases"][name].pop("measured", None)  # set when written
        if not self.args.quick:
            write(self.record, "cpu")
            for name in names:
                self.record["cases"][name]["measured"]["steal"] = steal.share()


def _is_repeated(last: dict[str, Any], args: argparse.Namespace) -> bool:
    return "failed" not in last and last["forward"] + last["backward"] < args.limit


def summary(turns: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the medians of several turns, or why there are none."""
    if failed := [turn for turn in turns if "failed" in turn]:
        return failed[0]
    keys = [key for key in turns[0] if key != "rounds"]
    found: dict[str, Any] = {key: harness.median_and_range(t[key] for t in turns)["median"] for key in keys}
    return found | {"rounds": len(turns)}


# -- on a GPU ----------------------------------------------------------------------------------------------------------


def compiles(name: str) -> bool:
    """Return whether kernels of a contender are compiled for every length."""
    from regard.attention.mechanisms.etc import ETCAttention
    from regard.attention.mixers import build_mixer
    from regard.attention.sparse_pattern import PatternAttention

    mixer = build_mixer(name, width=64, heads=4, length=64, causal=False, grid=(8, 8), prefix=0)
    return any(
        type(part).mix_sparsely is PatternAttention.mix_sparsely
        and not isinstance(part, ETCAttention)
        and not part.pattern.scattered
        for part in mixer.modules()
        if isinstance(part, PatternAttention)
    )


class GPURun:
    """All cells of a GPU that the record lacks, one at a time; each is written when it is there."""

    def __init__(self, record: dict[str, Any], wanted: list[str], args: argparse.Namespace) -> None:
        self.record, self.args, self.ends = record, args, time.monotonic() + 60 * args.minutes
        self.cells: dict[tuple[str, str], dict[str, Any]] = {
            (name, mode): record["cases"].setdefault(name, {}).setdefault(mode, {})
            for name in sorted(wanted, key=self.rank)
            for mode in modes(name)
        }
        self.failed: dict[tuple[str, str], int] = {}  # the length at which a contender failed in this run
        self.started: list[harness.Child] = []
        self.worker, self.spare = self.start(), self.start()

    def rank(self, name: str) -> tuple[bool, int]:
        """Return what to sort contenders by: the most important first, those that failed before last."""
        cells = [cell for mode in modes(name) for cell in self.record["cases"].get(name, {}).get(mode, {}).values()]
        failed = any(str(cell.get("failed", "")).startswith("error") for cell in cells)
        return failed, IMPORTANT.index(name) if name in IMPORTANT else len(IMPORTANT)

    def start(self) -> harness.Child:
        """Start a process that makes its first call on the device."""
        child = harness.Child(f"worker-{len(self.started)}", sys.argv[0], _child_options(self.args), threads=1)
        child.send(PATIENCE + 60)  # a fresh machine reads its libraries from a cold disk
        self.started.append(child)
        return child

    def run(self) -> None:
        try:
            about = self.worker.answer(PATIENCE + 70)
            if "failed" in about:
                raise SystemExit(f"no process on the device: {about['failed']}; its message is above")
            self.record |= about | _settings(self.record, self.args) | {"merged": True}
            self.say(f"{sum(bool(self.missing(key, self.args.lengths)) for key in self.cells)} contenders to measure")
            kernels = {name for name in dict.fromkeys(name for name, _ in self.cells) if compiles(name)}
            plain = [key for key in self.cells if key[0] not in kernels]
            short = [n for n in self.args.lengths if n <= SHORT]
            self.fill([key for key in plain if key[0] == DENSE], self.args.lengths)
            self.fill(plain, short)
            self.fill_compiled([key for key in self.cells if key[0] in kernels])
            self.fill(plain, self.args.lengths)
        finally:
            for child in self.started:
                child.kill()
        left = [f"{name} ({mode})" for (name, mode), cells in self.cells.items() if missing(cells, self.args.lengths)]
        self.say(f"not complete, run it again: {', '.join(left)}" if left else "complete")

    def fill(self, keys: list[tuple[str, str]], lengths: list[int]) -> None:
        """Measure the missing cells of contenders that need no compiler."""
        for key in keys:
            for length in self.missing(key, lengths):
                if self.left() > 0:
                    self.measure(key, length)

    def measure(self, key: tuple[str, str], length: int, worker: harness.Child | None = None) -> None:
        """Fill a cell and write the record; a process that failed or holds much memory is replaced by the spare one."""
        name, mode = key
        cell = self.foresee(key, length)
        if cell is None:
            patience = min(self.args.patience, max(10.0, self.left() + 20))
            asked = worker or self.worker
            asked.send(patience, name=name, mode=mode, length=length, rounds=self.args.rounds)
            cell = asked.answer(patience + harness.MARGIN)
            is_full = cell.pop("held", 0) > HELD
            if worker is None and (is_full or str(cell.get("failed", "")).startswith("error")):
                self.worker.kill()
                self.worker, self.spare = self.spare, self.start()
                self.worker.answer(PATIENCE + 70)  # of its start
        self.cells[key][str(length)] = cell
        if str(cell.get("failed", "")).startswith("error"):
            self.failed[key] = length
            for longer in missing(self.cells[key], (n for n in self.args.lengths if n > length)):
                self.cells[key][str(longer)] = {"failed": f"left out ({cell['failed']} at {length:,})"}
        self.record["cases"][name].pop("measured", None)  # the conditions of its newest cell, set when written
        if not self.args.quick:
            write(self.record, self.args.device)
        said = cell.get("failed") or f"{1000 * cell['forward']:.3g} + {1000 * cell['backward']:.3g} ms"
        self.say(f"{name}, {mode}, {length:,}: {said}")

    def fill_compiled(self, keys: list[tuple[str, str]]) -> None:
        """Compile the kernels of contenders side by side for a third of the time left, then measure one by one.

        Several contenders share a process; each process measures what it has compiled.
        """
        keys = [key for key in keys if self.missing(key, self.args.lengths)]
        number = min(len(keys), COMPILERS, max(2, (os.cpu_count() or 2) - 2))
        if not keys or self.left() <= 0:
            return
        workers = [self.start() for _ in range(number)]
        queues = [
            [(n, key) for key in keys[i::number] for n in self.missing(key, self.args.lengths)] for i in range(number)
        ]
        for queue in queues:
            queue.sort(key=lambda job: job[0])
        done = self.compile(workers, queues, time.monotonic() + self.left() / 3)
        for worker, jobs in zip(workers, done, strict=True):
            for length, key in sorted(jobs, key=lambda job: keys.index(job[1])):
                if self.left() > 0 and worker.process.poll() is None:
                    self.measure(key, length, worker)
            worker.kill()

    def compile(
        self, workers: list[harness.Child], queues: list[list[tuple[int, tuple[str, str]]]], ends: float
    ) -> list[list[tuple[int, tuple[str, str]]]]:
        """Call contenders once at each length, until the time is over; return for each process what it has called."""
        done: list[list[tuple[int, tuple[str, str]]]] = [[] for _ in workers]
        asked: dict[int, tuple[float, tuple[int, tuple[str, str]] | None]] = {
            i: (time.monotonic() + PATIENCE + 70, None)
            for i in range(len(workers))  # their start
        }
        while asked:
            for i, (until, job) in [*asked.items()]:
                worker = workers[i]
                if not worker.poll(0.01) and time.monotonic() < until:
                    continue
                answer = worker.answer(0)
                del asked[i]
                if job and "failed" not in answer:
                    done[i].append(job)
                elif job and not isinstance(answer, harness.Lost):  # refused, or out of memory: said again in its turn
                    done[i].append(job)
                    queues[i] = [other for other in queues[i] if other[1] != job[1]]
                elif isinstance(answer, harness.Lost):
                    self.say(f"{worker.name}, {job and (*job[1], job[0])}: {answer['failed']}")
                    if job:  # what else the process compiled is lost with it: begin again, without what ended it
                        (length, key), self.failed[job[1]] = job, job[0]
                        self.cells[key][str(length)] = dict(answer)
                        again = (*done[i], *queues[i])
                        queues[i] = [other for other in again if other[1] != key or other[0] < length]
                    done[i] = []
                    if job and queues[i] and time.monotonic() < ends:
                        workers[i] = self.start()
                        asked[i] = time.monotonic() + PATIENCE + 70, None
                    continue
                if queues[i] and time.monotonic() < ends:
                    length, key = job = queues[i].pop(0)
                    worker.send(self.args.patience, name=key[0], mode=key[1], length=length, rounds=0)
                    asked[i] = time.monotonic() + self.args.patience + harness.MARGIN, job
        number, rest = sum(map(len, done)), sum(map(len, queues))
        self.say(f"compiled {number} kernels of {number + rest}, {self.left():.0f} s left")
        return done

    def foresee(self, key: tuple[str, str], length: int) -> dict[str, Any] | None:
        """Return a cell that is not worth measuring, from those of shorter inputs."""
        shorter = sorted((int(n) for n in self.cells[key] if int(n) < length), reverse=True)
        if shorter and "failed" in (last := self.cells[key][str(shorter[0])]):
            why = str(last["failed"])
            return {"failed": why if why.startswith("left out") else f"left out ({why} at {shorter[0]:,})"}
        times = [sum(self.cells[key][str(n)][part] for part in ("forward", "backward")) for n in shorter[:2]]
        if times and times[0] > self.args.limit:
            return {"failed": f"left out (above the limit of {self.args.limit:g} s at {shorter[0]:,})"}
        if len(times) == 2 and (foreseen := times[0] * max(1.0, times[0] / times[1])) > self.args.limit:
            return {"failed": f"left out ({foreseen:.2g} s foreseen, above the limit of {self.args.limit:g} s)"}
        return None

    def missing(self, key: tuple[str, str], lengths: list[int]) -> list[int]:
        """Return the lengths to measure: without a cell, or with one that failed in an earlier run."""
        return [n for n in missing(self.cells[key], lengths) if key not in self.failed or n < self.failed[key]]

    def left(self) -> float:
        """Return the seconds that are left."""
        return self.ends - time.monotonic()

    def say(self, line: str) -> None:
        print(f"[{60 * self.args.minutes - self.left():5.0f} s] {line}", flush=True)


def missing(cells: dict[str, Any], lengths: Iterable[int]) -> list[int]:
    """Return the lengths that have no cell, or one that failed for a reason that may pass."""
    again = ("error", "left out (error")
    return [n for n in lengths if str(cells.get(str(n), {"failed": "error"}).get("failed", "")).startswith(again)]


def write(record: dict[str, Any], device: str) -> None:
    """Write the record, mechanisms in the order of the table."""
    ordered = record | {"cases": {name: record["cases"][name] for name in names() if name in record["cases"]}}
    harness.write(f"variants/speed-{device}.json", ordered)


def _settings(record: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of a record with the cells of earlier runs in it, which must have had the same."""
    found = {key: getattr(args, key) for key in ("batch", "heads", "head_dim", "dtype")}
    if other := {key: record[key] for key in found if record.get(key, found[key]) != found[key]}:
        raise SystemExit(f"the record was measured with {other}; use the same, or another folder: $REGARD_RESULTS")
    lengths = sorted({*args.lengths, *record.get("lengths", ())})
    return found | {"lengths": lengths, "threads": 1}


def _child_options(args: argparse.Namespace) -> list[str]:
    options = ("device", "dtype", "batch", "heads", "head_dim", "memory", "limit")
    return [f"--{key.replace('_', '-')}={getattr(args, key)}" for key in options]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--dtype", help="default: float32 on a CPU, bfloat16 on a GPU")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--heads", type=int, help="default: 4 on a CPU, 16 on a GPU")
    parser.add_argument("--head-dim", type=int, help="default: 32 on a CPU, 64 on a GPU")
    parser.add_argument("--longest", type=int, help="default: 16,384 on a CPU, 65,536 on a GPU")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, help="seconds of a call beyond which longer inputs wait; default: 10, 2")
    parser.add_argument(
        "--lengths", dest="chosen", help="instead of powers of two up to --longest, separated by commas"
    )
    parser.add_argument("--minutes", type=float, default=60.0, help="after so many nothing new is begun")
    parser.add_argument("--patience", type=float, default=PATIENCE, help="seconds of a cell before it is given up")
    parser.add_argument("--one-by-one", action="store_true", help="the way of a GPU, to try it on a CPU")
    parser.add_argument("--memory", type=float, default=8.0, help="GiB that a process may add (CPU)")
    parser.add_argument("--only", help="names, separated by commas")
    parser.add_argument("--missing", action="store_true", help="only what the record lacks (on a GPU always)")
    parser.add_argument("--report", action="store_true", help="print the record; nothing is measured")
    parser.add_argument("--count", action="store_true", help="count operations and bytes instead of timing")
    parser.add_argument("--quick", action="store_true", help="small, and nothing is written")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    on_gpu = args.device == "cuda"
    args.dtype = args.dtype or ("bfloat16" if on_gpu else "float32")
    args.heads, args.head_dim = args.heads or (16 if on_gpu else 4), args.head_dim or (64 if on_gpu else 32)
    args.limit = args.limit or (2.0 if on_gpu else 10.0)
    if args.child:
        child(args)
        return
    longest = 64 if args.quick else args.longest or (65_536 if on_gpu else 16_384)
    args.lengths = [n for n in (1 << k for k in range(4 if args.quick else 8, 20)) if n <= longest]
    if isinstance(args.chosen, str):
        args.lengths = sorted(int(n) for n in args.chosen.split(","))
    args.rounds = 1 if args.quick else args.rounds
    file = harness.RESULTS / "variants" / f"speed-{args.device}.json"
    record: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.is_file() and not args.quick else {"cases": {}}
    wanted = args.only.split(",") if args.only else names()
    if unknown := [name for name in wanted if name not in names()]:
        parser.error(f"no mechanism or mixer is called {', '.join(unknown)}; known: {', '.join(names())}")
    if args.count:
        count_all(wanted, args)
        return
    if args.report:
        print(report(record) if record["cases"] else f"there is no {file}")
        return
    harness.exit_on_sigterm()
    if on_gpu or args.one_by_one:
        GPURun(record, wanted, args).run()
        print(report(record))
        return
    if args.missing:
        cells = record["cases"]
        wanted = [n for n in wanted if any(missing(cells.get(n, {}).get(mode, {}), args.lengths) for mode in modes(n))]
    CPURun(record, wanted, args).run()


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


# processes that compile do so themselves, side by side
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

if __name__ == "__main__":
    main()
