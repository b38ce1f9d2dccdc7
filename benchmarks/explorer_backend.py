"""The explorer's answers on a long input: 4,096 tokens, 24 layers of 16 heads, from stored q and k.

    python benchmarks/explorer_backend.py                      -> results/explorer-backend.json
    python benchmarks/explorer_backend.py --quick              small, nothing written

All maps together would be 26 GB. Held are q and k (causal, heads of 64), and on one thread are timed: a thumbnail of
every head of every layer, which is the first thing painted; one exact row, as on every move of the mouse, of one head
and of the mean of all, in all three views; one exact column, the first of its map (which tells the normalizers of all
rows) and others; and a tile of the large map. The peer is the way without this: the whole matrix of one layer, of which
a row is taken.
"""

from __future__ import annotations

import argparse
import random
import resource
import statistics
import time
from collections.abc import Callable
from typing import Any

import harness

TOKENS, LAYERS, HEADS, DEPTH = 4096, 24, 16, 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="256 tokens, 2 layers; nothing written")
    args = parser.parse_args()

    import torch

    torch.set_num_threads(1)
    tokens, layers = (256, 2) if args.quick else (TOKENS, LAYERS)
    start = time.perf_counter()
    inspection = stored(tokens, layers)
    record: dict[str, Any] = harness.machine() | {
        "tokens": tokens, "layers": layers, "heads": HEADS, "head_dim": DEPTH,
        "stored_mib": round(inspection.bytes / 2**20), "build_seconds": round(time.perf_counter() - start, 2),
    }  # fmt: skip
    names, rng = inspection.store.names(), random.Random(0)
    start, cpu_start = time.perf_counter(), time.process_time()
    for name in names:
        inspection.sample(name)
    record["thumbnails_of_all_maps_s"] = round(time.perf_counter() - start, 3)
    record["thumbnails_of_all_maps_cpu_s"] = round(time.process_time() - cpu_start, 3)
    for name in names:
        inspection.sinks(name)  # found once for each map

    def anywhere() -> tuple[str, int]:
        return rng.choice(names), rng.randrange(tokens)

    def row(head: int, view: Any) -> Callable[[], Any]:
        def ask() -> Any:
            name, query = anywhere()
            return inspection.row(name, head, query, view)

        return ask

    def column(head: int, is_first: bool = False) -> Callable[[], Any]:
        def ask() -> Any:
            inspection._columns.clear()
            if is_first:
                inspection.store[names[0]].log_normalizers.clear()
            return inspection.column(names[0], head, rng.randrange(tokens))

        return ask

    def adjacent_column() -> Any:
        return inspection.column(names[0], 3, rng.randrange(16))

    def tile() -> Any:
        return inspection.tile(rng.choice(names), 3, (0, tokens), (0, tokens), 512)

    def full_row() -> Any:
        return inspection.store[names[0]].weights()[0, 3, 5]

    timed = {
        "row of a head": row(3, "raw"),
        "row, mean of heads": row(-1, "raw"),
        "row without sinks": row(3, "without_sink"),
        "row times values": row(3, "value"),
        "first column of a head": column(3, is_first=True),
        "first column, mean of heads": column(-1, is_first=True),
        "column of a head": column(3),
        "column, mean of heads": column(-1),
        "adjacent column": adjacent_column,
        "tile of 512 x 512": tile,
    }
    times = {name: measured(ask, 10 if "column" in name or "tile" in name else 50) for name, ask in timed.items()}
    record["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    times["row from the full matrix"] = measured(full_row, 1)
    record["milliseconds"] = times
    lines = [["asked", "median ms", "slowest ms"], *([name, t["median"], t["max"]] for name, t in times.items())]
    print(harness.table([[str(cell) for cell in line] for line in lines]))
    print(f"thumbnails of all {layers} x {HEADS} maps: {record['thumbnails_of_all_maps_s']} s", end=" ")
    print(f"({record['thumbnails_of_all_maps_cpu_s']} s of the processor)", end="; ")
    print(f"kept: {record['stored_mib']} MiB, at most {record['peak_mib']} MiB in all")
    if not args.quick:
        print(harness.write("explorer-backend.json", record))


def stored(tokens: int, layers: int) -> Any:
    """A pass over so many tokens, of q and k that are drawn; neighbours are alike, and the first token is a sink."""
    import torch

    from regard.attention.capture.map_store import ComputedMap, MapStore
    from regard.attention.mask import CausalMask
    from regard.attention.mechanisms.softmax import SoftmaxAttention
    from regard.interpret.inspections.stored import StoredInspection

    store, generator = MapStore(), torch.Generator().manual_seed(0)
    attend = SoftmaxAttention().eval()
    for layer in range(layers):
        q, k = (torch.randn(1, HEADS, tokens, DEPTH, generator=generator) for _ in range(2))
        k = k + torch.nn.functional.pad(q, (0, 0, 1, 0))[:, :, :-1]  # a token looks at the one after whose query it is
        k[:, :, 0] = 2 * q.mean(2)
        computed_map = ComputedMap(
            name=f"decoder.blocks.{layer}.mix",
            kind="self",
            heads=HEADS,
            norms=torch.rand(1, HEADS, tokens, generator=generator),
            q=q,
            k=k,
            weights_kwargs={"mask": CausalMask()},
            module=attend,
            compute=attend.weights,
            headwise=True,
        )
        store.add(computed_map)
    return StoredInspection(store, {"text": [f"t{n}" for n in range(tokens)]})


def measured(query: Callable[[], Any], times: int) -> dict[str, float]:
    """Milliseconds of so many askings after one that does not count."""
    if times > 1:
        query()
    found = []
    for _ in range(times):
        start = time.perf_counter()
        query()
        found.append(1000 * (time.perf_counter() - start))
    return {"median": round(statistics.median(found), 2), "max": round(max(found), 2), "repeats": times}


if __name__ == "__main__":
    main()
