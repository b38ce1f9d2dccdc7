"""Run under torchrun by rank tests: one training after another, so that torch is imported once."""

import gc
import json
import os
import resource
import signal
import sys
from pathlib import Path

import torch

import regard.training.loop
from regard.core.errors import RegardError, is_out_of_memory
from regard.training import train
from regard.training.parallel import deferred_init
from regard.training.parallel.distributed import init_process_group
from regard.training.recipe import build, load_recipe, override_recipe


def die(rank, step, marker):
    """Kill the process of this rank at an update, the first time it gets there."""
    update = regard.training.loop.TrainingRun._update

    def dying(self, batches):
        if self.world.rank == rank and self.step == step and not Path(marker).exists():
            Path(marker).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        update(self, batches)

    regard.training.loop.TrainingRun._update = dying


def limit_memory(mebibytes, recipe, settings):
    """Let this process take so much more memory than it has now, after seeing that the whole model does not fit."""
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + (mebibytes << 20), resource.RLIM_INFINITY))
    try:
        build(override_recipe(load_recipe(recipe), settings).model)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
    else:
        raise AssertionError("the whole model fits")
    gc.collect()


class Ended(Exception):
    """Raised where a job ends early."""


def end_before(step):
    """End the run before an update, with all that belongs to the one before."""
    update = regard.training.loop.TrainingRun._update

    def ending(self, batches):
        if self.step == step:
            raise Ended
        update(self, batches)

    regard.training.loop.TrainingRun._update = ending


def main() -> int:
    jobs = json.loads(Path(sys.argv[1]).read_text())
    regard.training.loop.TrainingRun._draw = lambda self, force=False: None
    init_process_group("gloo")
    deferred_init.MIN_DEFERRED = 2  # the models of these tests are small
    for job in jobs:
        if "mebibytes" in job:
            limit_memory(job["mebibytes"], job["recipe"], job["settings"])
        if "end" in job:
            end_before(job["end"])
        if "kill" in job:
            die(**job["kill"])
        try:
            train(job["recipe"], job["out"], job.get("resume", False), job.get("settings", []))
        except Ended:
            print(f"ended: {job['out']}", file=sys.stderr, flush=True)
        except RegardError as error:
            if not job.get("fails"):
                raise
            print(f"error: {error}", file=sys.stderr, flush=True)
    torch.distributed.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
