"""Cost of attention maps of a transformers model: its eager attention against `regard.watch` with fused kernels.

    python benchmarks/watch.py                      -> results/watch-cpu.json
    python benchmarks/watch.py --device cuda        -> results/watch-cuda.json

The model is transformers' BERT of the base size, its weights random, one text of 512 tokens and one of 2,048 (positions
for as many). Transformers gives maps only with attn_implementation="eager" and all of them; `regard.watch` leaves
"sdpa" on and computes what is asked: all maps, one layer, or one row of every map. Time of a pass, and how much the
process grew by it over what the loaded model takes (peak of resident memory; on a GPU of allocated memory).
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from contextlib import nullcontext
from typing import Any

import harness

CONTENDERS: dict[str, dict[str, Any] | None] = {
    "sdpa, no maps": None,
    "transformers, all maps": None,
    "regard, all maps": {},
    "regard, one layer": {"only": "encoder.layer.5.*"},
    "regard, one row of every map": {"queries": [0]},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--child")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lengths", type=int, nargs="*", default=[512, 2048])
    parser.add_argument("--length", type=int, default=512)
    options = parser.parse_args()
    if options.child:
        return harness.serve_requests(Contender(options.child, options.device, options.length).run)

    record = harness.machine(options.device) | {"threads": options.threads, "rounds": options.rounds, "cases": []}
    for length in options.lengths:
        child_options = ["--device", options.device, "--length", str(length)]
        children = [harness.Child(name, sys.argv[0], child_options, options.threads) for name in CONTENDERS]
        try:
            harness.rounds(children, 1)
            turns = harness.rounds(children, options.rounds)
        finally:
            for child in children:
                child.close()
        case: dict[str, Any] = {"case": f"BERT-base, 1 x {length} tokens", "contenders": {}}
        for name in CONTENDERS:
            case["contenders"][name] = {
                "milliseconds": harness.median_and_range(1000 * turn[name]["seconds"] for turn in turns),
                "extra_mib": max(turn[name]["mebibytes"] for turn in turns),
                "slowdown": harness.median_and_range(
                    turn[name]["seconds"] / turn["sdpa, no maps"]["seconds"] for turn in turns
                ),
            }
        record["cases"].append(case | harness.lap())
        rows = [["", "ms", "MiB", "slowdown"]]
        rows += [
            [name, found["milliseconds"]["median"], found["extra_mib"], found["slowdown"]["median"]]
            for name, found in case["contenders"].items()
        ]
        print(f"{case['case']}\n{harness.table(rows)}\n")
    print(harness.write(f"watch-{options.device}.json", record))


class Contender:
    """A model and one way to get its maps."""

    def __init__(self, name: str, device: str, length: int) -> None:
        import torch
        from transformers import BertConfig, BertModel

        import regard

        self.torch, self.watch, self.device = torch, regard.watch, device
        self.is_peer, self.watch_options = name == "transformers, all maps", CONTENDERS[name]
        torch.manual_seed(0)
        implementation = "eager" if self.is_peer else "sdpa"
        config = BertConfig(vocab_size=1000, max_position_embeddings=length, attn_implementation=implementation)
        self.model = BertModel(config).eval().to(device)
        self.tokens = torch.randint(1000, (1, length), device=device)
        self.before = self._peak()

    def run(self) -> dict[str, float]:
        """Run one pass with its maps in memory until the end."""
        start = time.perf_counter()
        with self.torch.no_grad():
            with nullcontext() if self.watch_options is None else self.watch(self.model, **self.watch_options):
                self.model(self.tokens, output_attentions=self.is_peer)
            if self.device == "cuda":
                self.torch.cuda.synchronize()
        return {"seconds": time.perf_counter() - start, "mebibytes": round(self._peak() - self.before)}

    def _peak(self) -> float:
        if self.device == "cuda":
            return self.torch.cuda.max_memory_allocated() / 2**20
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


if __name__ == "__main__":
    main()
