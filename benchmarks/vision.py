"""Speed of vision Transformers: ours beside timm's, the same weights, taking turns.

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
import re
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
    """One architecture, by our names and by timm's."""

    is_regard: str
    size: str
    table: str  # of regard.weights
    timm: str
    image: int
    small: dict[str, Any]  # what makes theirs small, for --quick
    regard_small: dict[str, Any]  # the same for ours


_VIT = {"depth": 2, "embed_dim": 48, "num_heads": 3}, {"layers": 2, "width": 48, "heads": 3}
_SWIN = {"depths": (2, 2), "embed_dim": 24, "num_heads": (2, 4)}, {"layers": (2, 2), "width": 24, "heads": (2, 4)}
MODELS = {
    "vit_b16": Pair("vit", "b16", "timm_vit", "vit_base_patch16_224", 224, *_VIT),
    "vit_s16": Pair("vit", "s16", "timm_vit", "vit_small_patch16_224", 224, *_VIT),
    "swin_t": Pair("swin", "t", "timm_swin", "swin_tiny_patch4_window7_224", 224, *_SWIN),
    "swinv2_t": Pair("swinv2", "t", "timm_swinv2", "swinv2_tiny_window8_256", 256, *_SWIN),
    "mvitv2_t": Pair("mvit", "t", "timm_mvitv2", "mvitv2_tiny", 224, {}, {}),
}
CONTENDERS = {
    "cpu": ["regard-served", "regard-eager", "timm-eager"],
    "cuda": ["regard", "regard-eager", "timm", "timm-eager"],
}
BATCHES = {"cpu": [1, 8], "cuda": [256]}


# -- one contender -----------------------------------------------------------------------------------------------------


class Contender:
    """One side's model, eager or compiled; keeps the latest case only."""

    def __init__(self, name: str, arguments: argparse.Namespace) -> None:
        side, _, self.form = name.partition("-")  # eager, served, or neither: compiled
        self.is_regard = side == "regard"
        self.device, self.dtype, self.what = arguments.device, arguments.dtype, arguments.what
        self.quick = arguments.quick
        self.case: tuple[str, int] | None = None
        self.step: Callable[[], Any] | None = None

    def ready(self, model: str, batch: int) -> Callable[[], Any]:
        """The call that is measured, of this case."""
        import torch

        if self.case != (model, batch):
            torch.set_float32_matmul_precision("high" if self.device == "cuda" else "highest")
            self.step = None
            gc.collect()
            torch._dynamo.reset()  # the graphs of the last case are of no use to this one
            self.step = self.make(MODELS[model], batch)
            self.case = model, batch
        assert self.step is not None
        return self.step

    def make(self, pair: Pair, batch: int) -> Callable[[], Any]:
        """Models, images, and a call without arguments."""
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
        """Theirs, or ours with their weights."""
        import timm
        import torch

        torch.manual_seed(1)
        theirs = timm.create_model(pair.timm, drop_path_rate=0.0, **(pair.small if self.quick else {}))
        with torch.no_grad():
            for weight in theirs.parameters():
                weight += 0.02 * torch.randn_like(weight)
        if not self.is_regard:
            return theirs
        from regard.models import build
        from regard.weights.table import import_state_dict

        model = build(pair.is_regard, pair.size, drop_path=0.0, **(pair.regard_small if self.quick else {}))
        import_state_dict(import_module(f"regard.weights.{pair.table}").table(model.config), theirs.state_dict(), model)
        if self.form == "served":
            from regard.runtime.inference import pack_weights

            pack_weights(model)
        return model


def child(name: str, arguments: argparse.Namespace) -> None:
    """Make what is asked for, then run it as often as asked."""
    import torch

    torch.set_num_threads(arguments.threads)
    racer, cuda = Contender(name, arguments), arguments.device == "cuda"
    wait = torch.cuda.synchronize if cuda else lambda: None

    def do(model: str, batch: int, times: int, keep: bool = False) -> dict[str, Any]:
        step = racer.ready(model, batch)
        found = step()  # the first ever: compiles; later: memory is taken again
        logits = found.float()[:, ::7].tolist() if keep else None
        for _ in range(2 if cuda else 0):
            step()
        if cuda:
            torch.cuda.reset_peak_memory_stats()
        wait()
        began = time.perf_counter()
        for _ in range(times):
            step()
        wait()
        serve_requests: dict[str, Any] = {"seconds": (time.perf_counter() - began) / times}
        if cuda:
            serve_requests["peak_mib"] = round(torch.cuda.max_memory_allocated() / 2**20)
            torch.cuda.empty_cache()  # so that all fit on one device
        return serve_requests | ({"logits": logits} if keep else {})

    def try_it(**request: Any) -> dict[str, Any]:
        try:
            return do(**request)
        except Exception as error:  # one that fails must not end the others
            return {"failed": f"{type(error).__name__}: {str(error).strip().splitlines()[0][:300]}"}

    harness.serve_requests(try_it)


# -- the race ----------------------------------------------------------------------------------------------------------


def compare(arguments: argparse.Namespace) -> dict[str, Any]:
    """All contenders in turns, case by case."""
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
            cases.append(compare_case(children, model, batch, arguments))
            ratios = [f"{k} {v['median']:.3f}" for k, v in cases[-1].items() if " / " in k]
            print(f"{model} {arguments.what} {batch}: {', '.join(ratios)}", file=sys.stderr, flush=True)
    for one in children:
        one.close()
    return record | {"rounds": arguments.rounds, "steal": steal.share(), "cases": cases}


