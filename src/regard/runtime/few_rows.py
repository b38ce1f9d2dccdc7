"""Linear maps and Transformer blocks over few rows: kernels in C (few_rows.c), compiled once on this machine.

For a few rows, reading the weights takes all the time. oneDNN's and MKL's kernels, made for many rows, read them at a
third to two thirds of the memory's speed; these read oneDNN's packed matrices, where they are, at all of it. All blocks
of a stack are one call (runtime.direct_blocks).

They need Linux, a processor with AVX-512 and a C compiler (cc, gcc or clang, or $CC). The library is stored in the
cache folder (runtime.hardware.cache_dir), and loaded from there only if nobody else can have written it. Without any of
these, oneDNN multiplies and PyTorch does the rest.
"""

from __future__ import annotations

import ctypes
import math
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from contextlib import suppress
from ctypes import c_float, c_int, c_long, c_void_p
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.core.errors import BadInput
from regard.core.files import atomic_write
from regard.core.shapes import Float, Tensor
from regard.runtime.hardware import cache_dir

MAX_ROWS = 96  # beyond, oneDNN is as fast
MAX_KEYS = 1024  # of an attention, as in C
LANES, PANEL = 16, 64  # numbers of a vector; outputs side by side in a packed matrix
ACTIVATIONS = {("none", ""): 0, ("relu", ""): 1, ("gelu", "none"): 2}  # those that the kernel knows, as in C
FLAGS = ("-O3", "-mavx512f", "-mfma", "-shared", "-fPIC")
COMPILE_TIMEOUT = 60.0
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class CLinear(ctypes.Structure):
    """`Linear` in C."""

    _fields_ = (("weights", c_void_p), ("bias", c_void_p), ("inputs", c_long), ("outputs", c_long))


class PackedMatrix:
    """A matrix that oneDNN has packed, and its bias, as the kernels read them."""

    def __init__(self, packed: Tensor, bias: Tensor | None, inputs: int, outputs: int) -> None:
        self.tensors, self.inputs, self.outputs = (packed, bias), inputs, outputs  # referenced, so that they stay
        weights: int = torch.ops.mkldnn.data_ptr(packed)
        self.c = CLinear(weights, None if bias is None else bias.data_ptr(), inputs, outputs)
        self.address = ctypes.addressof(self.c)


def is_few(x: Float[Tensor, "*B C"], num_rows: int, inputs: int) -> bool:
    """Return whether these rows are for the kernels: few, in memory, as wide as expected, and nothing records them."""
    if torch.jit.is_tracing() or torch.compiler.is_compiling() or num_rows > MAX_ROWS or x.dtype != torch.float32:
        return False
    if type(x) is not Tensor or x.device.type != "cpu" or x.shape[-1] != inputs:
        return False
    return not (torch._C._len_torch_dispatch_stack() or torch._C._are_functorch_transforms_active())


def few_rows_linear(x: Float[Tensor, "*B C"], matrix: PackedMatrix, activation: int = 0) -> Float[Tensor, "*B E"]:
    """Return the linear map of few rows, and the activation of it."""
    library, parallel = load_library()  # type: ignore[misc]
    x = x.contiguous()
    out = x.new_empty(*x.shape[:-1], matrix.outputs)
    rows = x.numel() // matrix.inputs
    library.few_rows_linear(
        matrix.address, x.data_ptr(), out.data_ptr(), rows, activation, torch.get_num_threads(), parallel
    )
    return out


def find_matrix(packed: Tensor, linear: nn.Linear) -> PackedMatrix | None:
    """Return the packed weights of a linear map for the kernels; None without kernels, or in another layout."""
    if load_library() is None:
        return None
    panels, inputs, weight = -(-linear.out_features // PANEL), linear.in_features, linear.weight.detach()
    shape = panels, -(-inputs // LANES) * LANES, PANEL
    if torch.ops.mkldnn._nbytes(packed) != 4 * math.prod(shape):
        return None
    matrix = PackedMatrix(packed, None if linear.bias is None else linear.bias.detach(), inputs, linear.out_features)
    floats = (c_float * math.prod(shape)).from_address(matrix.c.weights)
    memory = torch.frombuffer(floats, dtype=torch.float32).view(shape)
    for panel in (0, panels - 1):  # the whole layout follows from its ends
        rows = weight[panel * PANEL : (panel + 1) * PANEL]
        if not torch.equal(memory[panel, :inputs, : len(rows)], rows.t()):
            return None
    return matrix


@lru_cache(maxsize=1)
def load_library() -> tuple[Any, c_void_p] | None:
    """Return the library, and OpenMP's function that runs it on PyTorch's threads; None where it cannot be had."""
    if not sys.platform.startswith("linux") or torch.backends.cpu.get_cpu_capability() != "AVX512":
        return None
    try:
        parallel = ctypes.cast(ctypes.CDLL(torch._C.__file__).GOMP_parallel, c_void_p)
        library = _open_library()
        end = [c_int, c_void_p]
        library.few_rows_linear.argtypes = [*[c_void_p] * 3, c_long, c_int, *end]
        library.encoder_blocks.argtypes = [c_void_p, c_long, *[c_void_p] * 3, *[c_long] * 3, c_void_p, c_void_p, *end]
        library.decoder_steps.argtypes = [c_void_p, c_long, *[c_void_p] * 3, *[c_long] * 2, c_void_p, c_void_p, *end]
    except (OSError, AttributeError, RuntimeError, subprocess.SubprocessError):  # RuntimeError: no home folder
        return None
    for function in (library.few_rows_linear, library.encoder_blocks, library.decoder_steps):
        function.restype = None
    return library, parallel


def _open_library() -> Any:
    """Return the library, from the cache or newly compiled."""
    source = Path(__file__).with_suffix(".c").read_bytes()
    key = blake2b(source + " ".join(FLAGS).encode(), digest_size=8).hexdigest()
    file = cache_dir() / f"few_rows-{key}.so"
    with suppress(OSError):  # not there, or damaged
        if _is_ours(file):
            return ctypes.CDLL(str(file))
    with tempfile.TemporaryDirectory(prefix="regard-") as folder:
        path = Path(folder) / "library.so"
        compiler = os.environ.get("CC") or next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
        if compiler is None:
            raise OSError("no C compiler")
        command = [*compiler.split(), *FLAGS, "-x", "c", "-", "-o", str(path), "-lm"]
        subprocess.run(command, input=source, capture_output=True, check=True, timeout=COMPILE_TIMEOUT)
        with suppress(OSError, BadInput):  # a cache that cannot be written: compiled again next time
            file.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(path.read_bytes(), file, mode=0o600)
        return ctypes.CDLL(str(path))


def _is_ours(file: Path) -> bool:
    """Return whether nobody else can have written a file, nor put it there: it is going to be run."""
    own, folder = file.lstat(), file.parent.stat()
    return (
        stat.S_ISREG(own.st_mode)
        and own.st_uid == os.getuid()
        and not own.st_mode & OTHERS_WRITE
        and folder.st_uid in (os.getuid(), 0)
        and (not folder.st_mode & OTHERS_WRITE or bool(folder.st_mode & stat.S_ISVTX))
    )
