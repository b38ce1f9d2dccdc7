"""Linear maps of few rows: a kernel in C (few_rows_linear.c), compiled once on this machine.

For a few rows, reading the weights takes all the time. oneDNN's and MKL's kernels, made for many rows, read them at a
third to two thirds of the memory's speed; this one reads oneDNN's packed matrices where they are.

It needs Linux, a processor with AVX-512 and a C compiler (cc, gcc or clang, or $CC). The library is stored in the cache
folder (runtime.hardware.cache_dir) and used only if its results are right. Without any of these, oneDNN multiplies.
"""

from __future__ import annotations

import ctypes
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

import torch
from torch import nn

from regard.core.errors import BadInput
from regard.core.files import atomic_write
from regard.core.shapes import Float, Tensor
from regard.runtime.hardware import cache_dir

MAX_ROWS = 96  # beyond, oneDNN is as fast
PANEL = 64  # outputs side by side in the packed matrix
FLAGS = ("-O3", "-mavx512f", "-mfma", "-shared", "-fPIC")
COMPILE_TIMEOUT = 60.0

Kernel = Callable[..., None]


class PackedMatrix:
    """A matrix that oneDNN has packed, as the kernel reads it."""

    def __init__(self, packed: Tensor, inputs: int, outputs: int) -> None:
        self.packed, self.inputs, self.outputs = packed, inputs, outputs
        self.address: int = torch.ops.mkldnn.data_ptr(packed)


def can_multiply(x: Float[Tensor, "*B C"], num_rows: int) -> bool:
    """Return whether these rows are for the kernel: few, and no compiler is looking."""
    return num_rows <= MAX_ROWS and x.dtype == torch.float32 and not torch.compiler.is_compiling()


def few_rows_linear(x: Float[Tensor, "*B C"], matrix: PackedMatrix, bias: Tensor | None) -> Float[Tensor, "*B E"]:
    """Return the linear map of few rows, in float32."""
    kernel, parallel = load_kernel()  # type: ignore[misc]
    x = x.contiguous()
    out = x.new_empty(*x.shape[:-1], matrix.outputs)
    kernel(
        x.data_ptr(),
        matrix.address,
        None if bias is None else bias.data_ptr(),
        out.data_ptr(),
        x.numel() // matrix.inputs,
        matrix.inputs,
        _padded(matrix.inputs),
        matrix.outputs,
        torch.get_num_threads(),
        parallel,
    )
    return out


def find_matrix(packed: Tensor, linear: nn.Linear) -> PackedMatrix | None:
    """Return the packed weights of a linear map for the kernel; None without a kernel, or in another layout."""
    if load_kernel() is None:
        return None
    panels, inputs, weight = -(-linear.out_features // PANEL), linear.in_features, linear.weight.detach()
    shape = panels, _padded(inputs), PANEL
    if torch.ops.mkldnn._nbytes(packed) != 4 * math.prod(shape):
        return None
    matrix = PackedMatrix(packed, inputs, linear.out_features)
    floats = (ctypes.c_float * math.prod(shape)).from_address(matrix.address)
    memory = torch.frombuffer(floats, dtype=torch.float32).view(shape)
    for panel in (0, panels - 1):  # the whole layout follows from its ends
        rows = weight[panel * PANEL : (panel + 1) * PANEL]
        if not torch.equal(memory[panel, :inputs, : len(rows)], rows.t()):
            return None
    return matrix


@lru_cache(maxsize=1)
def load_kernel() -> tuple[Kernel, ctypes.c_void_p] | None:
    """Return the kernel, and OpenMP's function that runs it on PyTorch's threads; None where there is none."""
    if not sys.platform.startswith("linux") or torch.backends.cpu.get_cpu_capability() != "AVX512":
        return None
    try:
        parallel = ctypes.cast(ctypes.CDLL(torch._C.__file__).GOMP_parallel, ctypes.c_void_p)
        kernel = _open_library().few_rows_linear
    except (OSError, AttributeError, subprocess.SubprocessError):
        return None
    pointer, number = ctypes.c_void_p, ctypes.c_long
    kernel.argtypes = [*[pointer] * 4, *[number] * 4, ctypes.c_int, pointer]
    kernel.restype = None
    return kernel, parallel


def _open_library() -> ctypes.CDLL:
    """Return the library, from the cache or newly compiled."""
    source = Path(__file__).with_suffix(".c").read_bytes()
    key = blake2b(source + " ".join(FLAGS).encode(), digest_size=8).hexdigest()
    file = cache_dir() / f"few_rows_linear-{key}.so"
    with suppress(OSError):  # not there, or damaged
        if file.stat().st_uid == os.getuid():  # nobody else's code
            return ctypes.CDLL(str(file))
    with tempfile.TemporaryDirectory(prefix="regard-") as folder:
        library = Path(folder) / "library.so"
        compiler = os.environ.get("CC") or next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
        if compiler is None:
            raise OSError("no C compiler")
        command = [*compiler.split(), *FLAGS, "-x", "c", "-", "-o", str(library)]
        subprocess.run(command, input=source, capture_output=True, check=True, timeout=COMPILE_TIMEOUT)
        with suppress(OSError, BadInput):  # a cache that cannot be written: compiled again next time
            file.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(library.read_bytes(), file)
        return ctypes.CDLL(str(library))


def _padded(inputs: int) -> int:
    """Return the number of inputs as oneDNN stores it."""
    return -(-inputs // 16) * 16
