"""Recurrent translators: beam search and training, Regard against plain PyTorch with the same weights, taking turns.

    python benchmarks/recurrent.py                     CPU, float32, 1 thread     -> results/recurrent-cpu.json
    python benchmarks/recurrent.py --device cuda       GPU; training in bfloat16  -> results/recurrent-cuda.json
    add --quick for seconds (small models, nothing written)

Decoding: a GRU with additive attention of RNNsearch's small size; 20 source tokens, 32 target tokens, eos ruled out;
the reader is in the time. Beside it the per-step Python loop of tutorials with copied beams, a sentence at a time
("loop"), and the same with all sentences of the batch side by side ("batched loop"). `same` counts the sentences that
equal ours.

Training: that model and Luong's with input feeding (LSTM), each beside plain PyTorch in the layout of tutorials and of
OpenNMT: loss, gradient, clipping, AdamW; no dropout, so that the first losses must be equal. Luong's without input
feeding, which has no loop at all, stands beside them. Tokens are real target tokens.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

import harness

SOURCE, TARGET = 20, 32  # tokens
DECODING = {"cpu": [(1, 4), (16, 1), (16, 4), (64, 4)], "cuda": [(16, 4), (64, 1), (64, 4)]}
TRAINING = {"cpu": [(64, 16)], "cuda": [(256, 24)]}  # sentences, tokens on either side
SIZE = {"vocab": 8000, "width": 256, "hidden": 512}
SMALL = {"vocab": 300, "width": 32, "hidden": 32}
DECODERS = ["regard", "loop", "batched loop"]
TRAINERS = {
    "rnnsearch": ["regard: rnnsearch", "plain: rnnsearch"],
    "luong": ["regard: luong", "plain: luong", "regard: luong, no input feeding"],
}


def model(kind: str, size: dict[str, int]) -> Any:
    """Return Regard's model with weights of a fixed seed."""
    import torch

    from regard.models import build

    torch.manual_seed(0)
    shared: dict[str, Any] = {"dropout": 0.0, "tied": True, "readout": None, "encoder": "gru"}
    if kind == "rnnsearch":
        return build(kind, **size, align_width=size["width"], **shared)
    shared |= {
        "cell": "lstm",
        "encoder": "lstm",
        "layers": 1,
        "decoder": "no_input_feeding" if kind.endswith("no input feeding") else "input_feeding",
    }
    return build("luong", **size, **shared)


# -- the contenders, each in a process of its own ----------------------------------------------------------------------


def decode_child(name: str, device: str, size: dict[str, int]) -> None:
    """Run one contender in decoding."""
    import torch
    from plain_recurrent import PlainRNNsearch

    from regard.decoding.beam_search import beam_search, greedy_search
    from regard.runtime import inference

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    built = model("rnnsearch", size).eval()
    with torch.no_grad():  # sharper than fresh weights, so that beams differ by more than rounding
        built.embed.weight.mul_(4.0)
    plain = PlainRNNsearch(built).to(device).eval()
    prepared = inference.pack_weights(built.to(device))

    def decode(source: Any, lengths: Any, beams: int) -> list[list[int]]:
        if name == "loop":
            rows = zip(source, lengths, strict=True)
            return [plain.beam_one(row, length, beams, TARGET) for row, length in rows]
        if name == "batched loop":
            return plain.beam_batch(source, lengths, beams, TARGET)
        options: dict[str, Any] = {"max_length": TARGET, "banned_tokens": [0, built.eos]}
        if beams == 1:
            return [hypothesis.tokens for hypothesis in greedy_search(prepared, source, lengths, **options)]
        return [best[0].tokens for best in beam_search(prepared, source, lengths, beam_size=beams, **options)]

    def do(batch: int, beams: int) -> dict[str, Any]:
        source = torch.randint(3, size["vocab"], (batch, SOURCE), generator=torch.Generator().manual_seed(1))
        source, lengths = source.to(device), torch.full((batch,), SOURCE, device=device)
        if device == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter()
        tokens = decode(source, lengths, beams)
        return {"seconds": time.perf_counter() - began, "tokens": tokens}

    harness.serve_requests(do)


