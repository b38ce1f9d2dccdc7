"""The table of docs/how/glimpses.md: the cost of an image against its size, by glimpses and by convolution.

    python benchmarks/glimpses.py

RAM is that of its recipe for images of 60 x 60, the CNN a narrow ResNet-18 for small images, both untrained: cost does
not depend on the weights. Times are medians over alternating passes of processor time, of one thread, for one image.
"""

from __future__ import annotations

import statistics
import time

import torch
from torch.utils.flop_counter import FlopCounterMode

from regard.models import build

SIDES, PASSES, IMAGES = (28, 60, 120, 240), 9, 4


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    models = {
        "RAM": build("ram", size="large", num_classes=10).eval(),
        "ResNet-18": build("resnet", size="18-cifar-narrow", num_classes=10, channels=1).eval(),
    }
    print("| image | " + " | ".join(f"{name}, M multiply-adds | {name}, ms" for name in models) + " |")
    print("|---" * (1 + 2 * len(models)) + "|")
    with torch.inference_mode():
        for side in SIDES:
            images, times = torch.randn(IMAGES, 1, side, side), {name: [] for name in models}
            for _ in range(PASSES):
                for name, model in models.items():
                    start = time.process_time()
                    model(images)
                    times[name].append(1000 * (time.process_time() - start) / IMAGES)
            cells = []
            for name, model in models.items():
                with FlopCounterMode(display=False) as counter:
                    model(images[:1])
                cells += [f"{counter.get_total_flops() / 2e6:.1f}", f"{statistics.median(times[name][1:]):.1f}"]
            print(f"| {side} x {side} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
