"""Every attention mechanism beside dense softmax attention: time and peak memory by length, forward and backward.

    python benchmarks/variants.py                        N = 256 ... 16,384 on a CPU, float32, one thread
                                                         -> results/variants/speed-cpu.json
    python benchmarks/variants.py --device cuda          N = 256 ... 65,536 on a GPU, bfloat16 -> speed-cuda.json
    python benchmarks/variants.py --device cuda --minutes 6    stop then, and go on with the same command
    python benchmarks/variants.py --only linear,nystrom  these alone; what was measured before of others is kept
    python benchmarks/variants.py --missing              those that the record lacks
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

On a GPU each has its own process too, all begun at once; while one is timed nothing else runs. (Forked from one that
has imported torch they would begin sooner; on an H200, forked ones gave no answer.) First, the processes of mechanisms
whose kernels are compiled (FlexAttention) compile for all lengths side by side; then they are timed one after another,
then the others, shorter lengths before longer ones. Every cell is written when it is there, and cells that are there
are not measured again, so that a run with `--minutes` goes on where another stopped.

A cell that was not measured says why: refused (by the mechanism), out of memory, or more than `--limit` seconds a call,
measured or foreseen from the two lengths before; longer inputs are then left out. The exponent is fitted over the three
largest lengths and stands beside the claimed cost: a mechanism that claims N and measures N² is a defect.

Counts (`--count`) need no quiet machine: the operations of products, the bytes that all operations read and write, and
the largest number of bytes alive at a time, of one forward and backward pass on a CPU. tests/contracts/test_growth.py
compares their growth with the claimed costs.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import multiprocessing
import os
import sys
import time
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
    measurement_folder,
    total_times,
)

GROUP = 6  # contenders that take turns with dense attention
CALL_SECONDS = {"cpu": 0.1, "cuda": 0.04}  # of one turn, if a call is shorter
TOLERANCE = 0.35  # of the exponent, before it counts as a defect
SHORT = 8192  # tokens: on a GPU, lengths up to it are measured of all mechanisms before longer ones
COUNTED = [1024, 4096]  # tokens at which operations are counted
COUNTS = ("operations", "bytes", "peak")
PATIENCE = 90.0  # seconds without an answer, after which a process on a GPU is given up


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
        return {}
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
    keys = [key for key in turns[0] if key != "rounds"]
    found: dict[str, Any] = {key: harness.median_and_range(t[key] for t in turns)["median"] for key in keys}
    return found | {"rounds": len(turns)}


# -- on a GPU ----------------------------------------------------------------------------------------------------------


class Forked:
    """A process on the GPU, forked from this one, for a mechanism in some modes."""

    def __init__(self, name: str, args: argparse.Namespace) -> None:
        self.name = name
        context = multiprocessing.get_context(args.start)
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(other, name, args), daemon=True)
        self.process.start()
        other.close()

    def send(self, **request: Any) -> None:
        self.pipe.send(request)

    def answer(self, seconds: float = PATIENCE) -> dict[str, Any]:
        """Return the answer to the last request, or that there was none."""
        try:
            if self.pipe.poll(seconds):
                found: dict[str, Any] = self.pipe.recv()
                return found
            why = f"error: no answer in {seconds:.0f} s"
        except (EOFError, OSError):
            why = f"error: the process ended with status {self.process.exitcode}"
        self.close()
        return {"failed": why}

    def close(self) -> None:
        self.pipe.close()
        if self.process.is_alive():
            self.process.kill()
        self.process.join()


def _serve(pipe: Any, name: str, args: argparse.Namespace) -> None:
    """In the forked process: answer requests until the pipe is closed."""
    import torch

    from regard.core.errors import RegardError, is_out_of_memory

    while True:
        try:
            request = pipe.recv()
        except EOFError:
            return
        faulthandler.dump_traceback_later(PATIENCE - 10, file=sys.__stderr__)  # says where it hangs
        if request.get("machine"):
            pipe.send(harness.machine(args.device))
            continue
        if request.get("warm"):  # load PyTorch's kernels
            (torch.ones(64, 64, device=args.device) @ torch.ones(64, 64, device=args.device)).sum().item()
            pipe.send({})
            continue
        mode, length = request["mode"], request["length"]
        try:
            found = measure(name, mode, length, args, request.get("rounds", 0))
        except RegardError as error:
            found = {"failed": f"refused: {error}"}
        except (RuntimeError, MemoryError) as error:
            lines = str(error).splitlines() or [""]
            out_of_memory = is_out_of_memory(error) or "out of memory" in str(error)
            found = {"failed": "out of memory" if out_of_memory else f"error: {type(error).__name__}: {lines[0][:200]}"}
        except Exception as error:
            found = {"failed": f"error: {type(error).__name__}: {str(error).splitlines()[:1]}"}
        if args.device == "cuda":
            torch.cuda.empty_cache()
        faulthandler.cancel_dump_traceback_later()
        pipe.send(found)


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
        asking = Forked(DENSE, args)
        asking.send(machine=True)
        settings = {key: getattr(args, key) for key in ("batch", "heads", "head_dim", "dtype", "lengths")}
        about = asking.answer()
        asking.close()
        if "failed" in about:
            raise SystemExit(f"no process on the GPU: {about['failed']}; try --start spawn")
        record |= about | settings | {"threads": 1}
        self.cells: dict[tuple[str, str], dict[str, Any]] = {
            (name, mode): record["cases"].setdefault(name, {}).setdefault(mode, {})
            for name in wanted
            for mode in modes(name)
        }

    def run(self) -> None:
        compiled = [key for key in self.cells if compiles(key[0]) and self.missing(key, self.args.lengths)]
        self.say(
            f"{sum(bool(self.missing(key, self.args.lengths)) for key in self.cells)} contenders have cells to fill"
        )
        workers = {key: Forked(key[0], self.args) for key in compiled}
        others = sorted((key for key in self.cells if key not in workers), key=lambda key: key[0] != DENSE)
        ready = {name: Forked(name, self.args) for name in {name for name, _ in others}}  # they import meanwhile
        for worker in ready.values():  # side by side, not each in its turn
            worker.send(warm=True)
        self.compile(workers)
        for worker in ready.values():
            worker.answer()
        for key, worker in workers.items():
            self.measure(key, worker, self.args.lengths)
            worker.close()
        for lengths in ([n for n in self.args.lengths if n <= SHORT], [n for n in self.args.lengths if n > SHORT]):
            for name in dict.fromkeys(name for name, _ in others):
                keys = [key for key in others if key[0] == name and self.missing(key, lengths)]
                if keys and self.left() > 0:
                    if ready[name].pipe.closed:  # given up at a shorter length
                        ready[name] = Forked(name, self.args)
                    for key in keys:
                        self.measure(key, ready[name], lengths)
        for worker in ready.values():
            worker.close()
        left = [f"{name} ({mode})" for (name, mode) in self.cells if self.missing((name, mode), self.args.lengths)]
        self.say(f"not complete, run it again: {', '.join(left)}" if left else "complete")

    def compile(self, workers: dict[tuple[str, str], Forked]) -> None:
        """Call every contender once at every length, side by side; what fails will fail again when it is timed."""
        waiting = {key: self.missing(key, self.args.lengths) for key in workers}
        for key, worker in workers.items():
            worker.send(mode=key[1], length=waiting[key][0])
        while waiting and self.left() > 0:
            for key in [*waiting]:
                if workers[key].pipe.poll(0.01):
                    waiting[key] = waiting[key][1:]
                    answer = workers[key].answer()
                    if "failed" in answer:
                        self.say(f"{key[0]}, {key[1]}: {answer['failed']}")
                    if waiting[key]:
                        workers[key].send(mode=key[1], length=waiting[key][0])
                    else:
                        del waiting[key]
        for key in waiting:  # no time was left
            workers[key].close()
        self.say(f"compiled, {self.left():.0f} s left")

    def measure(self, key: tuple[str, str], worker: Forked, lengths: list[int]) -> None:
        """Fill the cells of a contender, from the shortest on."""
        name, mode = key
        for length in self.missing(key, lengths):
            if self.left() <= 0 or not worker.process.is_alive():
                return
            cell = self.foresee(key, length)
            if cell is None:
                worker.send(mode=mode, length=length, rounds=self.args.rounds)
                cell = worker.answer(min(PATIENCE, max(5.0, self.left() + 20)))
            self.cells[key][str(length)] = cell
            self.record["cases"][name].pop("measured", None)  # the conditions of its newest cell, set when written
            if not self.args.quick:
                write(self.record, self.args.device)
            said = cell.get("failed") or f"{1000 * cell['forward']:.3g} + {1000 * cell['backward']:.3g} ms"
            self.say(f"{name}, {mode}, {length:,}: {said}")

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
        """Return the lengths that have no cell, or one that failed for a reason that may pass."""
        known, again = self.cells[key], ("error", "left out (error")
        return [n for n in lengths if str(known.get(str(n), {"failed": "error"}).get("failed", "")).startswith(again)]

    def left(self) -> float:
        """Return the seconds that are left."""
        return self.ends - time.monotonic()

    def say(self, line: str) -> None:
        print(f"[{60 * self.args.minutes - self.left():5.0f} s] {line}", flush=True)


def prepare_forks() -> None:
    """Import what the forked processes need, without touching the GPU."""
    import torch._dynamo
    import torch._inductor.compile_fx
    import torch.nn.attention.flex_attention

    torch.set_num_threads(1)  # a pool of threads would not survive the fork
    for name in names():
        resolve(MECHANISMS if name in MECHANISMS else MIXERS, name, "attention")
    if torch.cuda.is_initialized():
        raise SystemExit("an import has touched the GPU; try --start spawn")


def write(record: dict[str, Any], device: str) -> None:
    """Write the record, mechanisms in the order of the table."""
    ordered = record | {"cases": {name: record["cases"][name] for name in names() if name in record["cases"]}}
    harness.write(f"variants/speed-{device}.json", ordered)


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
    parser.add_argument("--limit", type=float, help="seconds of a call beyond which longer inputs wait; default: 10, 2")
    parser.add_argument("--minutes", type=float, default=60.0, help="after so many nothing new is begun (GPU)")
    parser.add_argument("--start", default="spawn", choices=("fork", "spawn"), help="how processes begin (GPU)")
    parser.add_argument("--forked", action="store_true", help="the way of a GPU, to try it on a CPU")
    parser.add_argument("--memory", type=float, default=8.0, help="GiB that a process may add (CPU)")
    parser.add_argument("--only", help="names, separated by commas")
    parser.add_argument("--missing", action="store_true", help="only those that the record lacks")
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
        child(args.child, args)
        return
    longest = 64 if args.quick else args.longest or (65_536 if on_gpu else 16_384)
    args.lengths = [n for n in (1 << k for k in range(4 if args.quick else 8, 20)) if n <= longest]
    args.rounds = 1 if args.quick else args.rounds
    file = measurement_folder() / f"speed-{args.device}.json"
    record: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.is_file() and not args.quick else {"cases": {}}
    wanted = args.only.split(",") if args.only else [n for n in names() if not (args.missing and n in record["cases"])]
    if args.count:
        count_all(wanted, args)
        return
    if (on_gpu or args.forked) and not args.report:
        if args.start == "fork":
            prepare_forks()
        file.parent.mkdir(parents=True, exist_ok=True)
        GPURun(record, wanted, args).run()
        print(report(record))
    elif not args.report:
        settings = {key: getattr(args, key) for key in ("batch", "heads", "head_dim", "dtype", "lengths")} | {
            "threads": 1
        }
        others = [name for name in wanted if name != DENSE] or [DENSE]
        for start in range(0, len(others), GROUP):
            group, machine, steal = others[start : start + GROUP], harness.machine(args.device), harness.Steal()
            cells, when = compare(group, args), harness.lap()["measured"]
            for name, found in cells.items():
                if name == DENSE and DENSE in record["cases"] and start:
                    continue  # of the first group; the others' serve as a check of the machine
                record["cases"][name] = found | {"measured": when | {"steal": steal.share()}}
            record = machine | settings | {"merged": True, "cases": record["cases"]}
            record["cases"] = {name: record["cases"][name] for name in names() if name in record["cases"]}
            if not args.quick:
                file.parent.mkdir(parents=True, exist_ok=True)
                write(record, args.device)
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


# of forked processes: compile in the process itself, and ask for GPUs without touching them
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")

if __name__ == "__main__":
    main()
