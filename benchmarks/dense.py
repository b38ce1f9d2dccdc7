"""Speed of dense prediction: Regard against transformers with the same weights, taking turns.

    python benchmarks/dense.py                                   CPU, float32, one image -> results/dense-cpu.json
    python benchmarks/dense.py --device cuda                     GPU, bfloat16, batches of 16 -> dense-cuda.json
    python benchmarks/dense.py --device cuda --what training     updates of Regard's models, under autocast; how much
                                                                 of one is matching -> dense-training-cuda.json
    add --models dpt_base for some, --minutes 9 to begin none after that, --again to measure again what the record has,
    --quick for seconds (small models, nothing written)

Each model is written when it is measured, and left alone by the next run. A contender that fails, crashes, or takes
longer than `--patience` seconds for a turn (its compiling among them) loses only itself.

DETR with ResNet-50 at 800 x 800 pixels, DPT-base and DPT-large at 384 x 384. A model of transformers is made from a
seed; ours reads its weights through the weight table. All get the same images. `agree` is the lowest cosine of a
contender's numbers for an image (class logits and boxes, or inverse depth) and those of transformers' eager model.
Compiled means torch.compile(model, dynamic=False) for both; eager is the model as it is.

Training: forward, loss and backward of the task under autocast, clipping at 0.1, fused AdamW; images have 20 objects
each. The share of matching is 1 - t(known matches) / t(matched in every update), both in the same process in turns.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import harness

harness.PACKAGES = (*harness.PACKAGES, "timm", "triton")

OBJECTS = 20  # of every image in training


class Case(NamedTuple):
    """One architecture in the shape of transformers' configuration."""

    image: int
    config: dict[str, Any]
    small: dict[str, Any]  # what --quick changes


_DETR = {"backbone": "resnet50", "use_timm_backbone": True, "use_pretrained_backbone": False, "num_labels": 91}
_DPT_BASE = {
    "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
    "backbone_out_indices": [2, 5, 8, 11], "neck_hidden_sizes": [96, 192, 384, 768],
}  # fmt: skip
_SMALL_DPT = {
    "hidden_size": 48, "num_hidden_layers": 4, "num_attention_heads": 3, "intermediate_size": 96, "image_size": 64,
    "backbone_out_indices": [0, 1, 2, 3], "neck_hidden_sizes": [8, 12, 16, 20], "fusion_hidden_size": 16,
}  # fmt: skip
_SMALL_DETR = {
    "backbone": "resnet18", "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64, "num_queries": 25,
}  # fmt: skip
MODELS = {
    "detr_r50": Case(800, _DETR, _SMALL_DETR),
    "dpt_base": Case(384, _DPT_BASE, _SMALL_DPT),
    "dpt_large": Case(384, {"backbone_out_indices": [4, 11, 17, 23]}, _SMALL_DPT),
}
CONTENDERS = ["regard", "regard-eager", "transformers", "transformers-eager"]
BATCHES = {"cpu": 1, "cuda": 16}


# -- one contender -----------------------------------------------------------------------------------------------------


def make_peer(name: str, quick: bool) -> Any:
    """Return a model of transformers with random weights."""
    import torch
    import transformers

    case = MODELS[name]
    torch.manual_seed(1)
    settings = case.config | (case.small if quick else {})
    if name.startswith("detr"):
        peer = transformers.DetrForObjectDetection(transformers.DetrConfig(**settings))
    else:
        peer = transformers.DPTForDepthEstimation(transformers.DPTConfig(**settings))
        with torch.no_grad():
            peer.head.head[4].bias.add_(1.0)  # the last ReLU is open
    return peer.eval()


