"""What `regard cost` says beside what is: peak memory and operations of real updates, and on a GPU their time.

    python benchmarks/cost.py                   CPU: the allocator's record, torch's counter -> results/cost-cpu.json
    python benchmarks/cost.py --device cuda     GPU: eager, compiled, CUDA graph; seconds    -> results/cost-cuda.json
    add --quick for seconds (four small cases, no file written)
    --models transformer:base,vit:b16           these alone, nothing written

Memory is what an update holds at its fullest moment, weights, gradients and moments with it. On a CPU it is the sum of
the allocator's own events (torch.profiler), on a GPU its own peak (torch.cuda.max_memory_allocated). Operations are
those of torch.utils.flop_counter. Both are asked of a second update, when all that is made once is there. The form
"graph" is the whole compiled update as one CUDA graph, as `regard train` runs it; "estimated time / it" is the time
that `regard cost` foretells over the measured one: 1.25 is a quarter too much.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

import harness
import torch
from torch.utils.flop_counter import FlopCounterMode

from regard.cost import meta_model
from regard.cost.devices import DEVICES, efficiency_of, find_device
from regard.cost.estimate import Scenario, estimate
from regard.cost.meta_model import InputShape, parse_model_name, resolve_config
from regard.cost.passes import ExecutionPlan, build_optimizer, training_step
from regard.training.parallel.parallelize import enable_gradient_checkpointing

NO_DROPOUT = ["dropout=0", "attention_dropout=0"]  # a CPU has no fused attention with dropout
NO_DROP_PATH = ["drop_path=0"]  # whole branches left out at random keep more or less
CASES: dict[str, list[tuple[str, list[str], InputShape, ExecutionPlan]]] = {
    "cpu": [
        ("transformer:base", [], InputShape(batch=8, length=50), ExecutionPlan("float32")),
        ("transformer:base", [], InputShape(batch=8, length=50), ExecutionPlan("bfloat16")),
        ("transformer:base", [], InputShape(batch=8, length=50), ExecutionPlan("float32", recompute=True)),
        ("transformer:small", [], InputShape(batch=16, length=40), ExecutionPlan("float32", accumulate=2)),
        ("gpt:char", ["vocab=65", *NO_DROPOUT], InputShape(batch=8, length=256), ExecutionPlan("float32")),
        ("gpt:char", ["vocab=65", *NO_DROPOUT], InputShape(batch=8, length=256), ExecutionPlan("bfloat16")),
        (
            "gpt:char",
            ["vocab=65", *NO_DROPOUT],
            InputShape(batch=8, length=256),
            ExecutionPlan("bfloat16", recompute=True),
        ),
        ("gpt:gpt2", ["vocab=50257", *NO_DROPOUT], InputShape(batch=1, length=512), ExecutionPlan("float32")),
        (
            "gpt:gpt2",
            ["vocab=50257", *NO_DROPOUT],
            InputShape(batch=1, length=512),
            ExecutionPlan("float32", optimizer="muon"),
        ),
        (
            "gpt:gpt2",
            ["vocab=50257", *NO_DROPOUT],
            InputShape(batch=1, length=512),
            ExecutionPlan("float32", optimizer="adafactor"),
        ),
        ("rnnsearch:small", [], InputShape(batch=16, length=20), ExecutionPlan("float32")),
        ("vit:s16", [], InputShape(batch=4), ExecutionPlan("float32")),
        ("vit:s16", [], InputShape(batch=4), ExecutionPlan("float32", recompute=True)),
        ("vit:r26-s32", [], InputShape(batch=4), ExecutionPlan("float32")),
        ("deit:ti16", [], InputShape(batch=4), ExecutionPlan("float32")),
        ("swin:t", NO_DROP_PATH, InputShape(batch=2), ExecutionPlan("float32")),
        ("swinv2:t", NO_DROP_PATH, InputShape(batch=2), ExecutionPlan("float32")),
        ("mvit:t", NO_DROP_PATH, InputShape(batch=2), ExecutionPlan("float32")),
        ("resnet:50", [], InputShape(batch=4), ExecutionPlan("float32")),
        ("cct:7-3x1", [*NO_DROP_PATH, "attention_dropout=0"], InputShape(batch=16), ExecutionPlan("float32")),
    ],
    "cuda": [
        ("transformer:tiny", [], InputShape(batch=256, length=32), ExecutionPlan()),
        ("transformer:base", [], InputShape(batch=64, length=64), ExecutionPlan()),
        ("transformer:base", [], InputShape(batch=128, length=64), ExecutionPlan()),
        ("cct:7-3x1", NO_DROP_PATH, InputShape(batch=512), ExecutionPlan()),
        ("gpt:char", ["vocab=65", *NO_DROPOUT], InputShape(batch=64, length=256), ExecutionPlan()),
        ("transformer:big", [], InputShape(batch=64, length=64), ExecutionPlan()),
        ("gpt:gpt2", ["vocab=50304", *NO_DROPOUT], InputShape(batch=32, length=1024), ExecutionPlan()),
        ("gpt:gpt2", ["vocab=50304", *NO_DROPOUT], InputShape(batch=32, length=1024), ExecutionPlan(recompute=True)),
        ("gpt:gpt2", ["vocab=50304", *NO_DROPOUT], InputShape(batch=32, length=1024), ExecutionPlan("float32")),
        ("gpt:medium", ["vocab=50304", *NO_DROPOUT], InputShape(batch=16, length=1024), ExecutionPlan()),
        ("gpt:xl", ["vocab=50304", *NO_DROPOUT], InputShape(batch=8, length=1024), ExecutionPlan(recompute=True)),
        ("gpt:xl", ["vocab=50304", *NO_DROPOUT], InputShape(batch=8, length=1024), ExecutionPlan(optimizer="muon")),
        ("vit:b16", [], InputShape(batch=128), ExecutionPlan()),
        ("vit:b16", [], InputShape(batch=128), ExecutionPlan(recompute=True)),
        ("vit:l16", [], InputShape(batch=64), ExecutionPlan()),
        ("swin:t", NO_DROP_PATH, InputShape(batch=128), ExecutionPlan()),
        ("swinv2:t", NO_DROP_PATH, InputShape(batch=64), ExecutionPlan()),
        ("mvit:t", NO_DROP_PATH, InputShape(batch=64), ExecutionPlan()),
        ("resnet:50", [], InputShape(batch=128), ExecutionPlan()),
    ],
}
QUICK = [
    ("transformer:tiny", [], InputShape(batch=8, length=20), ExecutionPlan("float32")),
    ("gpt:tiny", [], InputShape(batch=8), ExecutionPlan("float32")),
    ("vit:tiny", [], InputShape(batch=8), ExecutionPlan("float32")),
    ("resnet:tiny", [], InputShape(batch=8), ExecutionPlan("float32")),
]


class Real:
    """A model on real tensors."""

    def __init__(
        self, config: Any, shape: InputShape, plan: ExecutionPlan, device: str, compiled: bool = False
    ) -> None:
        self.run: Callable[[], None] = self.update
        torch.manual_seed(0)
        self.model, self.plan, self.device = meta_model.build(config).train().to(device), plan, device
        self.batch = {name: x.to(device) for name, x in meta_model.make_batch(self.model, shape).items()}
        if plan.recompute:
            enable_gradient_checkpointing(self.model)
        self.optimizer = build_optimizer(self.model, plan.optimizer)
        if compiled:
            self.model.compile()

    def loss(self) -> torch.Tensor:
        with torch.autocast(self.device, torch.bfloat16, self.plan.precision == "bfloat16"):
            return meta_model.training_loss(self.model, self.batch, is_cpu=self.device == "cpu")

    def update(self) -> None:
        for _ in range(self.plan.accumulate):
            (self.loss() / 2).backward()
        self.optimizer.step(1e-3)

    def operations(self) -> int:
        with FlopCounterMode(display=False) as counter:
            self.loss().backward()
        self.model.zero_grad(set_to_none=True)
        return int(counter.get_total_flops())

    def peak(self) -> int:
        """Return the peak bytes, without weights and moments on a CPU, with them on a GPU."""
        self.update()
        if self.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
            self.update()
            return torch.cuda.max_memory_allocated()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
            self.update()
        events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
        current = peak = 0
        for event in sorted(events, key=lambda e: e.start_ns()):
            current += event.nbytes()
            peak = max(peak, current)
        return peak

    def capture(self) -> None:
        """Capture the update as a CUDA graph, which `seconds` then replays."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.update()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.update()
        self.run = graph.replay

    def seconds(self, repeats: int = 20) -> float:
        durations = []
        for _ in range(repeats):
            torch.cuda.synchronize()
            began = time.perf_counter()
            self.run()
            torch.cuda.synchronize()
            durations.append(time.perf_counter() - began)
        return statistics.median(durations[repeats // 4 :])


def compare(name: str, settings: list[str], shape: InputShape, plan: ExecutionPlan, device: str) -> dict[str, Any]:
    """Compare one case, estimated and measured."""
    config = resolve_config(*parse_model_name(name), settings)
    found = training_step(config, shape, ExecutionPlan(**vars(plan) | {"is_cpu": device == "cpu"}))
    constant_bytes = 4 * found.total + found.buffers + found.state
    estimated = {"memory_mib": (constant_bytes + sum(found.peak.values())) / 2**20}
    estimated["gflops"] = found.operations("forward", "loss", "backward") / 1e9
    contenders = {"estimated": estimated}
    for form in ("eager", "compiled", "graph") if device == "cuda" else ("eager",):
        before = torch.cuda.memory_allocated() if device == "cuda" else 0
        real = Real(config, shape, plan, device, form != "eager")
        measured: dict[str, float] = {}
        if form == "eager":
            measured["gflops"] = real.operations() / 1e9
        measured["memory_mib"] = (real.peak() - before + (constant_bytes if device == "cpu" else 0)) / 2**20
        if device == "cuda":
            if form == "graph":
                try:
                    real.capture()
                except RuntimeError as error:
                    print(f"{name}: not captured: {str(error).splitlines()[0]}", flush=True)
                    continue
            measured["milliseconds"] = 1e3 * real.seconds()
        contenders[form] = measured
        del real
        gc.collect()
        torch.cuda.empty_cache() if device == "cuda" else None
    if device == "cuda":
        card = next((d for d in DEVICES.values() if d.name.split()[0] in torch.cuda.get_device_name()), None)
        card = card or find_device("here")
        scenario = Scenario(
            config, shape, device=card, precision=plan.precision, recompute=plan.recompute, optimizer=plan.optimizer,
            efficiency=efficiency_of(card),
        )  # fmt: skip
        estimated["milliseconds"] = 1e3 * estimate(scenario).seconds
    options = (
        [plan.precision]
        + (["recompute"] if plan.recompute else [])
        + ([plan.optimizer] if plan.optimizer != "adamw" else [])
    )
    options += [f"{plan.accumulate} passes"] if plan.accumulate > 1 else []
    case: dict[str, Any] = {
        "model": name,
        "rows": " x ".join(map(str, (shape.batch, *_row_shape(config, shape)))),
        "mode": ", ".join(options),
    }
    case["contenders"] = {
        contender: {key: float(f"{value:.5g}") for key, value in numbers.items()}
        for contender, numbers in contenders.items()
    }
    for contender, found in contenders.items():
        if contender != "estimated":
            memory_ratio = estimated["memory_mib"] / found["memory_mib"]
            case[f"estimated / {contender}"] = harness.median_and_range([memory_ratio])
            if "milliseconds" in found:
                time_ratio = estimated["milliseconds"] / found["milliseconds"]
                case[f"estimated time / {contender}"] = harness.median_and_range([time_ratio])
    return case


def _row_shape(config: Any, shape: InputShape) -> tuple[int, ...]:
    """Return the shape of a row: tokens, or rows and columns of pixels."""
    return (
        meta_model.image_shape(config, shape)[1:] if hasattr(config, "image_size") else (shape.length or config.length,)
    )


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--models", type=lambda text: text.split(","), help="such as transformer:base")
    arguments = parser.parse_args()
    record = harness.machine(arguments.device)
    record["cases"] = []
    for case in QUICK if arguments.quick else CASES[arguments.device]:
        if arguments.models and case[0] not in arguments.models:
            continue
        record["cases"].append(compare(*case, arguments.device) | harness.lap())
        print(record["cases"][-1], flush=True)
    if not (arguments.quick or arguments.models):
        harness.write(f"cost-{arguments.device}.json", record)


if __name__ == "__main__":
    main()
