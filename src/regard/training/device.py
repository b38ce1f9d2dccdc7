"""Choose device, precision and compilation of a run."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec

import torch

from regard.core.errors import Unsupported
from regard.runtime.hardware import supports_dtype


def select_device(name: str) -> torch.device:
    """Return the device of a setting; auto is the GPU if there is one."""
    if name == "auto":
        return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
    try:
        device = torch.device(name)
        if device.type == "cuda" and device.index is None and torch.cuda.is_available():
            device = torch.device("cuda", torch.cuda.current_device())
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError):
        raise Unsupported(f"there is no device '{name}' on this machine; use auto, cpu, cuda or cuda:1") from None
    if device.type == "meta":
        raise Unsupported("the device 'meta' computes nothing; use cpu or cuda (to count operations: regard cost)")
    return device


def select_precision(name: str, device: torch.device) -> str:
    """Return the precision of matrix products; auto is bfloat16 on GPUs that support it, else float32."""
    able = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type == "cpu" and name == "bfloat16":  # probed in a child process, since it may crash
        able = supports_dtype("bfloat16")
    if name == "auto":
        return "bfloat16" if able else "float32"
    if name == "bfloat16" and not able:
        raise Unsupported(f"train.precision=bfloat16 does not work on {device} (see regard doctor); use float32")
    return name


def eager_reason(compile: bool | None, device: torch.device) -> str | None:
    """Return why the model is not compiled, in a few words; None if it is."""
    if compile is False:
        return "train.compile=false"
    if compile is None and device.type != "cuda":
        return f"compiling on {device.type} needs train.compile=true"
    if not any(shutil.which(name) for name in (os.environ.get("CXX", ""), "c++", "g++", "clang++") if name):
        return "no C++ compiler found"
    if device.type == "cuda" and find_spec("triton") is None:
        return "no Triton found"
    return None


def device_name(device: torch.device) -> str:
    """Return a description of the device."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type}, {format_threads(torch.get_num_threads())}"


def format_threads(count: int) -> str:
    """Return "1 thread" or "n threads"."""
    return f"{count} thread{'s' if count != 1 else ''}"
