"""Point clouds: vector attention beside a plain gather-based form, neighbours and samples beside brute force.

    python benchmarks/points.py                    -> results/points-cpu.json: 4,096 points
    python benchmarks/points.py --device cuda      -> results/points-cuda.json: 4,096 and 65,536 points, as one cloud
    python benchmarks/points.py --device cuda --minutes 4      begin no case after that; the same command goes on

Vector attention: forward and backward of one layer (16 neighbours; 32 and 64 channels, the first stages of the paper),
the same weights, its time and the peak of memory above what inputs and weights take. `plain` is written as is usual:
neighbours gathered with advanced indexing, every operation on tensors B N K C; eager, and compiled on a GPU. On a GPU
in float32 and under autocast to bfloat16. Before it is timed, the outputs are compared.

Neighbours (16 of each point): ours beside all distances at once and a topk. Samples (a quarter of the points, farthest
first): ours beside the usual loop of PyTorch operations. Both must give the same points. Medians of the rounds, the
contenders in turn.

The file is written after every case, the cases of the goal first (vector attention in float32). A case that fails is
named and loses only itself. What the file has is not measured again: delete it to begin anew.
"""

from __future__ import annotations

import argparse
import resource
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import harness
import torch
from torch import nn

from regard.blocks.points import farthest_point_sampling, knn
from regard.models.point_transformer import PointSet, VectorAttention

NEIGHBORS = 16
TOLERANCE = {torch.float32: 2e-3, torch.bfloat16: 6e-2}  # of the largest output


