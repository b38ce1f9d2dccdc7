"""Waiting, with a deadline: for a line of another process, for a command and all it starts, for a condition."""

import os
import signal
import subprocess
import threading
import time
from contextlib import contextmanager


def read_line(process, pipe, seconds=300):
    """Return the next line from a pipe of a process; one that is silent for so long is killed, and the line empty."""
    with _killed_after(process, seconds):
        return pipe.readline()


def read_all(process, pipe, seconds=300):
    """Return what a process writes to a pipe until it ends; one that takes longer is killed."""
    with _killed_after(process, seconds):
        return pipe.read()


@contextmanager
def _killed_after(process, seconds):
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def run_group(command, seconds, **how):
    """Run a command and return what it printed; one that takes longer is killed with all processes that it started,
    which would keep its pipes open."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    with subprocess.Popen(command, **pipes, **how) as process:
        try:
            out, err = process.communicate(timeout=seconds)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def wait_until(condition, seconds=30):
    """Wait for a condition; fail after so many seconds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds} s in vain"
        time.sleep(0.01)
