"""One seed, separate random streams: init, data, dropout, sampling. Drawing from one does not change another.

Dropout draws from torch's global generator, so that one is forked for the run, seeded, saved and restored; the caller's
random state is unchanged after the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any

import torch


def derive_seed(seed: int, stream: str) -> int:
    """Return the seed of a named stream."""
    return int.from_bytes(blake2b(f"{seed}/{stream}".encode(), digest_size=8).digest(), "big") >> 1


@contextmanager
def isolated_rng(device: torch.device) -> Iterator[None]:
    """Restore torch's global random state after the block."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        yield


def get_rng_state(device: torch.device, sampling: torch.Generator) -> dict[str, Any]:
    """Return the random state of a run: the global generators' (dropout) and sampling's."""
    found = {"host": torch.get_rng_state(), "sampling": sampling.get_state()}
    if device.type == "cuda":
        found["cuda"] = torch.cuda.get_rng_state(device)
    return found


def set_rng_state(state: dict[str, Any], device: torch.device, sampling: torch.Generator) -> None:
    """Restore a state of `get_rng_state`; on another kind of device, dropout and sampling keep their seeds."""
    torch.set_rng_state(state["host"])
    if ("cuda" in state) == (device.type == "cuda"):
        sampling.set_state(state["sampling"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)