class PlainVectorAttention(nn.Module):
    """The paper's formula in PyTorch, with the parameters of a `VectorAttention`."""

    def __init__(self, layer: VectorAttention) -> None:
        super().__init__()
        self.q, self.k, self.v, self.position, self.weigh = layer.q, layer.k, layer.v, layer.position, layer.weigh

    def forward(self, x: torch.Tensor, points: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        """Return the new features of every point, B N C."""
        rows = torch.arange(len(x), device=x.device)[:, None, None]
        q, k, v = self.q(x), self.k(x)[rows, index], self.v(x)[rows, index]
        delta = self.position(points[:, :, None] - points[rows, index])
        weights = self.weigh(q[:, :, None] - k + delta).softmax(2)
        return (weights * (v + delta)).sum(2)


def brute_force_neighbors(points: torch.Tensor) -> torch.Tensor:
    """Return the nearest points from all distances at once."""
    return torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist").topk(NEIGHBORS, largest=False)[1]


def loop_samples(points: torch.Tensor, count: int) -> torch.Tensor:
    """Return the farthest points by the usual loop, from the farthest from the mean."""
    batch = torch.arange(len(points), device=points.device)
    last = (points - points.mean(1, keepdim=True)).square().sum(-1).argmax(1)
    nearest = torch.full(points.shape[:2], float("inf"), device=points.device)
    chosen = torch.zeros(len(points), count, dtype=torch.long, device=points.device)
    for n in range(count):
        chosen[:, n] = last
        nearest = torch.minimum(nearest, (points - points[batch, last][:, None]).square().sum(-1))
        last = nearest.argmax(1)
    return chosen


class Meter:
    """Seconds of a call, and its peak of memory above what was there before, in bytes."""

    def __init__(self, device: str) -> None:
        self.device = device

    def seconds(self, call: Callable[[], Any]) -> float:
        """Return how long a call takes."""
        self._wait()
        begin = time.perf_counter()
        call()
        self._wait()
        return time.perf_counter() - begin

    def peak(self, call: Callable[[], Any]) -> int:
        """Return the peak of memory during a call."""
        if self.device == "cuda":
            self._wait()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            call()
            self._wait()
            return int(torch.cuda.max_memory_allocated() - before)
        return _resident_peak(call)

    def _wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


def _resident_peak(call: Callable[[], Any]) -> int:
    """Return the most resident memory of the process during a call, above what it had before."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    before, found, done = resident(), [0], threading.Event()

    def look() -> None:
        while not done.wait(0.002):
            found[0] = max(found[0], resident())

    watcher = threading.Thread(target=look)
    watcher.start()
    call()
    done.set()
    watcher.join()
    return max(0, found[0] - before)


def compare(runs: dict[str, Callable[[], Any]], meter: Meter, rounds: int) -> dict[str, Any]:
    """Return median milliseconds and peak mebibytes of each, warmed up, in turn."""
    peaks = {}
    for name, run in runs.items():
        for _ in range(2 if meter.device == "cpu" else 4):
            run()
        peaks[name] = round(meter.peak(run) / 2**20, 1)
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            times[name].append(1000 * meter.seconds(run))
    medians = {f"{name}_ms": harness.median_and_range(values) for name, values in times.items()}
    return medians | {f"{name}_mib": peak for name, peak in peaks.items()}


def attention(
    count: int, width: int, dtype: torch.dtype, meter: Meter, rounds: int, compile_plain: bool
) -> dict[str, Any]:
    """Return the comparison of one layer."""
    torch.manual_seed(0)
    device = meter.device
    layer = VectorAttention(width).to(device)
    plain = PlainVectorAttention(layer)
    points = torch.rand(1, count, 3, device=device)
    index, exists = knn(points, points, NEIGHBORS)
    cells = torch.arange(count, device=device)[None]
    x = torch.randn(1, count, width, device=device, requires_grad=True)
    into = torch.randn(1, count, width, device=device)
    lower = torch.autocast(device, dtype=dtype, enabled=dtype != torch.float32)

    def ours() -> torch.Tensor:
        with lower:
            return layer(PointSet(x, points, None, cells, index, exists, count))  # type: ignore[no-any-return]

    forms: dict[str, Callable[[], torch.Tensor]] = {"regard": ours}
    calls = {"plain": plain} | ({"plain_compiled": torch.compile(plain)} if compile_plain else {})
    for name, call in calls.items():

        def form(call: Callable[..., torch.Tensor] = call) -> torch.Tensor:
            with lower:
                return call(x, points, index)

        forms[name] = form
    with torch.no_grad():
        right, found = plain(x, points, index), ours().float()
    error = float((found - right).abs().max() / right.abs().max())
    if error > TOLERANCE[dtype]:
        raise SystemExit(f"outputs differ by {error:.1e} of the largest ({count} points, {width} channels, {dtype})")

    def update(form: Callable[[], torch.Tensor]) -> Callable[[], None]:
        def run() -> None:
            out = form()
            out.backward(into.to(out.dtype))
            x.grad = None
            layer.zero_grad(set_to_none=True)

        return run

    row: dict[str, Any] = {"error": float(f"{error:.1e}")}
    row |= compare({name: update(form) for name, form in forms.items()}, meter, rounds)
    for name in calls:
        row[f"faster_than_{name}"] = round(row[f"{name}_ms"]["median"] / row["regard_ms"]["median"], 2)
        if meter.device == "cuda":  # what a process holds on a CPU is not exact enough for a ratio
            row[f"memory_of_{name}"] = round(row[f"{name}_mib"] / max(row["regard_mib"], 0.1), 2)
    return row


def search(what: str, count: int, meter: Meter, rounds: int) -> dict[str, Any]:
    """Return the comparison of neighbours or samples."""
    points = torch.rand(1, count, 3, generator=torch.Generator().manual_seed(0)).to(meter.device)
    chosen = -(-count // 4)
    ours, other = {
        "neighbors": (lambda: knn(points, points, NEIGHBORS)[0], lambda: brute_force_neighbors(points)),
        "samples": (lambda: farthest_point_sampling(points, chosen), lambda: loop_samples(points, chosen)),
    }[what]
    same = float((ours() == other()).double().mean())
    if same < 0.999:  # two points at almost the same distance may change places
        raise SystemExit(f"{what}: only {100 * same:.1f} % are the same")
    row = {"same": round(same, 6)} | compare({"regard": ours, "brute_force": other}, meter, rounds)
    row["faster"] = round(row["brute_force_ms"]["median"] / row["regard_ms"]["median"], 2)
    return row


def child(args: argparse.Namespace) -> None:
    """Measure one case after another."""
    torch.set_num_threads(args.threads)
    meter = Meter(args.device)

    def do(what: str, points: int, channels: int = 0, dtype: str = "float32") -> dict[str, Any]:
        if what == "attention":
            return attention(points, channels, getattr(torch, dtype), meter, args.rounds, args.compile)
        return search(what, points, meter, min(args.rounds, 5))

    harness.serve_requests(do)


def main() -> None:
    """Time the cases that the file lacks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=None, help="default: 5 on a CPU, 20 on a GPU")
    parser.add_argument("--threads", type=int, default=1, help="of a CPU")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no case after this time")
    parser.add_argument("--seconds", type=float, default=240.0, help="give up a case after so many")
    parser.add_argument("--quick", action="store_true", help="256 points, two rounds; nothing is written")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    is_gpu = args.device == "cuda"
    args.rounds = 2 if args.quick else args.rounds or (20 if is_gpu else 5)
    args.compile = is_gpu and not args.quick
    if args.child:
        child(args)
        return
    counts = (256,) if args.quick else (4096, 65_536) if is_gpu else (4096,)
    cases = []
    for dtype in ("float32", "bfloat16") if is_gpu else ("float32",):
        cases += [
            ("attention", {"points": count, "channels": width, "dtype": dtype})
            for width in (32, 64)
            for count in counts
        ]
    cases += [("searches", {"what": what, "points": count}) for count in counts for what in ("neighbors", "samples")]

    def run(rows: str, key: dict[str, Any]) -> harness.Case:
        return harness.Case(rows, key, lambda children: children[0].ask(**{"what": rows, **key}))

    options = [f"--device={args.device}", f"--rounds={args.rounds}", *(["--quick"] if args.quick else [])]
    harness.run_cases(
        f"points-{args.device}.json",
        {**harness.machine(args.device), "threads": args.threads},
        [run(*case) for case in cases],
        lambda: [harness.Child("regard", str(Path(__file__)), options, args.threads)],
        minutes=args.minutes,
        seconds=args.seconds,
        keep=not args.quick,
    )


if __name__ == "__main__":
    main()