def make_ours(name: str, quick: bool) -> Any:
    """Return Regard's model with the same weights."""
    from regard.models.detr import DETR
    from regard.models.dpt import DPT
    from regard.weights.hf import detr as hf_detr
    from regard.weights.hf import dpt as hf_dpt
    from regard.weights.table import import_state_dict

    peer = make_peer(name, quick)
    raw = peer.config.to_dict() | {"architectures": [type(peer).__name__]}
    if name.startswith("detr"):
        config = hf_detr.import_config(raw)
        ours: Any = DETR(config)
        import_state_dict(hf_detr.table(config), hf_detr.normalize_keys(peer.state_dict()), ours)
    else:
        config = hf_dpt.import_config(raw)
        ours = DPT(config)
        import_state_dict(hf_dpt.table(config), peer.state_dict(), ours)
    return ours.eval()


def numbers(found: Any) -> Any:
    """Return what a model says of every image, as rows of numbers."""
    import torch

    if isinstance(found, torch.Tensor):
        return found.float().flatten(1)
    if hasattr(found, "predicted_depth"):
        return found.predicted_depth.float().flatten(1)
    layers = found.logits.ndim == 4  # ours: of every decoder layer
    logits, boxes = (found.logits[-1], found.boxes[-1]) if layers else (found.logits, found.pred_boxes)
    return torch.cat([logits.float().flatten(1), boxes.float().flatten(1)], 1)


class Contender:
    """A model of one library, eager or compiled; only the latest case stays in memory."""

    def __init__(self, name: str, arguments: argparse.Namespace) -> None:
        side, _, self.form = name.partition("-")  # eager, or nothing: compiled
        self.make_model = make_ours if side == "regard" else make_peer
        self.arguments, self.case = arguments, ""
        self.step: Callable[[bool], Any] | None = None

    def prepare(self, model: str) -> Callable[[bool], Any]:
        """Return the call that is measured for this model."""
        import torch

        if self.case != model:
            torch.set_float32_matmul_precision("high" if self.arguments.device == "cuda" else "highest")
            self.step = None
            gc.collect()
            torch._dynamo.reset()
            make = self.inference if self.arguments.what == "inference" else self.training
            self.step, self.case = make(model), model
        assert self.step is not None
        return self.step

    def images(self, model: str) -> Any:
        import torch

        side = 64 if self.arguments.quick else MODELS[model].image
        generator = torch.Generator().manual_seed(2)
        pixels = torch.randint(256, (self.arguments.batch, 3, side, side), generator=generator, dtype=torch.uint8)
        return pixels.to(self.arguments.device)

    def inference(self, model: str) -> Callable[[bool], Any]:
        """Return a call from images to what the model says of them."""
        import torch

        dtype = getattr(torch, self.arguments.dtype)
        built = self.make_model(model, self.arguments.quick).to(self.arguments.device, dtype)
        images = (self.images(model) / 128 - 1).to(dtype)
        run = built if self.form else torch.compile(built, dynamic=False)

        def infer(known_matches: bool) -> Any:
            with torch.inference_mode():
                return numbers(run(images))

        return infer

    def training(self, model: str) -> Callable[[bool], Any]:
        """Return an update of Regard's task; `known_matches` replaces the matching by that of the first update."""
        import torch

        device, dtype = self.arguments.device, getattr(torch, self.arguments.dtype)
        built, task = make_ours(model, self.arguments.quick).to(device).train(), make_task(model, self.images(model))
        batch, matches = make_batch(self.images(model)), []
        optimizer = torch.optim.AdamW([p for p in built.parameters() if p.requires_grad], lr=1e-5, fused=True)
        run = built if self.form else torch.compile(built, dynamic=False)
        if hasattr(task, "matches"):
            match = task.matches
            matches.append(None)

            def matched(*given: Any) -> Any:
                if matches[0] is None:
                    matches[0] = match(*given)
                return matches[0] if task.use_known else match(*given)

            task.matches = matched
        autocast = torch.autocast(device, dtype) if dtype != torch.float32 else nullcontext()

        def update(known_matches: bool) -> Any:
            task.use_known = known_matches
            with autocast:
                total, _ = task.loss(run, batch)
            (total / len(batch.pixels)).backward()
            torch.nn.utils.clip_grad_norm_(built.parameters(), 0.1)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            return None

        return update


