"""Training speed of the Transformer at the base size: ours beside torch.nn.Transformer of the same shape, taking turns.

    python benchmarks/train.py --model transformer          one GPU, bfloat16, both compiled  -> results/train-cuda.json
    python benchmarks/train.py --model transformer --tiny   a tiny model on the CPU, to see that it runs

Both have the same sizes, one tied embedding of 8,000 words, the same smoothed loss, fused AdamW, padding masks for
ragged lengths (half to full), dropout 0.1. Tokens are real target tokens. The fraction of peak is (matrix-product
operations of forward and backward, padding included) / time / (what an 8192³ bfloat16 product reaches in the same run).
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path
from typing import Any

import harness

SHAPES = [(128, 64), (32, 256)]  # sentences, tokens on either side
BASE = {"vocab": 8000, "width": 512, "heads": 8, "ffn": 2048, "layers": 6}
SMALL = {"vocab": 500, "width": 64, "heads": 4, "ffn": 128, "layers": 2}


def regard_model(size: dict[str, int]) -> Any:
    from regard.models import build

    return build(
        "transformer",
        vocab=size["vocab"],
        width=size["width"],
        heads=size["heads"],
        ffn=size["ffn"],
        encoder_layers=size["layers"],
        decoder_layers=size["layers"],
    )


def torch_model(size: dict[str, int]) -> Any:
    import torch
    from torch import nn

    class Peer(nn.Module):
        """torch.nn.Transformer with what it lacks to be trained: embedding, sinusoids, tied head."""

        def __init__(self) -> None:
            super().__init__()
            width = size["width"]
            self.embed = nn.Embedding(size["vocab"], width, padding_idx=0)
            nn.init.normal_(self.embed.weight, std=width**-0.5)
            self.body = nn.Transformer(
                width, size["heads"], size["layers"], size["layers"], size["ffn"], dropout=0.1, batch_first=True
            )
            angle = torch.arange(512)[:, None] / 10000 ** (torch.arange(0, width, 2) / width)
            self.register_buffer("places", torch.stack([angle.sin(), angle.cos()], -1).flatten(1))
            self.drop = nn.Dropout(0.1)

        def vectors(self, tokens: Any) -> Any:
            return self.drop(self.embed(tokens) * self.places.shape[1] ** 0.5 + self.places[: tokens.shape[1]])

        def forward(self, source: Any, target: Any, lengths: Any) -> Any:
            padding = torch.arange(source.shape[1], device=source.device) >= lengths[:, None]
            causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1], device=source.device)
            out = self.body(
                self.vectors(source), self.vectors(target), tgt_mask=causal, tgt_is_causal=True,
                src_key_padding_mask=padding, memory_key_padding_mask=padding,
            )  # fmt: skip
            return out @ self.embed.weight.T

    return Peer()


def child(name: str, device: str, size: dict[str, int], compiled: bool) -> None:
    """Run one contender: build, compile, then train the requested steps."""
    import torch

    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = {"regard": regard_model, "torch.nn.Transformer": torch_model}[name](size).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
    parameters = sum(p.numel() for p in model.parameters())

    def loss(source: Any, target: Any, lengths: Any, labels: Any) -> Any:
        logits = model(source, target, lengths)
        return torch.nn.functional.cross_entropy(
            logits.flatten(0, 1).float(), labels.flatten(), ignore_index=-100, label_smoothing=0.1
        )

    run = torch.compile(loss, dynamic=False) if compiled else loss
    batches: dict[tuple[int, int], tuple[Any, ...]] = {}

    def do(batch: int, length: int, steps: int) -> dict[str, Any]:
        if (batch, length) not in batches:
            generator = torch.Generator().manual_seed(1)
            lengths = torch.randint(length // 2, length + 1, (batch,), generator=generator)
            words = torch.randint(3, size["vocab"], (3, batch, length), generator=generator)
            padding = torch.arange(length) >= lengths[:, None]
            source, target, wanted = words.masked_fill(padding, 0)
            made = source, target, lengths, wanted.masked_fill(padding, -100)
            batches[batch, length] = tuple(x.to(device) for x in made)
        inputs = batches[batch, length]
        if device == "cuda":
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        began = time.perf_counter()
        for _ in range(steps):
            with torch.autocast("cuda", dtype=torch.bfloat16, enabled=device == "cuda"):
                value = run(*inputs)
            value.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        last = float(value)  # waits for the device
        seconds = time.perf_counter() - began
        found = {"seconds": seconds, "tokens": int(inputs[2].sum()) * steps, "loss": last, "parameters": parameters}
        if device == "cuda":
            found["peak_mib"] = round(torch.cuda.max_memory_allocated() / 2**20, 1)
        return found

    harness.serve_requests(do)


def peak() -> float:
    """Return the operations per second of a large bfloat16 product."""
    import torch

    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    best = 0.0
    for _ in range(5):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(10):
            a @ b
        torch.cuda.synchronize()
        best = max(best, 10 * 2 * 8192**3 / (time.perf_counter() - began))
    return best


def operations(size: dict[str, int], batch: int, length: int) -> float:
    """Return the operations of the matrix products of one step; backward counts twice, causal attention half."""
    width, ffn, layers = size["width"], size["ffn"], size["layers"]
    encoder, decoder = 4 * width**2 + 2 * width * ffn, 8 * width**2 + 2 * width * ffn
    linear = 2 * batch * length * (layers * (encoder + decoder) + width * size["vocab"])
    attention = 4 * batch * length**2 * width * layers * (1 + 0.5 + 1)
    return 3.0 * (linear + attention)


def main(arguments: argparse.Namespace) -> None:
    """Run and write; the arguments are train.py's."""
    device, size = ("cpu", SMALL) if arguments.tiny else ("cuda", BASE)
    if arguments.child:
        return child(arguments.child, device, size, compiled=not arguments.tiny)
    shapes = [(4, 16)] if arguments.tiny else SHAPES
    number, steps = (2, 2) if arguments.tiny else (arguments.rounds, 2 * arguments.steps)
    top = math.nan if arguments.tiny else peak()
    record: dict[str, Any] = harness.machine(device) | {"size": size, "matmul_peak_tflops": round(top / 1e12, 1)}
    passed = ["--model", "transformer", *(["--tiny"] if arguments.tiny else [])]
    names = ["regard", "torch.nn.Transformer"]
    children = [harness.Child(name, str(Path(sys.argv[0]).resolve()), passed, 2) for name in names]
    cases = []
    for batch, length in shapes:
        harness.rounds(children, 1, batch=batch, length=length, steps=3)  # compiles
        turns = harness.rounds(children, number, batch=batch, length=length, steps=steps)
        speed = {name: [turn[name]["tokens"] / turn[name]["seconds"] for turn in turns] for name in names}
        case: dict[str, Any] = {"batch": batch, "length": length, "contenders": {}}
        work = operations(size, batch, length) * steps
        for name in names:
            seconds = [turn[name]["seconds"] for turn in turns]
            row: dict[str, Any] = {"tokens_per_second": harness.median_and_range(speed[name])}
            row["fraction_of_peak"] = (
                harness.median_and_range([work / s / top for s in seconds]) if top == top else None
            )
            row["parameters"] = turns[0][name]["parameters"]
            row |= {key: turns[0][name][key] for key in ("peak_mib",) if key in turns[0][name]}
            case["contenders"][name] = row
        ratio = [a / b for a, b in zip(speed[names[0]], speed[names[1]], strict=True)]
        case["regard / torch.nn.Transformer"] = harness.median_and_range(ratio)
        cases.append(case | harness.lap())
        for name in names:
            row = case["contenders"][name]
            share = row["fraction_of_peak"]["median"] if row["fraction_of_peak"] else math.nan
            print(f"{batch} x {length}  {name:22} {row['tokens_per_second']['median']:>10,.0f} tokens/s  {share:.3f}")
        print(f"{batch} x {length}  ours / theirs {case['regard / torch.nn.Transformer']}", file=sys.stderr)
    for one in children:
        one.close()
    if not arguments.tiny:
        print("written:", harness.write("train-cuda.json", record | {"rounds": number, "cases": cases}).name)
