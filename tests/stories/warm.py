"""A process that has imported what commands need, and runs each as a child of its own: a process, but no start-up.

One JSON object a line comes in, {"words", "cwd", "env", "folder", "file_size"}; the child reads folder/in and writes
folder/out and folder/err; its exit status goes out, negative for a signal. With a file size, no file becomes larger.
What starting up itself does is for `run` (command.py).
"""

import gc
import json
import os
import resource
import signal
import sys
from importlib import import_module

gc.disable()  # until all is imported: nearly nothing of that is garbage

import torch  # noqa: E402

import regard  # noqa: E402
from regard.cli import main  # noqa: E402

IMPORTED = ("matplotlib.figure", "regard.catalogue", "regard.models.swin", "regard.tasks.image.image_classification",
            "regard.interpret.image_attribution", "regard.tasks.text.translation", "regard.see",
            "regard.training")  # fmt: skip


def child(job):
    for stream, name in enumerate(("in", "out", "err")):
        flags = os.O_RDONLY if stream == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        os.dup2(os.open(f"{job['folder']}/{name}", flags), stream)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)  # the parent's holds what it has read ahead
    sys.stdout, sys.stderr = (os.fdopen(stream, "w", encoding="utf-8", closefd=False) for stream in (1, 2))
    os.environ.clear()
    os.environ.update(job["env"])
    if job["cwd"]:
        os.chdir(job["cwd"])
    if job["file_size"]:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # so that writing fails instead of killing the process
        resource.setrlimit(resource.RLIMIT_FSIZE, (job["file_size"], job["file_size"]))
    status = main(job["words"])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def serve():
    torch.set_num_threads(1)
    for name in IMPORTED:
        import_module(name)
    regard.build("transformer", vocab=9, width=8, heads=1, ffn=8, encoder_layers=1, decoder_layers=1)  # imports as well
    os.fsync = os.fstat  # as in tests/conftest.py
    gc.freeze()  # children share it
    gc.enable()
    answers = os.fdopen(os.dup(1), "w")
    for line in iter(sys.stdin.readline, ""):
        pid = os.fork()
        if pid == 0:
            try:
                child(json.loads(line))
            finally:  # whatever happens, a child never becomes a second server
                os._exit(70)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), file=answers, flush=True)


if __name__ == "__main__":
    serve()