def make_task(model: str, images: Any) -> Any:
    """Return the task that a model is trained by."""
    from regard.data.images.composed_scenes import Scenes
    from regard.tasks.image import depth_estimation, object_detection

    data = Scenes(image_size=images.shape[-1])
    if model.startswith("dpt"):
        return depth_estimation.DepthEstimation(depth_estimation.Config(), data)
    return object_detection.ObjectDetection(object_detection.Config(), data)


def make_batch(images: Any) -> Any:
    """Return images with random objects and depth."""
    import torch

    from regard.data.images.scene_batch import SceneBatch

    b, _, y, x = images.shape
    generator, device = torch.Generator().manual_seed(3), images.device
    corner = torch.rand(b, OBJECTS, 2, generator=generator) * 0.7
    size = 0.05 + torch.rand(b, OBJECTS, 2, generator=generator) * 0.25
    boxes = torch.cat([corner, corner + size], -1) * torch.tensor([x, y, x, y])
    none = torch.zeros(b, OBJECTS, 0, 0, dtype=torch.bool)
    return SceneBatch(
        images.cpu(),
        torch.tensor([[y, x]]).repeat(b, 1),
        torch.full((b,), OBJECTS),
        torch.randint(10, (b, OBJECTS), generator=generator),
        boxes,
        torch.zeros(b, OBJECTS, dtype=torch.bool),
        none,
        torch.zeros(b, 0, 0, dtype=torch.uint8),
        1 + 9 * torch.rand(b, y, x, generator=generator),
        (boxes[..., 2:] - boxes[..., :2]).prod(-1),
    ).to(device)


def child(name: str, arguments: argparse.Namespace) -> None:
    """Run one contender: build the requested case, then time it."""
    import torch

    torch.set_num_threads(arguments.threads)
    contender, cuda = Contender(name, arguments), arguments.device == "cuda"
    wait = torch.cuda.synchronize if cuda else lambda: None

    def do(model: str, times: int, known_matches: bool = False, return_numbers: bool = False) -> dict[str, Any]:
        step = contender.prepare(model)
        found = step(known_matches)
        rows = found[:, ::97].tolist() if return_numbers and found is not None else None
        for _ in range(2 if cuda else 0):
            step(known_matches)
        if cuda:
            torch.cuda.reset_peak_memory_stats()
        wait()
        began = time.perf_counter()
        for _ in range(times):
            step(known_matches)
        wait()
        result: dict[str, Any] = {"seconds": (time.perf_counter() - began) / times}
        if cuda:
            result["peak_mib"] = round(torch.cuda.max_memory_allocated() / 2**20)
            torch.cuda.empty_cache()
        return result | ({"rows": rows} if return_numbers else {})

    def try_it(**request: Any) -> dict[str, Any]:
        try:
            return do(**request)
        except Exception as error:  # a failure must not end the others
            return {"failed": f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:300]}"}

    harness.serve_requests(try_it)


# -- comparison --------------------------------------------------------------------------------------------------------


