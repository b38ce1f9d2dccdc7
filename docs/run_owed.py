"""Makes what docs/results.md still owes: trains, evaluates and records runs, several side by side on one GPU.

    python docs/run_owed.py --list                         what is owed, a line each
    python docs/run_owed.py 'nmt-en-de-*' t5-three-tasks --slots 12 --seconds 1500
        [--out runs]                                       where the runs go
        [--machine TEXT]                                   how the page names the machine

Names are those of docs/results_owed.py, patterns with * too, in the order in which they are to begin; without names,
all. Small models leave most of a GPU idle, so that a dozen of them share it well (the more so with NVIDIA's MPS
running); their minutes are then not those of a run alone: say so with --machine. What a run begins with or is taught
by (runs/bert) is waited for where it is owed itself. When time is up, runs that are not done are stopped; what they
have written is there, and `regard train` with the same folder goes on with it.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

from results_owed import OWED_RUNS, Owed
from results_seq2seq import SYSTEMS

from regard.training.recipe import load_recipe

HERE = Path(__file__).resolve().parent
RECORDS = HERE / "results"


class Job(NamedTuple):
    """One run: its name on the page, its row there, its folder, how it is trained, and the folders it waits for."""

    name: str
    system: str | None
    folder: Path
    train: str
    needs: frozenset[Path]


def jobs(patterns: Sequence[str], out: Path) -> list[Job]:
    """The runs that are owed and asked for, in the order of the patterns."""
    wanted = dict.fromkeys(name for p in patterns or ["*"] for name in OWED_RUNS if fnmatch(name, p))
    found = []
    for name in wanted:
        each = OWED_RUNS[name]
        seeds = [None] if each.runs == 1 and not name.startswith("nmt-") else list(range(1, each.runs + 1))
        for seed in seeds:
            record = name if seed is None else f"{name}-{seed}"
            if not (RECORDS / f"{record}.json").is_file():
                found.append(_job(name, record, each, seed, out))
    return found


def _job(name: str, record: str, each: Owed, seed: int | None, out: Path) -> Job:
    words = shlex.split(each.how)
    at = words.index("--out")
    words[at + 1] = str(out / Path(words[at + 1]).name if seed is None else out / record)
    words = [re.sub(r"=runs/", f"={out}/", word) for word in words if not word.startswith("train.seed=")]
    if seed is not None:
        words.insert(words.index("--out"), f"train.seed={seed}")
    needs = {Path(word.partition("=")[2]) for word in words if word.partition("=")[2].startswith(f"{out}/")}
    row = SYSTEMS[name.split("-", 3)[3]].what if name.startswith("nmt-") else _row(each.what)
    return Job(record, row, Path(words[words.index("--out") + 1]), shlex.join(words), frozenset(needs))


def _row(what: str) -> str | None:
    """Of "SST-2, small BERT, pre-trained; seeds 1 to 3" what tells it from others on the same data."""
    _, _, rest = re.sub(r"( \(about [^)]*\)|; seeds .*|, ships as .*)$", "", what).partition(", ")
    return rest or None


def line(job: Job, machine: str | None) -> str:
    """Everything that makes a run and puts it on the page, for a shell."""
    run = shlex.quote(str(job.folder))
    parts = load_recipe(shlex.split(job.train)[2]).data.splits()
    part = "" if any(each.startswith("test") for each in parts) else " --split val"
    every = [job.train, f"regard eval {run}{part} --output {run}/evaluation.json"]
    if job.name.startswith("nmt-"):
        every.append(f"regard eval {run} --beam-size 1 --output {run}/greedy.json")
    add = [sys.executable, str(HERE / "make_results.py"), "add", str(job.folder), "--name", job.name]
    add += ["--command", job.train, *(["--system", job.system] if job.system else [])]
    add += ["--machine", machine] if machine else []
    return " && ".join([*every, shlex.join(add)])


def work(todo: list[Job], slots: int, seconds: float, machine: str | None, out: Path) -> int:
    """Keep so many runs going until all are done or the time is up; the number that failed or were left."""
    out.mkdir(parents=True, exist_ok=True)
    begun, failed = time.monotonic(), set[Path]()
    made = {job.folder for job in todo}
    running: dict[Job, subprocess.Popen[bytes]] = {}

    def say(what: str, job: Job) -> None:
        print(f"{time.monotonic() - begun:7.0f} s  {what}  {job.name}", flush=True)

    while (todo or running) and time.monotonic() - begun < seconds:
        for job, process in list(running.items()):
            if process.poll() is not None:
                del running[job]
                made.discard(job.folder)
                if process.returncode:
                    failed.add(job.folder)
                say("failed" if process.returncode else "done  ", job)
        for job in list(todo):
            if job.needs & failed:
                todo.remove(job)
                failed.add(job.folder)
                say("left  ", job)
            elif len(running) < slots and not job.needs & made:
                todo.remove(job)
                with (out / f"{job.name}.log").open("wb") as log:
                    running[job] = subprocess.Popen(
                        ["bash", "-c", line(job, machine)], stdout=log, stderr=log, start_new_session=True
                    )
                say("begun ", job)
        time.sleep(0.5)
    for job, process in running.items():
        os.killpg(process.pid, signal.SIGTERM)
        say("cut   ", job)
    return len(failed) + len(running) + len(todo)


def main(words: Sequence[str] | None = None) -> int:
    """Read the command line; list or run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--machine")
    parser.add_argument("--out", type=Path, default=Path("runs"))
    args = parser.parse_args(words)
    todo = jobs(args.names, args.out)
    if args.list:
        print(*(f"{job.name}\t{job.train}" for job in todo), sep="\n")
        return 0
    return 1 if work(todo, args.slots, args.seconds, args.machine, args.out) else 0


if __name__ == "__main__":
    sys.exit(main())
