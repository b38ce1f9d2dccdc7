"""Start a module in several processes as torchrun does, but forked from one that has imported torch already.

    python -m tests.training.run_ranks 4 tests.training.checkpoint_ranks four folder

Importing torch takes longer than most of these tests. Every process has torchrun's environment; if one fails, the
others, which would wait for it, are terminated. Tests of torchrun itself start torchrun.
"""

import gc
import importlib
import os
import signal
import socket
import sys
import traceback
from pathlib import Path

from tests.deadline import run_group

ROOT = Path(__file__).resolve().parents[2]


def together(ranks, module, *words, timeout=300):
    """Run a module's main() with these arguments in several processes; return what they printed."""
    command = [sys.executable, "-m", "tests.training.run_ranks", str(ranks), module, *map(str, words)]
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
    done = run_group(command, timeout, env=env, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def main(ranks, name, *words):
    gc.disable()  # nearly nothing of what imports make is garbage
    module = importlib.import_module(name)
    os.fsync = os.fstat  # as in tests/conftest.py
    gc.freeze()
    gc.enable()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
    running = set()
    for rank in range(int(ranks)):
        pid = os.fork()
        if pid == 0:
            os.environ |= where | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            sys.argv = [name, *words]
            child(module)
        running.add(pid)
    failed = 0
    while running:
        pid, status = os.wait()
        running.discard(pid)
        if status and not failed:
            failed = 1
            for other in running:
                os.kill(other, signal.SIGKILL)
    return failed


def child(module):
    """Run in a forked process; never returns."""
    status = 70
    try:
        status = module.main() or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