def train_child(name: str, device: str, size: dict[str, int]) -> None:
    """Run one contender in training."""
    import torch
    from plain_recurrent import PlainLuong, PlainRNNsearch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.set_float32_matmul_precision("high")
    library, kind = name.split(": ")
    built = model(kind, size)
    if library == "plain":
        built = (PlainRNNsearch if kind == "rnnsearch" else PlainLuong)(built)
    built = built.to(device).train()
    parameters = list(built.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=True)

    def do(batch: int, length: int, steps: int) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(1)
        lengths = torch.randint(length // 2, length + 1, (batch,), generator=generator)
        token_ids = torch.randint(3, size["vocab"], (3, batch, length), generator=generator)
        source, target, labels = token_ids.masked_fill(torch.arange(length) >= lengths[:, None], 0)
        labels = labels.masked_fill(labels == 0, -100)
        inputs = [x.to(device) for x in (source, target, lengths, labels)]
        if device == "cuda":
            torch.cuda.synchronize()
        first, began = None, time.perf_counter()
        for _ in range(steps):
            source, target, lengths, labels = inputs
            with torch.autocast("cuda", dtype=torch.bfloat16, enabled=device == "cuda"):
                logits = built(source, target, lengths)
                loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            first = loss.detach() if first is None else first
        last = float(loss.detach())  # waits for the device
        seconds, tokens = time.perf_counter() - began, int(inputs[2].sum()) * steps
        assert first is not None
        return {"seconds": seconds, "tokens": tokens, "first": float(first), "last": last}

    harness.serve_requests(do)


# -- comparison --------------------------------------------------------------------------------------------------------


def decoding(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Time decoding for every batch and beam size, all contenders in turn."""
    children = [harness.Child(name, __file__, _child_options(arguments), arguments.threads) for name in DECODERS]
    cases = []
    for batch, beams in [(4, 3)] if arguments.quick else DECODING[arguments.device]:
        harness.rounds(children, 2 if arguments.device == "cuda" else 1, batch=batch, beams=beams)
        turns = harness.rounds(children, arguments.rounds, batch=batch, beams=beams)
        case: dict[str, Any] = {"batch": batch, "beam_size": beams, "contenders": {}}
        for name in DECODERS:
            seconds = [turn[name]["seconds"] for turn in turns]
            same = sum(a == b for a, b in zip(turns[0]["regard"]["tokens"], turns[0][name]["tokens"], strict=True))
            speed = harness.median_and_range([batch * TARGET / s for s in seconds])
            ratio = harness.median_and_range(
                [s / turn["regard"]["seconds"] for s, turn in zip(seconds, turns, strict=True)]
            )
            case["contenders"][name] = {
                "tokens_per_second": speed,
                "regard_speedup": ratio,
                "same_outputs": f"{same}/{batch}",
            }
        cases.append(case | harness.lap())
    for process in children:
        process.close()
    return cases


def training(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Time training, all contenders in turn; the first losses must be equal."""
    cases = []
    for kind, names in TRAINERS.items():
        children = [harness.Child(name, __file__, _child_options(arguments), arguments.threads) for name in names]
        for batch, length in [(4, 6)] if arguments.quick else TRAINING[arguments.device]:
            steps = 2 if arguments.quick else 20 if arguments.device == "cuda" else 4
            warm_up = harness.rounds(children, 1, batch=batch, length=length, steps=2)
            turns = harness.rounds(children, arguments.rounds, batch=batch, length=length, steps=steps)
            case: dict[str, Any] = {"model": kind, "batch": batch, "length": length, "contenders": {}}
            for name in names:
                speed = [turn[name]["tokens"] / turn[name]["seconds"] for turn in turns]
                ratio = [turn[name]["seconds"] / turn[names[0]]["seconds"] for turn in turns]
                row = {
                    "tokens_per_second": harness.median_and_range(speed),
                    "regard_speedup": harness.median_and_range(ratio),
                }
                case["contenders"][name] = row | {"first_loss": warm_up[0][name]["first"]}
            cases.append(case | harness.lap())
        for process in children:
            process.close()
    return cases


def _child_options(arguments: argparse.Namespace) -> list[str]:
    return ["--device", arguments.device, *(["--quick"] if arguments.quick else [])]


def show(record: dict[str, Any]) -> str:
    """Format both tables."""
    rows = [["decoding", "contender", "tokens/s", "Regard speedup", "same_outputs"]]
    for case in record["decoding"]:
        for name, row in case["contenders"].items():
            middle = row["tokens_per_second"]["median"], row["regard_speedup"]["median"]
            rows.append([f"{case['batch']} x {case['beam_size']}", name, *map(str, middle), row["same_outputs"]])
    training_rows = [["training", "contender", "tokens/s", "Regard speedup", "first loss"]]
    for case in record["training"]:
        for name, row in case["contenders"].items():
            middle = row["tokens_per_second"]["median"], row["regard_speedup"]["median"]
            training_rows.append(
                [f"{case['batch']} x {case['length']}", name, *map(str, middle), f"{row['first_loss']:.4f}"]
            )
    return harness.table(rows) + "\n\n" + harness.table(training_rows)


def main() -> None:
    """Run, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="small models, two rounds, nothing written")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    size = SMALL if arguments.quick else SIZE
    if arguments.child:
        return (decode_child if arguments.child in DECODERS else train_child)(arguments.child, arguments.device, size)
    arguments.rounds = 2 if arguments.quick else arguments.rounds
    steal = harness.Steal()
    record: dict[str, Any] = harness.machine(arguments.device) | {
        "size": size,
        "source_tokens": SOURCE,
        "target_tokens": TARGET,
        "threads": arguments.threads,
        "rounds": arguments.rounds,
        "decoding": decoding(arguments),
        "training": training(arguments),
    }
    record["steal"] = steal.share()
    print(show(record))
    if not arguments.quick:
        written = harness.write(f"recurrent-{arguments.device}.json", record)
        print("written:", os.path.relpath(written, Path.cwd()), file=sys.stderr)


if __name__ == "__main__":
    main()
