"""Speed of vision Transformers: Regard against timm with the same weights, taking turns.

    python benchmarks/vision.py                                  CPU, float32, inference, batches of 1 and 8
                                                                 -> results/vision-cpu.json
    python benchmarks/vision.py --device cuda                    GPU, bfloat16, inference -> vision-cuda.json
    python benchmarks/vision.py --device cuda --what training    GPU, under autocast -> vision-training-cuda.json
    add --quick for seconds (small models, nothing written), --models swin_t,vit_b16 for some (nothing written; with
    --keep what was measured before stays in the file, and these are put beside it)

timm's model is made from a seed and its weights are stirred, so that no norm is zero; ours reads them through its
weight table. All get the same images. `agree` is the cosine of a contender's logits and those of timm's eager model,
the lowest of the batch. Inference: images to logits, weights in the type named. Training: forward under autocast,
cross-entropy, backward, fused AdamW; weights in float32, neither dropout nor drop path on either side. Compiled means
torch.compile(model, dynamic=False) for both; served, on a CPU, runtime.inference.pack_weights, as the command line does
it. The attention of windows by itself: window_attention.py.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from importlib import import_module
from typing import Any, NamedTuple

import harness

harness.PACKAGES = (*harness.PACKAGES, "timm", "triton")


class Pair(NamedTuple):
    """One architecture, by Regard's and timm's names."""

    regard: str
    size: str
    table: str  # of regard.weights
    timm: str
    image: int
    small: dict[str, Any]  # settings of a small timm model, for --quick
    regard_small: dict[str, Any]  # the same for Regard


_VIT = {"depth": 2, "embed_dim": 48, "num_heads": 3}, {"layers": 2, "width": 48, "heads": 3}
_SWIN = {"depths": (2, 2), "embed_dim": 24, "num_heads": (2, 4)}, {"layers": (2, 2), "width": 24, "heads": (2, 4)}
MODELS = {
    "vit_b16": Pair("vit", "b16", "timm.vit", "vit_base_patch16_224", 224, *_VIT),
    "vit_s16": Pair("vit", "s16", "timm.vit", "vit_small_patch16_224", 224, *_VIT),
    "swin_t": Pair("swin", "t", "timm.swin", "swin_tiny_patch4_window7_224", 224, *_SWIN),
    "swinv2_t": Pair("swinv2", "t", "timm.swinv2", "swinv2_tiny_window8_256", 256, *_SWIN),
    "mvitv2_t": Pair("mvit", "t", "timm.mvitv2", "mvitv2_tiny", 224, {}, {}),
}
CONTENDERS = {
    "cpu": ["regard-served", "regard-eager", "timm-eager"],
    "cuda": ["regard", "regard-eager", "timm", "timm-eager"],
}
BATCHES = {"cpu": [1, 8], "cuda": [256]}


# -- one contender -----------------------------------------------------------------------------------------------------


class Contender:
    """A model of one library, eager or compiled; only the latest case stays in memory."""

    def __init__(self, name: str, arguments: argparse.Namespace) -> None:
        side, _, self.form = name.partition("-")  # eager, served, or neither: compiled
        self.is_regard = side == "regard"
        self.device, self.dtype, self.what = arguments.device, arguments.dtype, arguments.what
        self.quick = arguments.quick
        self.case: tuple[str, int] | None = None
        self.step: Callable[[], Any] | None = None

    def prepare(self, model: str, batch: int) -> Callable[[], Any]:
        """Return the call that is measured for this case."""
        import torch

        if self.case != (model, batch):
            torch.set_float32_matmul_precision("high" if self.device == "cuda" else "highest")
            self.step = None
            gc.collect()
            torch._dynamo.reset()  # drop the compiled graphs of the last case
            self.step = self.make(MODELS[model], batch)
            self.case = model, batch
        assert self.step is not None
        return self.step

    def make(self, pair: Pair, batch: int) -> Callable[[], Any]:
        """Build the model and images; return a call without arguments."""
        import torch
        import torch.nn.functional as F

        generator = torch.Generator().manual_seed(2)
        images = torch.randn(batch, 3, pair.image, pair.image, generator=generator).to(self.device)
        labels = torch.randint(1000, (batch,), generator=generator).to(self.device)
        dtype, model = getattr(torch, self.dtype), self.model(pair).to(self.device)
        if self.what == "inference":
            model, images = model.to(dtype).eval(), images.to(dtype)
            run = model if self.form else torch.compile(model, dynamic=False)

            def infer() -> Any:
                with torch.inference_mode():
                    return run(images)

            return infer
        optimizer = torch.optim.AdamW(model.train().parameters(), lr=1e-4, weight_decay=0.05, fused=True)
        run = model if self.form else torch.compile(model, dynamic=False)
        half = dtype != torch.float32

        def update() -> Any:
            with torch.autocast(self.device, dtype) if half else nullcontext():
                logits = run(images)
                loss = F.cross_entropy(logits, labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            return logits.detach()

        return update

    def model(self, pair: Pair) -> Any:
        """Return timm's model, or Regard's with the same weights."""
        import timm
        import torch

        torch.manual_seed(1)
        timm_model = timm.create_model(pair.timm, drop_path_rate=0.0, **(pair.small if self.quick else {}))
        with torch.no_grad():
            for weight in timm_model.parameters():
                weight += 0.02 * torch.randn_like(weight)
        if not self.is_regard:
            return timm_model
        from regard.models import build
        from regard.weights.table import import_state_dict

        model = build(pair.regard, pair.size, drop_path=0.0, **(pair.regard_small if self.quick else {}))
        import_state_dict(
            import_module(f"regard.weights.{pair.table}").table(model.config), timm_model.state_dict(), model
        )
        if self.form == "served":
            from regard.runtime.inference import pack_weights

            pack_weights(model)
        return model


def child(name: str, arguments: argparse.Namespace) -> None:
    """Run one contender: build the requested case, then time it."""
    import torch

    torch.set_num_threads(arguments.threads)
    contender, cuda = Contender(name, arguments), arguments.device == "cuda"
    wait = torch.cuda.synchronize if cuda else lambda: None

    def do(model: str, batch: int, times: int, return_logits: bool = False) -> dict[str, Any]:
        step = contender.prepare(model, batch)
        found = step()  # the first one compiles; later ones allocate memory again
        logits = found.float()[:, ::7].tolist() if return_logits else None
        for _ in range(2 if cuda else 0):
            step()
        if cuda:
            torch.cuda.reset_peak_memory_stats()
        wait()
        began = time.perf_counter()
        for _ in range(times):
            step()
        wait()
        result: dict[str, Any] = {"seconds": (time.perf_counter() - began) / times}
        if cuda:
            result["peak_mib"] = round(torch.cuda.max_memory_allocated() / 2**20)
            torch.cuda.empty_cache()  # so that all fit on one device
        return result | ({"logits": logits} if return_logits else {})

    def try_it(**request: Any) -> dict[str, Any]:
        try:
            return do(**request)
        except Exception as error:  # a failure must not end the others
            return {"failed": f"{type(error).__name__}: {str(error).strip().splitlines()[0][:300]}"}

    harness.serve_requests(try_it)


# -- comparison --------------------------------------------------------------------------------------------------------


def compare(arguments: argparse.Namespace) -> dict[str, Any]:
    """Time all contenders in turns, case by case."""
    steal = harness.Steal()
    record = harness.machine(arguments.device) | {"threads": arguments.threads, "dtype": arguments.dtype}
    if arguments.device == "cuda":
        del record["threads"]
    options = ["--device", arguments.device, "--dtype", arguments.dtype, "--what", arguments.what]
    options += ["--threads", str(arguments.threads), *(["--quick"] if arguments.quick else [])]
    children = [harness.Child(name, __file__, options, arguments.threads) for name in arguments.contenders]
    cases = []
    for model in arguments.models:
        for batch in arguments.batches:
            cases.append(compare_case(children, model, batch, arguments) | harness.lap())
            ratios = [f"{k} {v['median']:.3f}" for k, v in cases[-1].items() if " / " in k]
            print(f"{model} {arguments.what} {batch}: {', '.join(ratios)}", file=sys.stderr, flush=True)
    for process in children:
        process.close()
    return record | {"rounds": arguments.rounds, "steal": steal.share(), "cases": cases}


def compare_case(
    children: list[harness.Child], model: str, batch: int, arguments: argparse.Namespace
) -> dict[str, Any]:
    """Build one case in all contenders (in parallel for a GPU), then time it in turns."""
    case = {"model": model, "batch": batch}
    with ThreadPoolExecutor(len(children) if arguments.device == "cuda" else 1) as pool:
        first = dict(
            zip(
                [process.name for process in children],
                pool.map(lambda process: process.ask(**case, times=2, return_logits=True), children),
                strict=True,
            )
        )
    failed = {name: found["failed"] for name, found in first.items() if "failed" in found}
    for name, reason in failed.items():
        print(f"{model} {name}: {reason}", file=sys.stderr)
    running = [process for process in children if process.name not in failed]
    row: dict[str, Any] = {**case, "image": MODELS[model].image, "contenders": {}}
    if not running:
        return row
    (second,) = harness.rounds(running, 1, **case, times=2)
    slowest = max(found["seconds"] for found in second.values())
    times = 2 if arguments.quick else max(2, min(200, round(arguments.spend / slowest)))
    turns = harness.rounds(running, arguments.rounds, **case, times=times)
    seconds = {process.name: [turn[process.name]["seconds"] for turn in turns] for process in running}
    expected = first.get("timm-eager", first[running[-1].name])["logits"]
    for name, durations in seconds.items():
        row["contenders"][name] = {"images_per_second": harness.median_and_range(batch / s for s in durations)}
        if "peak_mib" in turns[0][name]:
            row["contenders"][name]["peak_mib"] = max(turn[name]["peak_mib"] for turn in turns)
        row["contenders"][name]["cosine"] = round(agreement(first[name]["logits"], expected), 6)
    for contender in [name for name in seconds if name.startswith("regard")]:
        for peer in [name for name in seconds if name != contender]:
            row[f"{contender} / {peer}"] = harness.median_and_range(
                b / a for a, b in zip(seconds[contender], seconds[peer], strict=True)
            )
    return row


def agreement(found: list[list[float]], expected: list[list[float]]) -> float:
    """Return the lowest cosine of two batches of logits."""
    import numpy as np

    a, b = np.array(found), np.array(expected)
    return float(((a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)).min())


def show(record: dict[str, Any]) -> str:
    """Format the results as a table; `ratio` is Regard over timm, both compiled or both eager."""
    rows: list[list[Any]] = [["model", "batch", "contender", "images/s", "range", "ratio", "range", "cosine", "MiB"]]
    for case in record["cases"]:
        for name, found in case["contenders"].items():
            speed = found["images_per_second"]
            ratio = case.get(f"{name} / timm" if name == "regard" else f"{name} / timm-eager")
            row = [case["model"], case["batch"], name, f"{speed['median']:,.1f}"]
            row += [f"{speed['min']:,.1f}-{speed['max']:,.1f}"]
            row += [f"{ratio['median']:.3f}", f"{ratio['min']:.3f}-{ratio['max']:.3f}"] if ratio else ["", ""]
            rows.append([*row, f"{found['cosine']:.5f}", found.get("peak_mib", "")])
    return harness.table(rows)


def merge_previous(name: str, record: dict[str, Any]) -> dict[str, Any]:
    """Return the results with earlier cases of the same machine that were not measured now."""
    path = harness.RESULTS / name
    if not path.is_file():
        return record
    before = json.loads(path.read_text(encoding="utf-8"))
    if any(before.get(key) != record.get(key) for key in ("cpu", "gpu", "versions", "dtype")):
        raise SystemExit(f"{name} was measured on another machine or with other versions; run all of it again")
    order = list(MODELS)
    measured = {(case["model"], case["batch"]) for case in record["cases"]}
    cases = record["cases"] + [case for case in before["cases"] if (case["model"], case["batch"]) not in measured]
    return record | {
        "merged": True,
        "cases": sorted(cases, key=lambda case: (order.index(case["model"]), case["batch"])),
    }


def main() -> None:
    """Run, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    split_list = {"type": lambda text: text.split(",")}
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--dtype", choices=("float32", "bfloat16", "float16"), help="by default float32, on a GPU bfloat16"
    )
    parser.add_argument("--what", choices=("inference", "training"), default="inference")
    parser.add_argument("--models", **split_list, default=[*MODELS], help=f"of {','.join(MODELS)}")
    parser.add_argument("--contenders", **split_list, help="of regard, regard-eager, regard-served, timm, timm-eager")
    parser.add_argument("--batches", type=lambda text: [int(n) for n in text.split(",")])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--spend", type=float, default=1.0, help="seconds of a turn")
    parser.add_argument("--threads", type=int, default=min(os.cpu_count() or 1, 2))
    parser.add_argument("--quick", action="store_true", help="small models, two rounds, nothing written")
    parser.add_argument("--keep", action="store_true", help="write these models and keep earlier results of the others")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.dtype = arguments.dtype or ("float32" if arguments.device == "cpu" else "bfloat16")
    if arguments.child:
        return child(arguments.child, arguments)
    if unknown := set(arguments.models) - set(MODELS):
        parser.error(f"no such model: {', '.join(sorted(unknown))}")
    is_complete = arguments.models == [*MODELS]
    arguments.contenders = arguments.contenders or CONTENDERS[arguments.device]
    arguments.batches = arguments.batches or ([2] if arguments.quick else BATCHES[arguments.device])
    arguments.rounds = 2 if arguments.quick else arguments.rounds
    record = compare(arguments)
    print(show(record))
    if not arguments.quick and (is_complete or arguments.keep):
        part = "" if arguments.what == "inference" else f"-{arguments.what}"
        name = f"vision{part}-{arguments.device}.json"
        print("written:", os.path.relpath(harness.write(name, record if is_complete else merge_previous(name, record))))


if __name__ == "__main__":
    main()
