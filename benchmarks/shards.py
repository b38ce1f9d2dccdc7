"""Rows out of token shards: our stream beside torch's DataLoader over the same files, taking turns.

    python benchmarks/shards.py            1 GB of made-up tokens              -> results/shards.json
    python benchmarks/shards.py --quick    40 MB, two rounds, nothing written

Rows of 1024 tokens, 64 to a batch, shuffled; every contender hands over two tensors of int64, inputs and targets.

    regard, regard-4     Shards.stream through prefetch, with 1 and with 4 threads
    loader, loader-2     a Dataset over np.memmap, DataLoader(shuffle=True), in the process itself and with 2 workers

Against what a GPU eats: `times_step` is tokens/s over 600,000, about what one H200 trains a GPT-2 of 124 million
parameters with.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import harness

CONTEXT, ROWS = 1024, 64
VOCABULARY = 50_257
STEP = 600_000  # tokens a second


def regard_batches(folder: Path, workers: int) -> Iterator[Any]:
    """Batches as the training loop gets them."""
    from regard.data.batching import StreamPosition, prefetch
    from regard.data.shards.token_shards import TokenShards

    with prefetch(
        TokenShards(str(folder), CONTEXT, ROWS).load("train").stream(0).start(StreamPosition()), workers=workers
    ) as items:
        for drawn in items:
            yield drawn.batch


def dataloader_batches(folder: Path, workers: int) -> Iterator[Any]:
    """Batches as many programs make them: a window a row, stacked."""
    import numpy as np
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Rows(Dataset):  # type: ignore[type-arg]
        """Windows over the shards; none reaches across two of them."""

        def __init__(self) -> None:
            self.maps = [np.memmap(file, np.uint16, "r") for file in sorted(folder.glob("train-*.bin"))]
            self.ends = np.cumsum([(len(part) - 1) // CONTEXT for part in self.maps])

        def __len__(self) -> int:
            return int(self.ends[-1])

        def __getitem__(self, i: int) -> tuple[Any, Any]:
            part = int(np.searchsorted(self.ends, i, side="right"))
            start = (i - (int(self.ends[part - 1]) if part else 0)) * CONTEXT
            window = torch.from_numpy(self.maps[part][start : start + CONTEXT + 1].astype(np.int64))
            return window[:-1], window[1:]

    torch.manual_seed(0)
    while True:
        yield from DataLoader(Rows(), ROWS, shuffle=True, num_workers=workers, drop_last=True)


CONTENDERS = {
    "regard": (regard_batches, 1),
    "regard-4": (regard_batches, 4),
    "loader": (dataloader_batches, 0),
    "loader-2": (dataloader_batches, 2),
}


def child(name: str, folder: Path) -> None:
    """Open, then draw for as long as asked."""
    import torch

    torch.set_num_threads(1)
    make, workers = CONTENDERS[name]
    began = time.perf_counter()
    batches = make(folder, workers)
    next(batches)
    first = time.perf_counter() - began

    def do(seconds: float) -> dict[str, float]:
        tokens, start = 0, time.perf_counter()
        while (spent := time.perf_counter() - start) < seconds:
            inputs, targets = next(batches)
            assert inputs.shape == targets.shape == (ROWS, CONTEXT)
            tokens += targets.numel()
        return {"tokens_per_second": tokens / spent, "first_batch_s": first}

    harness.serve_requests(do)


def make(folder: Path, tokens: int, block: int = 1 << 22) -> None:
    """Shards of made-up tokens."""
    import numpy as np

    from regard.data.shards.index import ShardIndex, fingerprint
    from regard.data.shards.shard_writer import ShardWriter

    draw = np.random.Generator(np.random.PCG64(7))
    with ShardWriter(folder, {}, 1 << 28) as packing:
        (folder / "tokenizer.json").write_text("{}")
        packing.begin("uint16")
        for start in range(0, tokens, block):
            some = draw.integers(0, VOCABULARY, min(block, tokens - start), dtype=np.uint16)
            packing.add("train", some.astype("<u2").tobytes(), True)
        about = {"size": VOCABULARY, "kind": "bytes", "eos": 0, "fingerprint": fingerprint(b"{}")}
        packing.finish(ShardIndex("tokens", "uint16", {}, about))


def compare(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Contender beside contender, round by round."""
    names, steal = list(CONTENDERS), harness.Steal()
    sizes = {"context": CONTEXT, "rows": ROWS, "tokens": arguments.tokens, "step_tokens_per_second": STEP}
    record = harness.machine() | sizes
    children = [harness.Child(name, __file__, ["--folder", str(folder)], 1) for name in names]
    harness.rounds(children, 1, seconds=arguments.seconds)
    turns = harness.rounds(children, arguments.rounds, seconds=arguments.seconds)
    for one in children:
        one.close()
    speed = {name: [turn[name]["tokens_per_second"] for turn in turns] for name in names}
    case: dict[str, Any] = {"batch": ROWS, "contenders": {}}
    for name in names:
        case["contenders"][name] = {
            "tokens_per_second": harness.median_and_range(speed[name]),
            "rows_per_second": harness.median_and_range(x / CONTEXT for x in speed[name]),
            "times_step": harness.median_and_range(x / STEP for x in speed[name]),
            "first_batch_s": float(f"{turns[0][name]['first_batch_s']:.3g}"),
        }
    for a in ("regard", "regard-4"):
        for b in ("loader", "loader-2"):
            case[f"{a} / {b}"] = harness.median_and_range(x / y for x, y in zip(speed[a], speed[b], strict=True))
    return record | {"rounds": arguments.rounds, "steal": steal.share(), "cases": [case]}


def show(record: dict[str, Any]) -> str:
    """The record as a table."""
    rows: list[list[Any]] = [
        ["contender", "tokens/s", "range", "rows/s", "x GPU step", "regard / it", "range", "first batch s"]
    ]
    (case,) = record["cases"]
    for name, found in case["contenders"].items():
        speed, ratio = found["tokens_per_second"], case.get(f"regard / {name}")
        row = [name, f"{speed['median']:,.0f}", f"{speed['min']:,.0f}-{speed['max']:,.0f}"]
        row += [f"{found['rows_per_second']['median']:,.0f}", f"{found['times_step']['median']:.1f}"]
        row += [f"{ratio['median']:.2f}", f"{ratio['min']:.2f}-{ratio['max']:.2f}"] if ratio else ["", ""]
        rows.append([*row, found["first_batch_s"]])
    return harness.table(rows)


def main() -> None:
    """Read the arguments, make the shards, run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=500_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3.0, help="of a turn")
    parser.add_argument("--quick", action="store_true", help="40 MB, two rounds, nothing written")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        return child(arguments.child, arguments.folder)
    if arguments.quick:
        arguments.tokens, arguments.rounds, arguments.seconds = 20_000_000, 2, 0.5
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the shards are removed then too
    folder = Path(tempfile.mkdtemp(prefix="regard-bench-"))
    sys.path.insert(0, str(harness.HERE.parent / "src"))
    try:
        make(folder / "shards", arguments.tokens)
        record = compare(arguments, folder / "shards")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(show(record))
    if not arguments.quick:
        print("written:", os.path.relpath(harness.write("shards.json", record)))


if __name__ == "__main__":
    main()
