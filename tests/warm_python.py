"""Run programs in child processes of one that has imported torch, its compiler and the models already.

Dynamo cannot trace through the shape checks that tests switch on, and importing it takes longer than most programs do.
"""

import gc
import os
import subprocess
import sys
import traceback
from pathlib import Path

from tests.deadline import read_line

ROOT = Path(__file__).resolve().parents[1]


class WarmPython:
    """Call it with a program: what `python -c` would print; a program that fails fails the test."""

    def __init__(self, folder):
        self.folder = folder
        self._start()

    def _start(self):
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen([sys.executable, "-m", "tests.warm_python"], env=env, cwd=ROOT, **pipes)

    def __call__(self, code):
        (self.folder / "code").write_text(code, encoding="utf-8")
        print(self.folder, file=self.process.stdin, flush=True)
        line = read_line(self.process, self.process.stdout, 600)
        if not line:  # killed; the programs after it get a new one
            self.process.wait(30)
            self._start()
        assert line, "the program was not done after 600 seconds"
        status = int(line)
        assert status == 0, (self.folder / "err").read_text(encoding="utf-8")[-4000:]
        return (self.folder / "out").read_text(encoding="utf-8")

    def close(self):
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()


def child(folder):
    import torch

    for stream, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    status = 1
    torch.set_num_threads(1)  # makes the thread pool anew, which two threads of the backward pass must not do at once
    try:
        exec(compile(Path(folder, "code").read_text(encoding="utf-8"), "<program>", "exec"), {"__name__": "__main__"})
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:  # whatever happens, a child never becomes a second server
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def serve():
    gc.disable()  # nearly nothing of what imports make is garbage
    import torch
    import torch._dynamo.testing

    import regard.models

    torch.set_num_threads(1)
    torch.compile(lambda x: x + 1, backend="aot_eager")(torch.ones(2))  # imports as well
    regard.models.build("gpt", size="tiny", vocab=17)
    gc.freeze()  # children share it
    gc.enable()
    answers = os.fdopen(os.dup(1), "w")
    for line in iter(sys.stdin.readline, ""):
        pid = os.fork()
        if pid == 0:
            child(line.rstrip("\n"))
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), file=answers, flush=True)


if __name__ == "__main__":
    serve()
