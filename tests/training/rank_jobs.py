"""Run under torchrun by rank tests: one training after another, so that torch is imported once."""

import json
import os
import signal
import sys
from pathlib import Path

import torch

import regard.training.loop
from regard.core.errors import RegardError
from regard.training import train
from regard.training.parallel.distributed import init_process_group


def die(rank, step, marker):
    """Kill the process of this rank at an update, the first time it gets there."""
    update = regard.training.loop.TrainingRun._update

    def dying(self, batches):
        if self.world.rank == rank and self.step == step and not Path(marker).exists():
            Path(marker).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        update(self, batches)

    regard.training.loop.TrainingRun._update = dying


def main() -> int:
    jobs = json.loads(Path(sys.argv[1]).read_text())
    regard.training.loop.TrainingRun._draw = lambda self, force=False: None
    init_process_group("gloo")
    for job in jobs:
        if "kill" in job:
            die(**job["kill"])
        try:
            train(job["recipe"], job["out"], job.get("resume", False), job.get("settings", []))
        except RegardError as error:
            if not job.get("fails"):
                raise
            print(f"error: {error}", file=sys.stderr, flush=True)
    torch.distributed.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