def compare_case(
    children: list[harness.Child], model: str, batch: int, arguments: argparse.Namespace
) -> dict[str, Any]:
    """One case: made by all (side by side on a GPU's many cores), then timed in turns."""
    asked = {"model": model, "batch": batch}
    with ThreadPoolExecutor(len(children) if arguments.device == "cuda" else 1) as pool:
        first = dict(
            zip(
                [one.name for one in children],
                pool.map(lambda one: one.ask(**asked, times=2, keep=True), children),
                strict=True,
            )
        )
    failed = {name: found["failed"] for name, found in first.items() if "failed" in found}
    for name, why in failed.items():
        print(f"{model} {name}: {why}", file=sys.stderr)
    racing = [one for one in children if one.name not in failed]
    row: dict[str, Any] = {**asked, "image": MODELS[model].image, "contenders": {}}
    if not racing:
        return row
    (second,) = harness.rounds(racing, 1, **asked, times=2)
    slowest = max(found["seconds"] for found in second.values())
    times = 2 if arguments.quick else max(2, min(200, round(arguments.spend / slowest)))
    turns = harness.rounds(racing, arguments.rounds, **asked, times=times)
    seconds = {one.name: [turn[one.name]["seconds"] for turn in turns] for one in racing}
    wanted = first.get("timm-eager", first[racing[-1].name])["logits"]
    for name, each in seconds.items():
        row["contenders"][name] = {"images_per_second": harness.median_and_range(batch / s for s in each)}
        if "peak_mib" in turns[0][name]:
            row["contenders"][name]["peak_mib"] = max(turn[name]["peak_mib"] for turn in turns)
        row["contenders"][name]["cosine"] = round(agreement(first[name]["logits"], wanted), 6)
    for is_regard in [name for name in seconds if name.startswith("regard")]:
        for other in [name for name in seconds if name != is_regard]:
            row[f"{is_regard} / {other}"] = harness.median_and_range(
                b / a for a, b in zip(seconds[is_regard], seconds[other], strict=True)
            )
    return row


def agreement(found: list[list[float]], wanted: list[list[float]]) -> float:
    """The lowest cosine of two batches of logits."""
    import numpy as np

    a, b = np.array(found), np.array(wanted)
    return float(((a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)).min())


def show(record: dict[str, Any]) -> str:
    """The record as a table; `group_by_decay` is ours over theirs, both compiled or both not."""
    rows: list[list[Any]] = [["model", "batch", "contender", "images/s", "range", "alike", "range", "cosine", "MiB"]]
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
    """The record with the cases that were measured before and not now, if that was on the same machine."""
    place = harness.RESULTS / name
    if not place.is_file():
        return record
    before = json.loads(place.read_text(encoding="utf-8"))
    if any(before.get(key) != record.get(key) for key in ("cpu", "gpu", "versions", "dtype")):
        raise SystemExit(f"{name} was measured on another machine or with other versions; run all of it again")
    order = list(MODELS)
    now = {(case["model"], case["batch"]) for case in record["cases"]}
    cases = record["cases"] + [case for case in before["cases"] if (case["model"], case["batch"]) not in now]
    if {case["model"] for case in cases} == set(order):  # what makes all of it in one go
        record["command"] = re.sub(r" --(models \S+|keep)", "", record["command"])
    return record | {"cases": sorted(cases, key=lambda case: (order.index(case["model"]), case["batch"]))}


def main() -> None:
    """Read the arguments, run, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words = {"type": lambda text: text.split(",")}
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--dtype", choices=("float32", "bfloat16", "float16"), help="by default float32, on a GPU bfloat16"
    )
    parser.add_argument("--what", choices=("inference", "training"), default="inference")
    parser.add_argument("--models", **words, default=[*MODELS], help=f"of {','.join(MODELS)}")
    parser.add_argument("--contenders", **words, help="of regard, regard-eager, regard-served, timm, timm-eager")
    parser.add_argument("--batches", type=lambda text: [int(n) for n in text.split(",")])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--spend", type=float, default=1.0, help="seconds of a turn")
    parser.add_argument("--threads", type=int, default=min(os.cpu_count() or 1, 2))
    parser.add_argument("--quick", action="store_true", help="small models, two rounds, nothing written")
    parser.add_argument("--keep", action="store_true", help="write some models' numbers beside the others' of before")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.dtype = arguments.dtype or ("float32" if arguments.device == "cpu" else "bfloat16")
    if arguments.child:
        return child(arguments.child, arguments)
    if unknown := set(arguments.models) - set(MODELS):
        parser.error(f"no such model: {', '.join(sorted(unknown))}")
    whole = arguments.models == [*MODELS]
    arguments.contenders = arguments.contenders or CONTENDERS[arguments.device]
    arguments.batches = arguments.batches or ([2] if arguments.quick else BATCHES[arguments.device])
    arguments.rounds = 2 if arguments.quick else arguments.rounds
    record = compare(arguments)
    print(show(record))
    if not arguments.quick and (whole or arguments.keep):
        part = "" if arguments.what == "inference" else f"-{arguments.what}"
        name = f"vision{part}-{arguments.device}.json"
        print("written:", os.path.relpath(harness.write(name, record if whole else merge_previous(name, record))))


if __name__ == "__main__":
    main()
