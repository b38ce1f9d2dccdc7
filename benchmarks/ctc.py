"""CTC loss, forward and backward: Regard's reference in Python against torch's kernel, taking turns.

    python benchmarks/ctc.py                    T=500, S=100, B=32 on a CPU, one thread -> results/ctc-cpu.json
    python benchmarks/ctc.py --device cuda      the same on a GPU -> results/ctc-cuda.json
    python benchmarks/ctc.py --quick            small, nothing written

Both take the same log-probabilities and targets and give losses and the gradient of their sum; the record holds how far
they differ. A turn is the best of a few calls.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import harness

CONTENDERS = ("regard", "torch")


def losses(name: str, logp: Any, targets: Any, frames: Any, sizes: Any) -> Any:
    """Return -log p of each row."""
    import torch.nn.functional as F

    from regard.losses.ctc import ctc_loss

    blank = logp.shape[-1] - 1
    if name == "regard":
        return ctc_loss(logp, targets, frames, sizes, blank)
    return F.ctc_loss(logp.transpose(0, 1), targets, frames, sizes, blank=blank, reduction="none")


def child(name: str, args: argparse.Namespace) -> None:
    import torch

    generator = torch.Generator().manual_seed(0)
    shape = args.rows, args.frames, args.vocab
    x = torch.randn(shape, generator=generator).to(args.device).requires_grad_()
    targets = torch.randint(0, args.vocab - 1, (args.rows, args.labels), generator=generator).to(args.device)
    frames = torch.full((args.rows,), args.frames, device=args.device)
    sizes = torch.full((args.rows,), args.labels, device=args.device)

    def run() -> tuple[float, float, Any, Any]:
        logp = x.log_softmax(-1)
        wait(args.device)
        began = time.perf_counter()
        found = losses(name, logp, targets, frames, sizes)
        wait(args.device)
        half = time.perf_counter()
        (gradient,) = torch.autograd.grad(found.sum(), x)
        wait(args.device)
        return half - began, time.perf_counter() - half, found, gradient

    def turn(what: str, calls: int = 1) -> Any:
        if what == "values":
            _, _, found, gradient = run()
            return {"losses": found.tolist(), "gradient": gradient.flatten()[:: max(1, x.numel() // 5000)].tolist()}
        forward, backward = min((run()[:2] for _ in range(calls)), key=sum)
        return {"forward": forward, "backward": backward, "total": forward + backward}

    harness.serve_requests(turn)


def wait(device: str) -> None:
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, default=500)
    parser.add_argument("--labels", type=int, default=100)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--vocab", type=int, default=40)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="small, and nothing is written")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.child, args)
        return
    if args.quick:
        args.frames, args.labels, args.rows, args.rounds = 40, 8, 4, 2
    options = [f"--{key}={getattr(args, key)}" for key in ("frames", "labels", "rows", "vocab", "device")]
    children = [harness.Child(name, str(Path(__file__)), options, threads=1) for name in CONTENDERS]
    record, steal = harness.machine(args.device), harness.Steal()
    values = {process.name: process.ask(what="values") for process in children}
    differences = {
        key: max(abs(a - b) for a, b in zip(values["regard"][key], values["torch"][key], strict=True))
        for key in ("losses", "gradient")
    }
    turns = harness.rounds(children, args.rounds, what="time", calls=3)
    record |= {"frames": args.frames, "labels": args.labels, "batch": args.rows, "vocab": args.vocab, "threads": 1}
    for part in ("forward", "backward", "total"):
        record[part] = {name: harness.median_and_range(t[name][part] for t in turns) for name in CONTENDERS}
    record["ratio_to_torch"] = harness.median_and_range(t["regard"]["total"] / t["torch"]["total"] for t in turns)
    record |= {"max_difference": differences, "steal": steal.share()}
    for process in children:
        process.close()
    parts = ("forward", "backward", "total")
    rows = [["seconds", *parts], *([n, *(f"{record[part][n]['median']:.4f}" for part in parts)] for n in CONTENDERS)]
    ratio = record["ratio_to_torch"]
    print(
        harness.table(rows),
        f"\nRegard takes {ratio['median']} times as long as torch ({ratio['min']} to {ratio['max']})",
    )
    if not args.quick:
        print(harness.write(f"ctc-{args.device}.json", record))


if __name__ == "__main__":
    main()
