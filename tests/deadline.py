"""Reading from another process, with a deadline."""

import threading


def read_line(process, pipe, seconds=300):
    """Return the next line from a pipe of a process; one that is silent for so long is killed, and the line empty."""
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    try:
        return pipe.readline()
    finally:
        timer.cancel()