def compare(arguments: argparse.Namespace) -> dict[str, Any]:
    """Time all contenders in turns, case by case; the record is written after each."""
    ends, name = time.monotonic() + 60 * arguments.minutes, record_name(arguments)
    file, record = harness.RESULTS / name, dict[str, Any](cases=[])
    if file.is_file() and not arguments.quick:
        record = json.loads(file.read_text("utf-8"))
    record |= harness.machine(arguments.device) | {"dtype": arguments.dtype, "rounds": arguments.rounds, "merged": True}
    if arguments.device == "cpu":
        record["threads"] = arguments.threads
    for model in arguments.models:
        same = [case for case in record["cases"] if case["model"] == model]
        if same and not arguments.again and {*arguments.contenders} <= same[0]["contenders"].keys():
            continue
        if time.monotonic() > ends:
            print("the time is up; the same command goes on", file=sys.stderr)
            break
        steal = harness.Steal()
        with contenders(arguments) as children:
            case = compare_case(children, model, arguments) | {"steal": steal.share()} | harness.lap()
        record["cases"] = [other for other in record["cases"] if other not in same] + [case]
        ratios = [f"{k} {v['median']:.3f}" for k, v in case.items() if " / " in k]
        print(f"{model} {arguments.what}: {', '.join(ratios)}", file=sys.stderr, flush=True)
        if case["contenders"] and not arguments.quick:
            print("written:", os.path.relpath(harness.write(name, record)), flush=True)
    return record


def record_name(arguments: argparse.Namespace) -> str:
    """Return the name of the record."""
    part = "" if arguments.what == "inference" else f"-{arguments.what}"
    return f"dense{part}-{arguments.device}.json"


@contextmanager
def contenders(arguments: argparse.Namespace) -> Iterator[list[harness.Child]]:
    """Start a process for every contender, and end them."""
    options = ["--device", arguments.device, "--dtype", arguments.dtype, "--what", arguments.what]
    options += ["--batch", str(arguments.batch), "--threads", str(arguments.threads)]
    options += ["--quick"] if arguments.quick else []
    children = [harness.Child(name, sys.argv[0], options, arguments.threads) for name in arguments.contenders]
    try:
        yield children
    finally:
        for process in children:
            process.kill()


