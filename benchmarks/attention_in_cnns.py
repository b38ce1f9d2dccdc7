"""The rows of docs/how/attention-in-cnns.md: parameters, multiply-adds, and time of a forward pass and of an update.

    python benchmarks/attention_in_cnns.py                    one CPU core, 16 images: forward passes
    python benchmarks/attention_in_cnns.py --device cuda      256 images, bfloat16, compiled: forward and gradient

Models are those of the recipes equal_cost_*. Times are medians of alternating passes, as ratios to the ResNet's.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from regard.cost.meta_model import InputShape
from regard.cost.passes import ExecutionPlan, forward_pass
from regard.training.recipe import build, load_recipe

ROWS = {
    "ResNet-18 of 36 channels": "resnet",
    "+ squeeze-and-excitation": "se",
    "+ self-attention": "self_attention",
    "local relation": "local_relation",
    "Learn to Pay Attention": "pay_attention",
    "patches of 4 x 4": "patches",
    "patches by convolution (CCT)": "compact",
    "grey pixels, 1,024 tokens": "pixels",
}
PASSES = 9


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    on_gpu = parser.parse_args().device == "cuda"
    torch.set_num_threads(1)
    torch.manual_seed(0)
    models = {row: build(load_recipe(f"equal_cost_{name}").model) for row, name in ROWS.items()}
    runs: dict[str, dict[str, Callable[[], Any]]] = {"forward": {}, "gradient": {}}
    for row, model in models.items():
        images = torch.randn(256 if on_gpu else 16, model.config.channels, 32, 32)  # type: ignore[union-attr, arg-type]
        runs["forward"][row] = forward(model, images, on_gpu)
        if on_gpu:
            runs["gradient"][row] = gradient(model, images)
    found = {kind: medians(some, on_gpu) for kind, some in runs.items() if some}
    kinds = [f"{kind}, ratio" for kind in found] + [f"{kind}, ms for a batch" for kind in found]
    head = ("model", "parameters, M", "multiply-adds, G", *kinds)
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    first = next(iter(models))
    for row, model in models.items():
        work = forward_pass(model.config, InputShape(batch=1), ExecutionPlan()).operations("forward") / 2e9
        size = sum(p.numel() for p in model.parameters()) / 1e6
        cells = [f"{times[row] / times[first]:.1f}" for times in found.values()]
        cells += [f"{times[row]:.1f}" for times in found.values()]
        print(f"| {row} | {size:.2f} | {work:.2f} | {' | '.join(cells)} |")


def forward(model: torch.nn.Module, images: torch.Tensor, on_gpu: bool) -> Callable[[], Any]:
    """Return a forward pass in eval mode, on a GPU of a copy of its own."""
    import copy

    own = copy.deepcopy(model).eval()
    if not on_gpu:
        return torch.no_grad()(lambda: own(images))
    call, given = torch.compile(own.cuda()), images.cuda()

    @torch.no_grad()
    def run() -> None:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            call(given)

    return run


def gradient(model: torch.nn.Module, images: torch.Tensor) -> Callable[[], Any]:
    """Return a forward and backward pass on a GPU in training mode."""
    import copy

    own = copy.deepcopy(model).train().cuda()
    call, given = torch.compile(own), images.cuda()

    def run() -> None:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            out = call(given)
        out.float().square().mean().backward()

    return run


def medians(runs: dict[str, Callable[[], Any]], on_gpu: bool) -> dict[str, float]:
    """Return the milliseconds of each run, run in turn."""
    times: dict[str, list[float]] = {row: [] for row in runs}
    for _ in range(PASSES + 3 * on_gpu):
        for row, run in runs.items():
            if on_gpu:
                torch.cuda.synchronize()
            start = time.perf_counter()
            run()
            if on_gpu:
                torch.cuda.synchronize()
            times[row].append(1000 * (time.perf_counter() - start))
    return {row: statistics.median(values[1 + 3 * on_gpu :]) for row, values in times.items()}


if __name__ == "__main__":
    main()
