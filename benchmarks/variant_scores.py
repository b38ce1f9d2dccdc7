"""Scores of every attention mechanism on the long-range tasks: the same model, data, updates and settings for all.

    python benchmarks/variant_scores.py                                     the screening: every mechanism, one seed,
                                                                            ListOps, grey pixels and recall
    python benchmarks/variant_scores.py --tasks all --only softmax,linear --seeds 1,2,3
    python benchmarks/variant_scores.py --device cuda --jobs 8              eight runs share the GPU
    python benchmarks/variant_scores.py --tasks copy_small --device cpu     a small task for a CPU
    python benchmarks/variant_scores.py --report                            what the records say; nothing is trained
    python benchmarks/variant_scores.py --tasks copy_small --quick          a few updates, nothing written

A run is a recipe with another `model.attention`; nothing else is tuned for any of them. Each is a process of its own
and leaves one file, results/variants/scores/TASK-MECHANISM-SEED.json. Runs whose file is there are skipped, so that a
stopped script goes on where it was. A mechanism that refuses a task (no causal mask, no grid) leaves the reason. In the
small tasks, of 33 tokens, windows, landmarks and the like are 8, so that they are fewer than the tokens.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import harness

from regard.attention import MECHANISMS, MIXERS
from regard.core.errors import RegardError
from regard.cost.measurements import measurement_folder

_SMALL = (
    "model.width=64",
    "model.heads=2",
    "model.layers=2",
    "model.ffn=256",
    "model.length=128",
    "data.context_length=33",
    "data.symbols=16",
    "train.steps=500",
    "train.warmup_steps=50",
    "train.learning_rate=0.003",
    "train.eval_interval=500",
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


TASKS = {
    "listops": LongRangeTask("lra_listops", screened=True),
    "text": LongRangeTask("lra_text"),
    "pixels": LongRangeTask("lra_pixels", screened=True),
    "recall": LongRangeTask("recall", screened=True),
    "recall_causal": LongRangeTask("recall_causal"),
    "copy": LongRangeTask("copy"),
    "copy_causal": LongRangeTask("copy_causal"),
    "shakespeare": LongRangeTask("lm_shakespeare_long", "loss", "val"),
    "ptb_bytes": LongRangeTask("lm_ptb_bytes", "bits_per_byte"),
    "copy_small": LongRangeTask("copy", settings=_SMALL, size=8),
    "copy_causal_small": LongRangeTask("copy_causal", settings=_SMALL, size=8),
}


def run(task: str, attention: str, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """Train and score one model; return its record."""
    from regard.training import evaluate, train

    about, began = TASKS[task], time.time()
    settings = [
        *about.settings,
        *([f"train.steps={args.steps}"] if args.steps else []),
        f"model.attention={_spec(attention, about.size)}",
        f"train.seed={seed}",
        f"train.device={args.device}",
        "train.final_weights=last",
    ]
    record = {"task": task, "recipe": about.recipe, "attention": attention, "seed": seed, "settings": settings}
    record |= {"metric": about.metric, "split": about.split}
    try:
        with tempfile.TemporaryDirectory() as folder:
            result = train(about.recipe, Path(folder) / "run", settings=settings, quick=args.quick)
            trained = time.time() - began
            found = evaluate(Path(folder) / "run", [about.split], device=args.device)
    except RegardError as error:
        return record | {"failed": str(error)} | _machine(args)
    scores = next(iter(found["results"].values()))
    record |= {"value": round(scores[about.metric], 5), "scores": _numbers(scores), "steps": result["steps"]}
    return record | {"parameters": found["parameters"], "seconds": round(trained, 1)} | _machine(args)


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
    return measurement_folder() / "scores" / f"{task}-{plain}-{seed}.json"


def run_in_process(job: tuple[str, str, int], args: argparse.Namespace) -> None:
    """Run one job in a process of its own and say how it went."""
    task, attention, seed = job
    options = ["--device", args.device, *(["--steps", str(args.steps)] if args.steps else [])]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", __file__, "--run", json.dumps(job), *options],
        capture_output=True,
        text=True,
        check=False,
    )
    file = file_of(*job)
    found = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    last = (done.stderr.strip().splitlines() or [""])[-1]
    said = found.get("failed") or found.get("value") or f"ended with status {done.returncode}: {last}"
    print(f"{task:16} {attention:32} seed {seed}  {said}", flush=True)


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
    parser.add_argument("--run", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run:
        task, attention, seed = json.loads(args.run)
        file = file_of(task, attention, seed)
        file.parent.mkdir(parents=True, exist_ok=True)
        record = run(task, attention, seed, args)
        harness.write(str(file.relative_to(harness.RESULTS)), record)
        return
    if args.report:
        print(report())
        return
    every = [*MECHANISMS, *(name for name in MIXERS if name != "multihead")]
    chosen = re.split(r"[;,](?![^(]*\))", args.only) if args.only else every
    tasks = [name for name, task in TASKS.items() if task.screened] if args.tasks is None else args.tasks.split(",")
    tasks = [name for name in TASKS if not name.endswith("_small")] if tasks == ["all"] else tasks
    jobs = [(task, spec.strip(), int(seed)) for task in tasks for seed in args.seeds.split(",") for spec in chosen]
    if args.quick:
        for job in jobs:
            print(json.dumps(run(*job, args)))
        return
    jobs = [job for job in jobs if not file_of(*job).is_file()]
    print(f"{len(jobs)} runs", flush=True)
    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(lambda job: run_in_process(job, args), jobs))
    print(report())


def report() -> str:
    """Return a table of all scores: mean over the seeds, how many, seconds of training."""
    files = sorted((measurement_folder() / "scores").glob("*.json"))
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


if __name__ == "__main__":
    main()
