"""Where and how a run computes: device, precision, compiled or not; chosen once, and said in the run's first line."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec

import torch

from regard.core.errors import Unsupported
from regard.runtime.hardware import supports_dtype


def select_device(name: str) -> torch.device:
    """The device a setting means; auto is the GPU where there is one."""
    if name == "auto":
        return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
    try:
        device = torch.device(name)
        if device.type == "cuda" and device.index is None and torch.cuda.is_available():
            device = torch.device("cuda", torch.cuda.current_device())
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError):
        raise Unsupported(f"there is no device '{name}' here; give auto, cpu, cuda, cuda:1 or the like") from None
    if device.type == "meta":
        raise Unsupported("on the device 'meta' nothing is computed; choose cpu or cuda (for counting: regard cost)")
    return device


def select_precision(name: str, device: torch.device) -> str:
    """The precision of matrix products; bfloat16 is for GPUs that have it, and on a CPU only where it is asked for."""
    able = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type == "cpu" and name == "bfloat16":  # asked for: only where a trial in a child process survives it
        able = supports_dtype("bfloat16")
    if name == "auto":
        return "bfloat16" if able else "float32"
    if name == "bfloat16" and not able:
        raise Unsupported(f"train.precision=bfloat16 does not work on {device} (regard doctor says why); use float32")
    return name


def eager_reason(asked: bool | None, device: torch.device) -> str | None:
    """Why the model is not compiled, in a few words; None where it is."""
    if asked is False:
        return "train.compile=false"
    if asked is None and device.type != "cuda":
        return f"on {device.type} compiling is left to train.compile=true"
    if not any(shutil.which(name) for name in (os.environ.get("CXX", ""), "c++", "g++", "clang++") if name):
        return "no C++ compiler found"
    if device.type == "cuda" and find_spec("triton") is None:
        return "no Triton found"
    return None


def device_name(device: torch.device) -> str:
    """The device in words."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type}, {format_threads(torch.get_num_threads())}"


def format_threads(count: int) -> str:
    """So many threads, in words."""
    return f"{count} thread{'s' if count != 1 else ''}"
