"""The rows of docs/how/attention-in-cnns.md: parameters, multiply-adds and inference time on one CPU core.

    python benchmarks/attention_in_cnns.py

Times are medians of alternating passes of 16 images, as ratios to the ResNet.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch

from regard.cost.meta_model import InputShape
from regard.cost.passes import ExecutionPlan, forward_pass
from regard.models import build

NARROW = "18-cifar-narrow"
_PATCHES = {"num_classes": 10, "image_size": 32, "patch_size": 4, "width": 256, "heads": 4, "layers": 5, "ffn": 512}
_PIXELS = {"num_classes": 10, "image_size": 32, "channels": 1, "patch_size": 1, "num_prefix_tokens": 0, "pool": "mean"}
ROWS: dict[str, tuple[str, str | None, dict[str, Any]]] = {
    "ResNet-18 of 36 channels": ("resnet", NARROW, {}),
    "+ squeeze-and-excitation": ("resnet", NARROW, {"squeeze_excitation": True}),
    "+ self-attention": ("resnet", NARROW, {"non_local": (1, 2)}),
    "local relation": ("lr_net", "26-cifar-narrow", {}),
    "Learn to Pay Attention": ("learn_to_pay_attention", "narrow", {}),
    "patches of 4 x 4": ("vit", None, _PATCHES),
    "grey pixels, 1,024 tokens": ("vit", None, {**_PIXELS, "width": 32, "heads": 2, "layers": 2, "ffn": 128}),
}
PASSES, IMAGES = 9, 16


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    models = {row: build(name, size=size, **settings).eval() for row, (name, size, settings) in ROWS.items()}
    times: dict[str, list[float]] = {row: [] for row in models}
    with torch.no_grad():
        for _ in range(PASSES):
            for row, model in models.items():
                images = torch.randn(IMAGES, model.config.channels, 32, 32)  # type: ignore[union-attr, arg-type]
                start = time.perf_counter()
                model(images)
                times[row].append(time.perf_counter() - start)
    first = statistics.median(next(iter(times.values()))[1:])
    print("| model | parameters, M | multiply-adds, G | CPU time, ratio |\n|---|---|---|---|")
    for row, model in models.items():
        work = forward_pass(model.config, InputShape(batch=1), ExecutionPlan()).operations("forward") / 2e9
        size = sum(p.numel() for p in model.parameters()) / 1e6
        print(f"| {row} | {size:.2f} | {work:.2f} | {statistics.median(times[row][1:]) / first:.1f} |")


if __name__ == "__main__":
    main()
