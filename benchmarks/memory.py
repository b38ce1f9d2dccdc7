"""Networks with an external memory: one update, Regard against plain PyTorch loops with the same weights, in turns.

    python benchmarks/memory.py                     CPU, float32, 1 thread      -> results/memory-cpu.json
    python benchmarks/memory.py --threads 2         the same on two threads
    python benchmarks/memory.py --device cuda       GPU                         -> results/memory-cuda.json
    add --quick for seconds (short tapes, nothing written)

An update is the loss (cross-entropy of bits), its gradient, clipping and Adam, for 64 sequences of 100 vectors. The
peers (plain_memory.py) are laid out as public implementations are: a Python loop over steps and heads. The first losses
of both must be equal to 1e-4.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
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
    models: dict[str, Any] = {}

    def contender(case: str) -> Any:
        if case not in models:
            kind, settings = CASES[case]
            torch.manual_seed(0)
            model = build(kind, input_dim=9, output_dim=8, **settings)
            if name == "plain":
                model = (PlainNTM if kind == "ntm" else PlainDNC)(model)
            model = model.to(device).train()
            models.clear()  # one at a time in memory
            models[case] = model, torch.optim.Adam(model.parameters(), lr=1e-4)
        return models[case]

    def do(case: str, batch: int, steps: int, updates: int) -> dict[str, Any]:
        model, optimizer = contender(case)
        generator = torch.Generator().manual_seed(1)
        vectors = torch.randint(2, (batch, steps, 9), generator=generator).float().to(device)
        losses, began = [], 0.0
        for update in range(updates + 1):
            if update == 1:  # the first warms up
                if device == "cuda":
                    torch.cuda.synchronize()
                began = time.perf_counter()
            loss = F.binary_cross_entropy_with_logits(model(vectors), vectors[..., :8])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.detach())
        last = [float(each) for each in losses]
        return {"seconds": (time.perf_counter() - began) / updates, "loss": last[0]}

    harness.serve_requests(do)


def main() -> None:
    """Run all contenders, print the table, and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--child")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    if given.child:
        child(given.child, given.device)
        return
    batch, steps, number = (4, 6, 1) if given.quick else (BATCH, STEPS, given.rounds)
    script = str(Path(__file__).resolve())
    children = [harness.Child(name, script, ["--device", given.device], given.threads) for name in ("regard", "plain")]
    rows, cases = [("case", "regard s", "plain s", "ratio")], []
    for case in CASES:
        turns = harness.rounds(children, number, case=case, batch=batch, steps=steps, updates=1)
        losses = [turns[0][name]["loss"] for name in ("regard", "plain")]
        if abs(losses[0] - losses[1]) > 1e-4:
            sys.exit(f"{case}: the first losses differ: {losses[0]:.6f} and {losses[1]:.6f}")
        ours, plain = ([turn[name]["seconds"] for turn in turns] for name in ("regard", "plain"))
        ratio = harness.median_and_range(b / a for a, b in zip(ours, plain, strict=True))
        times = {"regard": harness.median_and_range(ours), "plain": harness.median_and_range(plain)}
        cases.append({"case": case, "contenders": {name: {"seconds": times[name]} for name in times}} | harness.lap())
        # both at their best: other work on the machine can only slow a contender down
        best = {"ratio_of_best_rounds": round(min(plain) / min(ours), 3)}
        cases[-1]["contenders"]["plain"] |= {"regard_speedup": ratio} | best
        rows.append((case, *(times[name]["median"] for name in times), ratio["median"]))
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
