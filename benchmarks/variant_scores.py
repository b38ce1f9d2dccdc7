"""Scores of every attention mechanism on the long-range tasks: the same model, data and settings for all.

    python benchmarks/variant_scores.py                                     every mechanism, one seed, on ListOps, grey
                                                                            pixels and recall, with the recipes' updates
    python benchmarks/variant_scores.py --screen --device cuda --jobs 12 --minutes 8
                                                                            the same in about 20 seconds each
    python benchmarks/variant_scores.py --tasks all --only softmax,linear --seeds 1,2,3
    python benchmarks/variant_scores.py --tasks copy_small --device cpu     a small task for a CPU
    python benchmarks/variant_scores.py --report                            what the records say; nothing is trained
    python benchmarks/variant_scores.py --tasks copy_small --quick          a few updates, nothing written

A run is a recipe with another `model.attention`; nothing else is tuned for any of them. Each is a process of its own
and leaves one file, results/variants/scores/TASK-MECHANISM-SEED.json. Runs whose file is there are skipped, so that a
stopped script goes on where it was; one that crashes, or takes longer than `--patience` seconds, loses only itself. A
mechanism that refuses a task (no causal mask, no grid) leaves the reason; a task whose data are not here is left out.
In the small tasks, of 32 and 33 tokens, windows, landmarks and the like are 8, so that they are fewer than the tokens.

With `--screen` the budget is time: a trial of some updates, while as many other runs share the GPU, says how many fit
into `--seconds`, and the schedule has that length; so a faster mechanism makes more updates. Rows all have one length
and nothing is compiled but FlexAttention's kernels, so that an update is one CUDA graph. Mechanisms that hold whole
matrices take much memory: only as many of them run at a time as fit into `--memory`. An update reads 16,384 tokens in
every task. Scores are those of the validation split, under names that end in _screen.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import harness

from regard.attention import MECHANISMS, MIXERS
from regard.core.errors import BadInput, OutOfMemory, RegardError
from regard.core.spec import Spec, resolve
from regard.cost.measurements import claimed_exponent

_SMALL = (
    "model.width=64",
    "model.heads=2",
    "model.layers=2",
    "model.ffn=256",
    "model.length=128",
    "model.initializer_range=0.02",
    "data.context_length=33",
    "data.symbols=16",
    "train.steps=500",
    "train.warmup_steps=50",
    "train.learning_rate=0.003",
    "train.eval_interval=500",
)

_SMALL_RECALL = (
    *(each for each in _SMALL if not each.startswith(("model.initializer_range", "data.", "train.learning_rate"))),
    "model.initializer_range=0.1",
    "data.context_length=32",
    "data.pairs=4",
    "data.symbols=16",
    "data.batch_size=64",
    "train.learning_rate=0.001",
)


@dataclass(frozen=True)
class LongRangeTask:
    """A recipe, what is changed in it, and the score."""

    recipe: str
    metric: str = "accuracy"
    split: str = "test"
    settings: tuple[str, ...] = ()
    screened: bool = False  # part of the screening
    size: int | None = None  # of windows, landmarks and the like; None: the mechanism's default
    screening: tuple[str, ...] = ()  # settings of the screening: fewer rows an update


TASKS = {
    "listops": LongRangeTask(
        "lra_listops",
        screened=True,
        screening=(
            "data.batch_size=8",
            "data.train_examples=20000",
            "data.eval_examples=1000",
            "data.row_length=2048",
        ),
    ),
    "text": LongRangeTask("lra_text"),
    "pixels": LongRangeTask("lra_pixels", screened=True, screening=("data.batch_size=16",)),
    "recall": LongRangeTask(
        "recall",
        screened=True,
        screening=("data.context_length=256", "data.pairs=16", "data.symbols=64", "data.batch_size=64"),
    ),
    "recall_causal": LongRangeTask("recall_causal"),
    "copy": LongRangeTask("copy"),
    "copy_causal": LongRangeTask("copy_causal"),
    "shakespeare": LongRangeTask("lm_shakespeare_long", "loss", "val"),
    "ptb_bytes": LongRangeTask("lm_ptb_bytes", "bits_per_byte"),
    "copy_small": LongRangeTask("copy", settings=_SMALL, size=8),
    "copy_causal_small": LongRangeTask("copy_causal", settings=_SMALL, size=8),
    "recall_causal_small": LongRangeTask("recall_causal", settings=_SMALL_RECALL, size=8),
}


SCREEN = "_screen"  # ends the names of tasks whose budget is time
TRIAL = 20  # updates whose time is taken; those before compile and capture
WARMUP = 6
# GiB that a run is expected to take, not measured: a matrix of scores has 8 x 4 x 2048² numbers, half a GiB, and some
# eight of them are kept in each of four layers; convolutions of them keep more
HEAVY, HEAVIEST, LIGHT = 18.0, 40.0, 4.0


def run(task: str, attention: str, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """Train and score one model; return its record."""
    from regard.training import evaluate, train

    about, began = TASKS[task.removesuffix(SCREEN)], time.time()
    settings = [
        *about.settings,
        *(about.screening if args.screen else ()),
        *([f"train.steps={args.steps}"] if args.steps else []),
        f"model.attention={_spec(attention, about.size)}",
        f"train.seed={seed}",
        f"train.device={args.device}",
        "train.final_weights=last",
    ]
    record = {"task": task, "recipe": about.recipe, "attention": attention, "seed": seed}
    try:
        with tempfile.TemporaryDirectory() as folder:
            if args.screen:
                settings += ["train.compile=false", "train.eval_interval=1000000000"]
                seconds = time_update(about.recipe, settings, Path(folder) / "trial", args.quick)
                steps = max(10, min(100_000, round(args.seconds / seconds)))
                warmup = min(load(about.recipe, settings).train.warmup_steps, steps // 10)
                limit = f"train.max_minutes={2 * args.seconds / 60}"  # if the others take more of the GPU later
                settings += [f"train.steps={steps}", f"train.warmup_steps={warmup}", limit]
                began = time.time()
            result = train(about.recipe, Path(folder) / "run", settings=settings, quick=args.quick)
            record |= {"settings": settings, "metric": about.metric, "split": "val" if args.screen else about.split}
            trained = result["seconds"] if args.screen else time.time() - began
            if args.screen:
                scores, parameters = result["validation"]["last"], result["parameters"]
                record |= {"stop_reason": result["stop_reason"], "captured": result["captured_shapes"] > 0}
            else:
                found = evaluate(Path(folder) / "run", [about.split], device=args.device)
                scores, parameters = next(iter(found["results"].values())), found["parameters"]
    except (BadInput, OutOfMemory):
        raise  # data that are missing, memory that the others took: not for the record
    except RegardError as error:
        return record | {"settings": settings, "failed": str(error)} | _machine(args)
    record |= {"value": round(scores[about.metric], 5), "scores": _numbers(scores), "steps": result["steps"]}
    return record | {"parameters": parameters, "seconds": round(trained, 1)} | _machine(args)


def load(recipe: str, settings: list[str]) -> Any:
    """Return a recipe with settings."""
    from regard.training.recipe import load_recipe, override_recipe

    return override_recipe(load_recipe(recipe), settings)


def time_update(recipe: str, settings: list[str], folder: Path, quick: bool) -> float:
    """Return the seconds of an update, after some that compile and capture it."""
    from dataclasses import replace

    from regard.data.batching import prefetch
    from regard.training import rng
    from regard.training.checkpoint.checkpoints import Checkpoints
    from regard.training.device import select_device
    from regard.training.loop import TrainingRun
    from regard.training.parallel.distributed import distributed_context
    from regard.training.recipe import quick_recipe
    from regard.training.update_graph import training_stream

    chosen = load(recipe, settings)
    chosen = quick_recipe(chosen) if quick else chosen
    device = select_device(chosen.train.device)
    folder.mkdir(parents=True)
    with distributed_context(device, 1) as world, rng.isolated_rng(world.device):
        trial = TrainingRun(chosen, folder, world, Checkpoints(folder / "checkpoints", 1, 1, world), None)
        pin = (lambda item: replace(item, batch=item.batch.pin())) if device.type == "cuda" else None
        trial.model.train()
        stream = trial.task.batches().start(trial.position, world.replica, world.num_replicas)
        with training_stream(world.device), prefetch(stream, prepare=pin, workers=1) as batches:
            for _ in range(WARMUP):
                trial._update(batches)
            trial._stop_clock()
            trial.seconds = 0.0
            trial._start_clock()
            for _ in range(TRIAL):
                trial._update(batches)
            trial._stop_clock()
    return trial.seconds / TRIAL


def _spec(attention: str, size: int | None) -> str:
    """Return the spec to train: with a size, a mechanism named without settings gets small ones."""
    if size is None or attention not in MECHANISMS:
        return attention
    from regard.interpret.mechanism_gallery import example_spec

    return example_spec(attention, size)


def _numbers(scores: dict[str, Any]) -> dict[str, float]:
    return {key: round(value, 5) for key, value in scores.items() if isinstance(value, (int, float))}


def _machine(args: argparse.Namespace) -> dict[str, Any]:
    known = harness.machine(args.device)
    return {key: known[key] for key in ("date", "cpu", "cores", "gpu", "versions", "load_at_start") if key in known}


def file_of(task: str, attention: str, seed: int) -> Path:
    """Return the file of a run."""
    plain = re.sub(r"[^\w.]+", "_", attention).strip("_")
    return harness.RESULTS / "variants" / "scores" / f"{task}-{plain}-{seed}.json"


def run_all(jobs: list[tuple[str, str, int]], command: list[str], args: argparse.Namespace) -> None:
    """Run jobs side by side, each in a process of its own; heavy ones only as far as they fit into memory.

    `command` with TASK, SPEC and SEED behind it runs one and writes its file.
    """
    began, waiting, number = time.monotonic(), [*jobs], len(jobs)
    ends = began + 60 * args.minutes
    running: dict[tuple[str, str, int], tuple[subprocess.Popen[bytes], float, Path, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            while running or (waiting and time.monotonic() < ends):
                for job, (process, _, log, since) in [*running.items()]:
                    if process.poll() is None and time.monotonic() > since + args.patience:
                        process.kill()
                        process.wait()
                    if process.poll() is not None:
                        del running[job]
                        print(f"[{time.monotonic() - began:4.0f} s] {_said(job, process.returncode, log)}", flush=True)
                used = sum(memory for _, memory, _, _ in running.values())
                for job in [*waiting]:
                    memory = expected_memory(job[1]) if args.screen else LIGHT
                    if len(running) >= args.jobs or time.monotonic() >= ends:
                        break
                    if running and used + memory > args.memory:
                        continue
                    log = Path(folder) / f"{number - len(waiting)}.log"
                    with open(log, "wb") as output:
                        process = subprocess.Popen(
                            [*command, *map(str, job)], stdin=subprocess.DEVNULL, stdout=output, stderr=output
                        )
                    running[job] = process, memory, log, time.monotonic()
                    used += memory
                    waiting.remove(job)
                time.sleep(0.1)
        finally:
            for process, *_ in running.values():
                process.kill()
    if waiting:
        print(f"{len(waiting)} runs were not begun; the same command goes on with them", flush=True)


def expected_memory(attention: str) -> float:
    """Return the GiB of a run: many if a mechanism claims N² and is not the fused kernel, so that it holds matrices."""
    name = Spec.parse(attention).name
    if name in ("softmax", "evolving"):
        return LIGHT if name == "softmax" else HEAVIEST
    traits: Any = getattr(resolve(MECHANISMS if name in MECHANISMS else MIXERS, name, "attention"), "traits", None)
    power = claimed_exponent(traits.cost) if traits is not None else None
    return HEAVY if power is None or power >= 2 else LIGHT


def _said(job: tuple[str, str, int], status: int | None, log: Path) -> str:
    task, attention, seed = job
    file = file_of(*job)
    found = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    last = (log.read_text("utf-8", errors="replace").strip().splitlines() or [""])[-1]
    said = found.get("failed") or found.get("value")
    said = f"ended with status {status}: {last[:200]}" if said is None else said
    return f"{task:16} {attention:32} seed {seed}  {said}  {found.get('steps', '')}"


def find_fault(task: str) -> str:
    """Return why a task cannot be trained here: data that are missing; "" if it can."""
    about = TASKS[task.removesuffix(SCREEN)]
    try:
        load(about.recipe, [*about.settings]).data.split("train")
    except RegardError as error:
        return str(error)
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--tasks", help=f"names separated by commas, or all: {', '.join(TASKS)}; default: the screening"
    )
    parser.add_argument("--only", help="specs of mechanisms and mixers, separated by semicolons or commas")
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--steps", type=int, help="updates; default: the recipe's")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--report", action="store_true", help="print the records; nothing is trained")
    parser.add_argument("--quick", action="store_true", help="a dozen updates of a tiny model, nothing written")
    parser.add_argument("--screen", action="store_true", help="a budget of time for each run, see above")
    parser.add_argument("--seconds", type=float, default=20.0, help="of training, with --screen")
    parser.add_argument("--minutes", type=float, default=1e6, help="after so many no run is begun")
    parser.add_argument("--memory", type=float, default=125.0, help="GiB of the GPU that heavy runs may share")
    parser.add_argument(
        "--patience", type=float, help="seconds of a run before it is ended; default: 240 with --screen"
    )
    parser.add_argument("--job", nargs=3, metavar=("TASK", "SPEC", "SEED"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.patience = args.patience or (240.0 if args.screen else math.inf)
    if args.job:
        job = args.job[0], args.job[1], int(args.job[2])
        harness.write(str(file_of(*job).relative_to(harness.RESULTS)), run(*job, args))
        return
    if args.report:
        print(report())
        return
    every = [*MECHANISMS, *(name for name in MIXERS if name != "multihead")]
    chosen = re.split(r"[;,](?![^(]*\))", args.only) if args.only else every
    tasks = [name for name, task in TASKS.items() if task.screened] if args.tasks is None else args.tasks.split(",")
    tasks = [name for name in TASKS if not name.endswith("_small")] if tasks == ["all"] else tasks
    tasks = [f"{task}{SCREEN}" for task in tasks] if args.screen else tasks
    jobs = [(task, spec.strip(), int(seed)) for task in tasks for seed in args.seeds.split(",") for spec in chosen]
    if args.quick:
        for job in jobs:
            print(json.dumps(run(*job, args)))
        return
    for task in tasks:
        if why := find_fault(task):
            print(f"{task} is left out: {why}", flush=True)
            jobs = [job for job in jobs if job[0] != task]
    jobs = [job for job in jobs if not file_of(*job).is_file()]
    print(f"{len(jobs)} runs", flush=True)
    harness.exit_on_sigterm()
    options = [f"--device={args.device}", f"--seconds={args.seconds}", *(["--screen"] if args.screen else [])]
    options += [f"--steps={args.steps}"] if args.steps else []
    run_all(jobs, [sys.executable, sys.argv[0], *options, "--job"], args)
    print(report())


def report() -> str:
    """Return a table of all scores: mean over the seeds, how many, seconds of training."""
    files = sorted((harness.RESULTS / "variants" / "scores").glob("*.json"))
    runs = [json.loads(file.read_text("utf-8")) for file in files]
    rows: list[list[str]] = [["task", "attention", "score", "seeds", "seconds"]]
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for each in runs:
        groups.setdefault((each["task"], each["attention"]), []).append(each)
    for (task, attention), some in groups.items():
        good = [each for each in some if "value" in each]
        mean = f"{statistics.mean(each['value'] for each in good):.4f}" if good else "refused"
        seconds = f"{statistics.mean(each['seconds'] for each in good):.0f}" if good else ""
        rows.append([task, attention, mean, str(len(good)), seconds])
    return harness.table(rows)


# processes that compile do so themselves, side by side
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

if __name__ == "__main__":
    main()
