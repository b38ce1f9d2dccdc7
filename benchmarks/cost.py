"""What `regard cost` says beside what is: peak memory and operations of real updates, and on a GPU their time.

    python benchmarks/cost.py                   CPU: the allocator's record, torch's counter -> results/cost-cpu.json
    python benchmarks/cost.py --device cuda     GPU: eager and compiled, and seconds         -> results/cost-cuda.json
    add --quick for seconds (four small cases, no file written)

Memory is what an update holds at its fullest moment, weights, gradients and moments with it. On a CPU it is the sum of
the allocator's own events (torch.profiler), on a GPU its own peak (torch.cuda.max_memory_allocated). Operations are
those of torch.utils.flop_counter. Both are asked of a second update, when all that is made once is there.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from typing import Any

import harness
import torch
from torch.utils.flop_counter import FlopCounterMode

from regard.cost import imagine
from regard.cost.devices import DEVICES, device_of, hopes_of
from regard.cost.estimate import Ask, estimate
from regard.cost.imagine import Shape, config_of, named
from regard.cost.passes import Way, _optimiser, training
from regard.training.spread import recompute_blocks

STILL = ["dropout=0", "attention_dropout=0"]  # a CPU has no fused attention with dropout
CALM = ["drop_path=0"]  # whole branches left out at random keep more or less
CASES: dict[str, list[tuple[str, list[str], Shape, Way]]] = {
    "cpu": [
        ("transformer:base", [], Shape(batch=8, length=50), Way("float32")),
        ("transformer:base", [], Shape(batch=8, length=50), Way("bfloat16")),
        ("transformer:base", [], Shape(batch=8, length=50), Way("float32", recompute=True)),
        ("transformer:small", [], Shape(batch=16, length=40), Way("float32", accumulate=2)),
        ("gpt:char", ["vocab=65", *STILL], Shape(batch=8, length=256), Way("float32")),
        ("gpt:char", ["vocab=65", *STILL], Shape(batch=8, length=256), Way("bfloat16")),
        ("gpt:char", ["vocab=65", *STILL], Shape(batch=8, length=256), Way("bfloat16", recompute=True)),
        ("gpt:gpt2", ["vocab=50257", *STILL], Shape(batch=1, length=512), Way("float32")),
        ("gpt:gpt2", ["vocab=50257", *STILL], Shape(batch=1, length=512), Way("float32", optimiser="muon")),
        ("gpt:gpt2", ["vocab=50257", *STILL], Shape(batch=1, length=512), Way("float32", optimiser="adafactor")),
        ("rnnsearch:small", [], Shape(batch=16, length=20), Way("float32")),
        ("vit:s16", [], Shape(batch=4), Way("float32")),
        ("vit:s16", [], Shape(batch=4), Way("float32", recompute=True)),
        ("vit:r26-s32", [], Shape(batch=4), Way("float32")),
        ("deit:ti16", [], Shape(batch=4), Way("float32")),
        ("swin:t", CALM, Shape(batch=2), Way("float32")),
        ("swinv2:t", CALM, Shape(batch=2), Way("float32")),
        ("mvit:t", CALM, Shape(batch=2), Way("float32")),
        ("resnet:50", [], Shape(batch=4), Way("float32")),
        ("cct:7-3x1", [*CALM, "attention_dropout=0"], Shape(batch=16), Way("float32")),
    ],
    "cuda": [
        ("transformer:base", [], Shape(batch=64, length=64), Way()),
        ("transformer:big", [], Shape(batch=64, length=64), Way()),
        ("gpt:gpt2", ["vocab=50304", *STILL], Shape(batch=32, length=1024), Way()),
        ("gpt:gpt2", ["vocab=50304", *STILL], Shape(batch=32, length=1024), Way(recompute=True)),
        ("gpt:gpt2", ["vocab=50304", *STILL], Shape(batch=32, length=1024), Way("float32")),
        ("gpt:medium", ["vocab=50304", *STILL], Shape(batch=16, length=1024), Way()),
        ("gpt:xl", ["vocab=50304", *STILL], Shape(batch=8, length=1024), Way(recompute=True)),
        ("gpt:xl", ["vocab=50304", *STILL], Shape(batch=8, length=1024), Way(optimiser="muon")),
        ("vit:b16", [], Shape(batch=128), Way()),
        ("vit:b16", [], Shape(batch=128), Way(recompute=True)),
        ("vit:l16", [], Shape(batch=64), Way()),
        ("swin:t", CALM, Shape(batch=128), Way()),
        ("swinv2:t", CALM, Shape(batch=64), Way()),
        ("mvit:t", CALM, Shape(batch=64), Way()),
        ("resnet:50", [], Shape(batch=128), Way()),
    ],
}
QUICK = [
    ("transformer:tiny", [], Shape(batch=8, length=20), Way("float32")),
    ("gpt:tiny", [], Shape(batch=8), Way("float32")),
    ("vit:tiny", [], Shape(batch=8), Way("float32")),
    ("resnet:tiny", [], Shape(batch=8), Way("float32")),
]


class Real:
    """A model that is there."""

    def __init__(self, config: Any, shape: Shape, way: Way, device: str, compiled: bool = False) -> None:
        torch.manual_seed(0)
        self.model, self.way, self.device = imagine.build(config).train().to(device), way, device
        self.batch = {name: x.to(device) for name, x in imagine.feed(self.model, shape).items()}
        if way.recompute:
            recompute_blocks(self.model)
        self.optimiser = _optimiser(self.model, way.optimiser)
        if compiled:
            self.model.compile()

    def loss(self) -> torch.Tensor:
        with torch.autocast(self.device, torch.bfloat16, self.way.precision == "bfloat16"):
            return imagine.loss(self.model, self.batch, host=self.device == "cpu")

    def update(self) -> None:
        for _ in range(self.way.accumulate):
            (self.loss() / 2).backward()
        self.optimiser.step(1e-3)

    def operations(self) -> int:
        with FlopCounterMode(display=False) as counter:
            self.loss().backward()
        self.model.zero_grad(set_to_none=True)
        return int(counter.get_total_flops())

    def peak(self) -> int:
        """Bytes beside weights and moments (CPU), or with them (GPU)."""
        self.update()
        if self.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
            self.update()
            return torch.cuda.max_memory_allocated()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
            self.update()
        events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
        now = most = 0
        for event in sorted(events, key=lambda e: e.start_ns()):
            now += event.nbytes()
            most = max(most, now)
        return most

    def seconds(self, times: int = 20) -> float:
        taken = []
        for _ in range(times):
            torch.cuda.synchronize()
            began = time.perf_counter()
            self.update()
            torch.cuda.synchronize()
            taken.append(time.perf_counter() - began)
        return statistics.median(taken[times // 4 :])


def compare(word: str, settings: list[str], shape: Shape, way: Way, device: str) -> dict[str, Any]:
    """One case: imagined, and real."""
    config = config_of(*named(word), settings)
    found = training(config, shape, Way(**vars(way) | {"host": device == "cpu"}))
    apart = 4 * found.total + found.buffers + found.state
    ours = {"memory_mib": (apart + sum(found.peak.values())) / 2**20}
    ours["gigaoperations"] = found.operations("forward", "loss", "backward") / 1e9
    contenders = {"imagined": ours}
    for form in ("eager", "compiled") if device == "cuda" else ("eager",):
        before = torch.cuda.memory_allocated() if device == "cuda" else 0
        real = Real(config, shape, way, device, form == "compiled")
        there: dict[str, float] = {}
        if form == "eager":
            there["gigaoperations"] = real.operations() / 1e9
        there["memory_mib"] = (real.peak() - before + (apart if device == "cpu" else 0)) / 2**20
        if device == "cuda":
            there["milliseconds"] = 1e3 * real.seconds()
        contenders[form] = there
        del real
        gc.collect()
        torch.cuda.empty_cache() if device == "cuda" else None
    if device == "cuda":
        card = next((d for d in DEVICES.values() if d.name.split()[0] in torch.cuda.get_device_name()), None)
        card = card or device_of("here")
        asked = Ask(
            config, shape, device=card, precision=way.precision, recompute=way.recompute, optimiser=way.optimiser,
            hopes=hopes_of(card),
        )  # fmt: skip
        ours["milliseconds"] = 1e3 * estimate(asked).seconds
    how = (
        [way.precision]
        + (["recompute"] if way.recompute else [])
        + ([way.optimiser] if way.optimiser != "adamw" else [])
    )
    how += [f"{way.accumulate} passes"] if way.accumulate > 1 else []
    case: dict[str, Any] = {
        "model": word,
        "rows": " x ".join(map(str, (shape.batch, *_each(config, shape)))),
        "how": ", ".join(how),
    }
    case["contenders"] = {
        name: {key: float(f"{value:.5g}") for key, value in numbers.items()} for name, numbers in contenders.items()
    }
    for name in contenders:
        if name != "imagined":
            ratio = contenders["imagined"]["memory_mib"] / contenders[name]["memory_mib"]
            case[f"imagined / {name}"] = {"median": round(ratio, 4), "min": round(ratio, 4), "max": round(ratio, 4)}
    return case


def _each(config: Any, shape: Shape) -> tuple[int, ...]:
    """How large a row is: tokens, or rows and columns of pixels."""
    return imagine.picture(config, shape)[1:] if hasattr(config, "image") else (shape.length or config.length,)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    record = harness.machine(arguments.device)
    record["cases"] = []
    for case in QUICK if arguments.quick else CASES[arguments.device]:
        record["cases"].append(compare(*case, arguments.device))
        print(record["cases"][-1], flush=True)
    if not arguments.quick:
        harness.write(f"cost-{arguments.device}.json", record)


if __name__ == "__main__":
    main()
