"""One seed, separate streams: init, data, dropout, sampling. Drawing from one never moves another.

Dropout draws from torch's global generator, so that one is forked for the run, seeded, saved and restored; the caller's
own random numbers are as they were when the run is over.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any

import torch


def derive_seed(seed: int, stream: str) -> int:
    """The seed of a named stream."""
    return int.from_bytes(blake2b(f"{seed}/{stream}".encode(), digest_size=8).digest(), "big") >> 1


@contextmanager
def isolated_rng(device: torch.device) -> Iterator[None]:
    """Whatever is drawn from torch's global generators inside leaves no trace outside."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        yield


def get_rng_state(device: torch.device, sampling: torch.Generator) -> dict[str, Any]:
    """The random state of a run: dropout's (global, on the host and on its device) and sampling's."""
    found = {"host": torch.get_rng_state(), "sampling": sampling.get_state()}
    if device.type == "cuda":
        found["cuda"] = torch.cuda.get_rng_state(device)
    return found


def set_rng_state(kept: dict[str, Any], device: torch.device, sampling: torch.Generator) -> None:
    """Go on drawing where `get_rng_state` was taken; on another kind of device dropout starts from its seed again."""
    torch.set_rng_state(kept["host"])
    sampling.set_state(kept["sampling"])
    if device.type == "cuda" and "cuda" in kept:
        torch.cuda.set_rng_state(kept["cuda"], device)