def compare_case(children: list[harness.Child], model: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Build one case in all contenders (in parallel for a GPU), then time it in turns."""
    is_inference = arguments.what == "inference"
    with ThreadPoolExecutor(len(children) if arguments.device == "cuda" else 1) as pool:
        request = {"model": model, "times": 1, "return_numbers": is_inference}
        answers = pool.map(lambda each: each.try_ask(arguments.patience, **request), children)
        first = {process.name: found for process, found in zip(children, answers, strict=True)}
    for name, found in first.items():
        if "failed" in found:
            print(f"{model} {name}: {found['failed']}", file=sys.stderr)
    running = [process for process in children if "failed" not in first[process.name]]
    image = 64 if arguments.quick else MODELS[model].image
    row: dict[str, Any] = {"model": model, "image": image, "batch": arguments.batch, "contenders": {}}
    if not running:
        return row
    turn = {"seconds": arguments.patience, "model": model}
    (second,) = harness.rounds(running, 1, times=1, **turn)
    running = [process for process in running if "failed" not in second[process.name]]
    slowest = max((second[process.name]["seconds"] for process in running), default=1.0)
    times = 1 if arguments.quick else max(1, min(100, round(arguments.spend / slowest)))
    turns = harness.rounds(running, arguments.rounds, times=times, **turn)
    running = [process for process in running if "failed" not in turns[-1][process.name]]
    seconds = {process.name: [turn[process.name]["seconds"] for turn in turns] for process in running}
    for name, durations in seconds.items():
        speed = harness.median_and_range(arguments.batch / s for s in durations)
        row["contenders"][name] = {"images_per_second": speed}
        if "peak_mib" in turns[0][name]:
            row["contenders"][name]["peak_mib"] = max(turn[name]["peak_mib"] for turn in turns)
        if is_inference and "transformers-eager" in first:
            expected = first["transformers-eager"].get("rows")
            if expected is not None:
                row["contenders"][name]["agree"] = round(agreement(first[name]["rows"], expected), 6)
    if is_inference:
        for contender in [name for name in seconds if name.startswith("regard")]:
            for peer in [name for name in seconds if name.startswith("transformers")]:
                row[f"{contender} / {peer}"] = harness.median_and_range(
                    b / a for a, b in zip(seconds[contender], seconds[peer], strict=True)
                )
    elif model.startswith("detr"):
        for name, share in matching_share(running, times, arguments.rounds, turn).items():
            row["contenders"][name]["matching_share"] = share
    return row


def matching_share(children: list[harness.Child], times: int, rounds: int, turn: dict[str, Any]) -> dict[str, Any]:
    """Return for every contender which part of an update matching takes, 0 to 1."""
    shares: dict[str, list[float]] = {process.name: [] for process in children}
    for _ in range(rounds):
        (matched,) = harness.rounds(children, 1, times=times, **turn)
        (known,) = harness.rounds(children, 1, times=times, known_matches=True, **turn)
        for name, found in shares.items():
            if "failed" not in {**matched[name], **known[name]}:
                found.append(1 - known[name]["seconds"] / matched[name]["seconds"])
    return {name: harness.median_and_range(found) for name, found in shares.items() if found}


def agreement(found: list[list[float]], expected: list[list[float]]) -> float:
    """Return the lowest cosine of two batches of numbers."""
    import numpy as np

    a, b = np.array(found), np.array(expected)
    return float(((a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)).min())


def show(record: dict[str, Any]) -> str:
    """Format the results as a table; `ratio` is Regard over transformers, both compiled or both eager."""
    rows: list[list[Any]] = [["model", "image", "batch", "contender", "images/s", "range", "ratio", "agree", "MiB"]]
    for case in record["cases"]:
        for name, found in case["contenders"].items():
            speed = found["images_per_second"]
            ratio = case.get(f"{name} / {name.replace('regard', 'transformers')}")
            row = [case["model"], case["image"], case["batch"], name, f"{speed['median']:,.4g}"]
            row += [f"{speed['min']:,.4g}-{speed['max']:,.4g}", f"{ratio['median']:.3f}" if ratio else ""]
            rows.append([*row, found.get("agree", ""), found.get("peak_mib", "")])
    table = harness.table(rows)
    for case in record["cases"]:
        for name, found in case["contenders"].items():
            if share := found.get("matching_share"):
                table += f"\n{case['model']} {name}: matching takes {100 * share['median']:.1f} % of an update"
                table += f" ({100 * share['min']:.1f} to {100 * share['max']:.1f})"
    return table


def main() -> None:
    """Run, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    split_list = {"type": lambda text: text.split(",")}
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), help="by default float32, on a GPU bfloat16")
    parser.add_argument("--what", choices=("inference", "training"), default="inference")
    parser.add_argument("--models", **split_list, default=[*MODELS], help=f"of {','.join(MODELS)}")
    parser.add_argument("--contenders", **split_list, help=f"of {', '.join(CONTENDERS)}")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--spend", type=float, default=1.0, help="seconds of a turn")
    parser.add_argument("--minutes", type=float, default=60.0, help="after so many no model is begun")
    parser.add_argument("--patience", type=float, default=180.0, help="seconds of a turn, its compiling among them")
    parser.add_argument("--again", action="store_true", help="measure again what the record has")
    parser.add_argument("--threads", type=int, default=min(os.cpu_count() or 1, 2))
    parser.add_argument("--quick", action="store_true", help="small models, two rounds, nothing written")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.dtype = arguments.dtype or ("float32" if arguments.device == "cpu" else "bfloat16")
    arguments.batch = arguments.batch or (2 if arguments.quick else BATCHES[arguments.device])
    if arguments.child:
        return child(arguments.child, arguments)
    if unknown := set(arguments.models) - set(MODELS):
        parser.error(f"no such model: {', '.join(sorted(unknown))}")
    ours = [name for name in CONTENDERS if name.startswith("regard")]
    arguments.contenders = arguments.contenders or (CONTENDERS if arguments.what == "inference" else ours)
    arguments.rounds = 2 if arguments.quick else arguments.rounds
    harness.exit_on_sigterm()
    print(show(compare(arguments)))


if __name__ == "__main__":
    main()
