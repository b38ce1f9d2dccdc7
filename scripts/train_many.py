"""Train and evaluate many recipes side by side on one machine, for a given time.

    python scripts/train_many.py jobs.json --check                         recipes, settings and data of all, in seconds
    python scripts/train_many.py jobs.json quick --minutes 5 --quick       a few updates of each, and its evaluation
    python scripts/train_many.py jobs.json runs --minutes 9                8 at a time
    python scripts/train_many.py jobs.json runs --minutes 30 --slots 12 --mps

jobs.json is a list, most important first; it is read again and again, so that jobs can be added while others run:

    [{"name": "unet-1", "recipe": "camvid_unet", "minutes": 3, "set": ["train.seed=1"], "needs": ["camvid"]},
     {"name": "babi-1", "recipe": "memn2n_babi", "minutes": 5, "device": "cpu"}]

    minutes   of training, `train.budget_minutes`, so that schedules end with them; fewer where less time is left
    set       settings of the recipe
    needs     datasets: the job begins when $REGARD_DATA has their folders, and all files that the recipe reads
    device    cpu keeps a job off the GPU

scripts/owed.json has the jobs whose results the results pages still lack, in the order in which they are wanted.

Every job is `regard train`, then `regard eval`. runs/NAME is its folder, runs/NAME.log what it said; runs/summary.txt
has a line for each that ended. When the time is up, or at SIGTERM, what still runs is interrupted as by Ctrl-C, which
leaves a usable model. The same command goes on: what was evaluated is left alone, what was interrupted is resumed. A
job that takes much longer than its minutes is interrupted, and its place given to the next.

Small models leave most of a GPU idle; NVIDIA's Multi-Process Service (--mps) lets the kernels of several run at the
same time. A process under it must not be ended by SIGKILL: that ends the others as well.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

RESERVE = 40.0  # seconds of a job beside its updates: imports, data, the last evaluation, the test split
LOOK = 10.0  # seconds until a job that could not begin is looked at again
LEAST = 20.0  # seconds of training worth beginning
GRACE = 30.0  # seconds in which an interrupted run saves its model
OVERTIME = 240.0  # seconds beyond its minutes after which a job is taken to hang
REGARD = [sys.executable, "-m", "regard"]


class Running(NamedTuple):
    """A process of a job."""

    job: dict[str, Any]
    stage: str  # train or eval
    process: subprocess.Popen[bytes]
    began: float


class Queue:
    """The jobs of a file, those that run and those that are done."""

    def __init__(
        self,
        jobs: Path,
        out: Path,
        minutes: float,
        slots: int,
        command: list[str],
        find_fault: Callable[[dict[str, Any]], str],
        quick: bool = False,
    ) -> None:
        self.jobs, self.out, self.slots, self.command = jobs, out, slots, command
        self.find_fault, self.quick = find_fault, quick
        self.end = time.monotonic() + 60 * minutes
        self.running: list[Running] = []
        self.begun: set[str] = set()
        self.hanging: list[Running] = []
        self.look_again: dict[str, float] = {}  # when, at jobs that could not begin
        self.known: list[dict[str, Any]] = []
        out.mkdir(parents=True, exist_ok=True)

    def run(self, pause: float = 0.5) -> None:
        """Run jobs until all are done or the time is up; whatever ends it, no job is left behind."""
        try:
            self._work(pause)
        finally:
            self._interrupt()

    def _work(self, pause: float) -> None:
        while time.monotonic() < self.end:
            self._collect()
            waiting = [job for job in self._read() if job["name"] not in self.begun]
            if not waiting and not self.running:
                return
            ready = [job for job in waiting if self._is_ready(job)]
            for job in ready[: max(0, self.slots - len(self.running))]:
                self._train(job)
            time.sleep(pause)

    def _is_ready(self, job: dict[str, Any]) -> bool:
        """Return whether a job can begin, looked at every few seconds; say once what it waits for."""
        name = job["name"]
        if time.monotonic() < self.look_again.get(name, 0.0):
            return False
        if why := self.find_fault(job):
            if name not in self.look_again:
                self._note(job, f"waits: {why}")
            self.look_again[name] = time.monotonic() + LOOK
        return not why

    def _read(self) -> list[dict[str, Any]]:
        """Return the jobs of the file; those of before while somebody is writing it."""
        try:
            self.known = json.loads(self.jobs.read_text("utf-8"))
        except ValueError:
            if not self.known:
                raise
        return self.known

    def _train(self, job: dict[str, Any]) -> None:
        self.begun.add(job["name"])
        folder = Path(self._folder(job))
        if (folder / "evaluation.json").is_file():
            return self._note(job, "was evaluated before")
        left = self.end - time.monotonic() - RESERVE
        if left < LEAST:
            return self._note(job, "not begun: the time is up")
        seconds = min(60 * job["minutes"], left)
        if (folder / "recipe.json").is_file():
            return self._start(job, "train", ["train", "--resume", "--out", str(folder)])
        budget = "--quick" if self.quick else f"train.budget_minutes={seconds / 60:.2f}"
        self._start(job, "train", ["train", job["recipe"], *job.get("set", ()), budget, "--out", str(folder)])

    def _start(self, job: dict[str, Any], stage: str, words: list[str]) -> None:
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        if job.get("device") == "cpu":
            environment["CUDA_VISIBLE_DEVICES"] = ""
        with open(self.out / f"{job['name']}.log", "ab") as log:
            log.write(f"$ regard {shlex.join(words)}\n".encode())
            log.flush()
            process = subprocess.Popen(
                [*self.command, *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's `&` lets it be ignored
            )
        self.running.append(Running(job, stage, process, time.monotonic()))

    def _collect(self) -> None:
        """Note what has ended, and evaluate what was trained."""
        for each in [each for each in self.running if each.process.poll() is not None]:
            self.running.remove(each)
            job, status = each.job, each.process.returncode
            self._note(job, f"{each.stage} ended with status {status} after {time.monotonic() - each.began:.0f} s")
            if each.stage == "train" and status == 0:
                folder = self._folder(job)
                self._start(job, "eval", ["eval", folder, "--output", f"{folder}/evaluation.json"])
        for each in [each for each in self.running if time.monotonic() > each.began + self._limit(each.job)]:
            self.running.remove(each)
            self.hanging.append(each)
            each.process.send_signal(signal.SIGINT)
            self._note(each.job, f"{each.stage} interrupted after {time.monotonic() - each.began:.0f} s: it hangs")

    def _limit(self, job: dict[str, Any]) -> float:
        return float(60 * job["minutes"]) + OVERTIME

    def _interrupt(self) -> None:
        self.running += [each for each in self.hanging if each.process.poll() is None]
        for each in self.running:
            each.process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + GRACE
        for each in self.running:
            try:
                each.process.wait(max(0.0, deadline - time.monotonic()))
                self._note(each.job, f"{each.stage} interrupted: the time is up")
            except subprocess.TimeoutExpired:
                self._note(each.job, f"{each.stage} still runs, process {each.process.pid}")
        self.running.clear()

    def _folder(self, job: dict[str, Any]) -> str:
        return str(self.out / job["name"])

    def _note(self, job: dict[str, Any], text: str) -> None:
        line = f"{time.strftime('%H:%M:%S')}  {job['name']}: {text}"
        print(line, flush=True)
        with open(self.out / "summary.txt", "a", encoding="utf-8") as summary:
            summary.write(f"{line}\n")


def find_fault(job: dict[str, Any]) -> str:
    """Return why a job cannot begin: its recipe, its settings or its data; "" if it can."""
    from regard.core.errors import RegardError
    from regard.data.data_dir import find_dataset
    from regard.data.datasets import datasets_of
    from regard.training.recipe import load_recipe, override_recipe

    if wrong := (job.keys() - {"set", "needs", "device"}) ^ {"name", "recipe", "minutes"}:
        return f"unknown or missing fields: {', '.join(sorted(wrong))}"
    try:
        for name in job.get("needs", ()):
            find_dataset(name)
        data = override_recipe(load_recipe(job["recipe"]), job.get("set", ())).data
        for name in datasets_of(data):
            find_dataset(name)
        data.split("train")
    except RegardError as error:
        return str(error)
    return ""


def check(jobs: list[dict[str, Any]]) -> bool:
    """Say of every job whether it can begin; return whether all can."""
    faults = {f"{n + 1}. {job.get('name')}": find_fault(job) for n, job in enumerate(jobs)}
    names = [job.get("name") for job in jobs]
    faults |= {name: "the name is there twice" for name in names if names.count(name) > 1}
    for name, why in faults.items():
        if why:
            print(f"{name}: {why}")
    print(f"{len(jobs)} jobs, {sum(map(bool, faults.values()))} faults")
    return not any(faults.values())


def start_mps() -> None:
    """Start the Multi-Process Service, if this machine has it and it does not run yet."""
    if shutil.which("nvidia-cuda-mps-control") is None:
        sys.exit("train_many: there is no nvidia-cuda-mps-control here; leave out --mps")
    for name in ("PIPE", "LOG"):
        folder = os.environ.setdefault(f"CUDA_MPS_{name}_DIRECTORY", f"/tmp/nvidia-mps-{name.lower()}")
        Path(folder).mkdir(parents=True, exist_ok=True)
    subprocess.run(["nvidia-cuda-mps-control", "-d"], check=False)


def main(arguments: list[str] | None = None) -> None:
    """Run the jobs of a file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("jobs", type=Path)
    parser.add_argument("out", type=Path, nargs="?", default=Path("runs"))
    parser.add_argument("--minutes", type=float, help="needed, but for --check")
    parser.add_argument("--check", action="store_true", help="check recipes, settings and data; train nothing")
    parser.add_argument("--quick", action="store_true", help="shrink every recipe to seconds, to check that it runs")
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--mps", action="store_true")
    chosen = parser.parse_args(arguments)
    if chosen.check:
        sys.exit(0 if check(json.loads(chosen.jobs.read_text("utf-8"))) else 1)
    if chosen.minutes is None:
        parser.error("--minutes N is needed")
    if chosen.mps:
        start_mps()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    Queue(chosen.jobs, chosen.out, chosen.minutes, chosen.slots, REGARD, find_fault, chosen.quick).run()


if __name__ == "__main__":
    main()
