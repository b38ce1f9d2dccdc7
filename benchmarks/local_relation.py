"""Local relation layers on a GPU: the kernels beside the plain form, the form with unfold, and a convolution.

    python benchmarks/local_relation.py            -> results/local-relation-cuda.json

Forward and backward of one layer, at the places it has in LR-Net-26 for 32 x 32 images (256 a batch) and in LR-Net-50
for 224 x 224 (32 a batch), float32 and bfloat16 (autocast). Of a form eager and compiled the faster counts.
Medians of 20 runs, the contenders in turn. `convolution` is the 3 x 3 convolution of the same width that the layer
replaces in a ResNet, `convolution_7` one of the layer's own reach.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from typing import Any

import harness
import torch
import torch.nn.functional as F
from torch import nn

from regard.blocks.local_relation import LocalRelation

PLACES = {  # batch, channels, side, stride
    "26-cifar stage 1": (256, 48, 32, 1),
    "26-cifar stage 2": (256, 96, 16, 1),
    "26-cifar stage 4": (256, 384, 4, 1),
    "50 stage 1": (32, 100, 56, 1),
    "50 stage 2, first": (32, 200, 56, 2),
    "50 stage 3": (32, 400, 14, 1),
}
ROUNDS = 20


def unfold_form(layer: LocalRelation, x: torch.Tensor) -> torch.Tensor:
    """The paper's formula with every neighbourhood copied."""
    channels, kernel, stride, shared = x.shape[1], layer.kernel, layer.stride, layer.shared

    def neighbours(grid: torch.Tensor) -> torch.Tensor:
        return F.unfold(grid, kernel, padding=kernel // 2, stride=stride).unflatten(1, (grid.shape[1], -1))

    q = layer.query(x)[:, :, ::stride, ::stride]
    scores = q.flatten(2)[:, :, None] * neighbours(layer.key(x)) + layer.prior().T[None, :, :, None]
    outside = neighbours(torch.ones_like(x[:1, :1]))[:, :1] == 0
    weights = scores.masked_fill(outside, float("-inf")).softmax(2)
    each = weights.repeat_interleave(shared, 1)[:, :channels]
    out: torch.Tensor = layer.out((each * neighbours(x)).sum(2).unflatten(2, q.shape[2:]))
    return out


def contenders(channels: int, stride: int) -> dict[str, Callable[[torch.Tensor], torch.Tensor]]:
    """Return all forms of a layer, and the convolutions."""
    layer = LocalRelation(channels, 7, stride).cuda()
    plain = LocalRelation(channels, 7, stride).cuda()
    plain.load_state_dict(layer.state_dict())
    setattr(plain, "_can_fuse", lambda x: False)  # noqa: B010
    convolutions = {
        name: nn.Conv2d(channels, channels, side, stride, side // 2, bias=False).cuda()
        for name, side in (("convolution", 3), ("convolution_7", 7))
    }
    return {"kernels": layer, "plain": plain, "unfold": lambda x: unfold_form(layer, x), **convolutions}


def timed(run: Callable[[], Any]) -> float:
    """Return the milliseconds of one run on the device."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    run()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end)


def main() -> None:
    """Time, write the numbers and print a line for each place."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-compile", action="store_true", help="only eager forms: a quarter of the time")
    parser.add_argument("--quick", action="store_true", help="two places, eager; nothing is written")
    args = parser.parse_args()
    plain_only = args.no_compile or args.quick
    rows = []
    for place, (batch, channels, side, stride) in list(PLACES.items())[: 2 if args.quick else None]:
        for dtype in (torch.float32, torch.bfloat16):
            forms = contenders(channels, stride)
            x = torch.randn(batch, channels, side, side, device="cuda", requires_grad=True)
            runs: dict[str, Callable[[], Any]] = {}
            for name, form in forms.items():
                for how, call in (("eager", form), *([] if plain_only else [("compiled", torch.compile(form))])):

                    def run(call: Callable[[torch.Tensor], torch.Tensor] = call) -> None:
                        with torch.autocast("cuda", dtype=dtype, enabled=dtype != torch.float32):  # noqa: B023
                            out = call(x)  # noqa: B023
                        out.backward(torch.ones_like(out))

                    runs[f"{name} {how}"] = run
            for run in runs.values():
                for _ in range(3):
                    run()
            times: dict[str, list[float]] = {name: [] for name in runs}
            for _ in range(ROUNDS):
                for name, run in runs.items():
                    times[name].append(timed(run))
            median = {name: statistics.median(values) for name, values in times.items()}
            best = {name: min(value for key, value in median.items() if key.split()[0] == name) for name in forms}
            rows.append({
                "place": place, "batch": batch, "channels": channels, "side": side, "stride": stride,
                "dtype": str(dtype).removeprefix("torch."), "milliseconds": median,
                "over_unfold": best["unfold"] / best["kernels"], "over_plain": best["plain"] / best["kernels"],
                "of_convolution": best["kernels"] / best["convolution"],
            })  # fmt: skip
            print(
                f"{place} {rows[-1]['dtype']}: " + ", ".join(f"{name} {value:.2f} ms" for name, value in best.items())
            )
            print(f"  {rows[-1]['over_unfold']:.1f} x unfold, {rows[-1]['of_convolution']:.1f} x a convolution's time")
    if not args.quick:
        print(harness.write("local-relation-cuda.json", {**harness.machine("cuda"), "layers": rows}))


if __name__ == "__main__":
    main()
