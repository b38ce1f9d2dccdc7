"""A process that has imported torch and starts trainings as children, so that they need not import it.

One JSON object per line comes in, one number goes out:

    {"words": [...], "log": file, "slow": s}     start `python -m regard.training WORDS`; its process id
    {"wait": pid}                                wait until it has ended; its exit status, negative for a signal

With `slow`, flushing a file to disk takes that many seconds longer, so that a kill hits the middle of a checkpoint.
"""

import gc
import json
import os
import sys
import time

gc.disable()  # until all is imported: nearly nothing of that is garbage

import torch  # noqa: E402

import regard.training.loop  # noqa: E402
from regard.training.__main__ import main  # noqa: E402


def child(job):
    log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(log, stream)
    fsync = os.fsync

    def slow(handle):
        time.sleep(job["slow"])
        fsync(handle)

    os.fsync = slow
    regard.training.loop.TrainingRun._draw = lambda self, force=False: None
    os._exit(main(job["words"]))


def serve():
    torch.set_num_threads(1)
    gc.freeze()
    gc.enable()
    print("ready", flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        if "wait" in job:
            print(os.waitstatus_to_exitcode(os.waitpid(job["wait"], 0)[1]), flush=True)
            continue
        pid = os.fork()
        if pid == 0:
            try:
                child(job)
            finally:  # whatever happens, a child never becomes a second nursery
                os._exit(70)
        print(pid, flush=True)


if __name__ == "__main__":
    serve()
