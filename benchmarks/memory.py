"""Networks with an external memory: one update, Regard against plain PyTorch loops with the same weights, in turns.

    python benchmarks/memory.py                     CPU, float32, 1 thread      -> results/memory-cpu.json
    python benchmarks/memory.py --threads 2         the same on two threads
    python benchmarks/memory.py --device cuda       GPU                         -> results/memory-cuda.json
    add --quick for seconds (short tapes, nothing written), --contenders regard,plain to leave out the compiled one

An update is the loss (cross-entropy of bits), its gradient, clipping and Adam, for 64 sequences of 100 vectors. The
peers (plain_memory.py) are laid out as public implementations are: a Python loop over steps and heads. The first losses
of all must be equal to 1e-4. On a GPU Regard's updates are one CUDA graph each, as in training (train.graph=auto); of
the contender "compiled" torch.compile has made the kernels of a step besides (train.compile=true).
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import harness

CASES: dict[str, tuple[str, dict[str, int]]] = {
    "NTM, 128 x 20": ("ntm", {"cells": 128, "word": 20}),
    "NTM, 128 x 20, 4 + 4 heads": ("ntm", {"cells": 128, "word": 20, "read_heads": 4, "write_heads": 4}),
    "NTM, 256 x 64": ("ntm", {"cells": 256, "word": 64}),
    "DNC, 128 x 20": ("dnc", {"cells": 128, "word": 20}),
    "DNC, 256 x 64, 4 heads": ("dnc", {"cells": 256, "word": 64, "read_heads": 4, "hidden": 256}),
}
BATCH, STEPS = 64, 100


def child(name: str, device: str) -> None:
    """Run one contender."""
    import torch
    import torch.nn.functional as F
    from plain_memory import PlainDNC, PlainNTM

    from regard.models import build

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    ready: dict[str, Any] = {}

    def contender(case: str, vectors: Any) -> Any:
        """Return a function that makes an update and returns its loss, and the loss of the first."""
        if case not in ready:
            kind, settings = CASES[case]
            torch.manual_seed(0)
            model: Any = build(kind, input_dim=9, output_dim=8, **settings)
            if name == "plain":
                model = (PlainNTM if kind == "ntm" else PlainDNC)(model)
            model = model.to(device).train()
            optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, capturable=device == "cuda")
            called = torch.compile(model) if name == "compiled" else model

            def update() -> torch.Tensor:
                optimizer.zero_grad(set_to_none=True)
                loss = F.binary_cross_entropy_with_logits(called(vectors), vectors[..., :8])
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                return loss.detach()

            ready.clear()  # one at a time in memory
            first = float(update())
            ready[case] = update if name == "plain" or device == "cpu" else captured(update), first
        return ready[case]

    def do(case: str, batch: int, steps: int, updates: int) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(1)
        vectors = torch.randint(2, (batch, steps, 9), generator=generator).float().to(device)
        update, first = contender(case, vectors)
        update()
        if device == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(updates):
            last = update()
        last.item()  # waits for the device
        return {"seconds": (time.perf_counter() - began) / updates, "loss": first}

    harness.serve_requests(do)


def captured(update: Callable[[], Any]) -> Callable[[], Any]:
    """Return an update as one CUDA graph."""
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            update()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = update()

    def replay() -> Any:
        graph.replay()
        return loss

    return replay


def main() -> None:
    """Run all contenders, print the table, and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--child")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=1, help="of a turn, besides one to warm up")
    parser.add_argument("--contenders", default="", help="default: regard,plain and, on a GPU, compiled")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    if given.child:
        child(given.child, given.device)
        return
    batch, steps, number = (4, 6, 1) if given.quick else (BATCH, STEPS, given.rounds)
    script = str(Path(__file__).resolve())
    names = (given.contenders or ("regard,compiled,plain" if given.device == "cuda" else "regard,plain")).split(",")
    children = [harness.Child(name, script, ["--device", given.device], given.threads) for name in names]
    rows, cases = [("case", *(f"{name} s" for name in names), "plain / fastest")], []
    for case in CASES:
        turns = harness.rounds(children, number, case=case, batch=batch, steps=steps, updates=given.updates)
        losses = [turns[0][name]["loss"] for name in names]
        if max(losses) - min(losses) > 1e-4:
            sys.exit(f"{case}: the first losses differ: {losses}")
        seconds = {name: [turn[name]["seconds"] for turn in turns] for name in names}
        times = {name: harness.median_and_range(values) for name, values in seconds.items()}
        contenders: dict[str, Any] = {name: {"seconds": times[name]} for name in names}
        best = 1.0
        for name in names if "plain" in names else ():
            if name == "plain":
                continue
            pairs = zip(seconds[name], seconds["plain"], strict=True)
            ratio = harness.median_and_range(b / a for a, b in pairs)
            # both at their best: other work on the machine can only slow a contender down
            of_best = round(min(seconds["plain"]) / min(seconds[name]), 3)
            contenders["plain"] |= {f"{name}_speedup": ratio, f"{name}_speedup_of_best_rounds": of_best}
            best = max(best, ratio["median"])
        cases.append({"case": case, "contenders": contenders})
        rows.append((case, *(times[name]["median"] for name in names), best))
        print(harness.table([rows[0], rows[-1]]), flush=True)
    for each in children:
        each.close()
    print(harness.table(rows))
    if not given.quick:
        record = {"batch": batch, "steps": steps, "rounds": number, "threads": given.threads, "cases": cases}
        record |= {"machine": harness.machine(given.device), "versions": harness.versions()}
        print(harness.write(f"memory-{given.device}.json", record))


if __name__ == "__main__":
    main()
