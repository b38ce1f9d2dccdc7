"""The files in which MNIST and CIFAR-10 are published: idx files and pickled batches; nothing in them is executed.

    train-images-idx3-ubyte[.gz], train-labels-idx1-ubyte[.gz], t10k-...    MNIST, Fashion-MNIST: sizes, then bytes
                                                                           (also in raw/ or MNIST/raw/)
    data_batch_1 ... data_batch_5, test_batch                              CIFAR-10 for Python (cifar-10-batches-py)

A pickle is a program. `SafeUnpickler` knows the few names that a pickled array of bytes consists of, and even those it
does not call: they stand for values of its own, from which the array is made when the program has ended. It is Python's
unpickler in Python: that in C takes as much memory as a program of a few bytes asks for.

LeCun et al. 1998 (MNIST); Krizhevsky 2009 (CIFAR-10)
"""

from __future__ import annotations

import gzip
import math
import pickle
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from regard.core.errors import BadInput, shorten
from regard.core.files import read_within

IDX_FILES = {
    "train_images": ("train-images-idx3-ubyte", "train-images.idx3-ubyte"),
    "train_labels": ("train-labels-idx1-ubyte", "train-labels.idx1-ubyte"),
    "test_images": ("t10k-images-idx3-ubyte", "t10k-images.idx3-ubyte"),
    "test_labels": ("t10k-labels-idx1-ubyte", "t10k-labels.idx1-ubyte"),
}
CIFAR_BATCHES = {"train": tuple(f"data_batch_{n}" for n in range(1, 6)), "test": ("test_batch",)}
MAX_BYTES = 2**30  # of one file, unpacked


def find_arrays(folder: Path) -> Path | None:
    """Return a file by which `read_array` knows the arrays of a folder; None if it has neither kind."""
    for place in (folder, folder / "cifar-10-batches-py"):
        if (place / "data_batch_1").is_file():
            return place / "data_batch_1"
    found = (_find_idx(place, "train_images") for place in (folder, folder / "raw", folder / "MNIST" / "raw"))
    return next(filter(None, found), None)


def is_cifar(file: Path) -> bool:
    """Whether arrays found are pickled batches."""
    return file.name == "data_batch_1"


def read_array(file: Path, name: str) -> np.ndarray:
    """Return train_images, train_labels, test_images or test_labels: bytes N Y X (C), and numbers N."""
    part, _, kind = name.partition("_")
    if is_cifar(file):
        batches = [_read_cifar_batch(file.with_name(each)) for each in CIFAR_BATCHES[part]]
        if kind == "labels":
            return np.concatenate([labels for _, labels in batches])
        return np.concatenate([pixels for pixels, _ in batches]).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    found = _find_idx(file.parent, name)
    if found is None:
        raise BadInput(f"there is no {IDX_FILES[name][0]} beside {file}")
    return _read_idx(found)


# -- idx ---------------------------------------------------------------------------------------------------------------


def _find_idx(folder: Path, name: str) -> Path | None:
    files = [folder / f"{each}{end}" for each in IDX_FILES[name] for end in ("", ".gz")]
    return next((file for file in files if file.is_file()), None)


def _read_idx(file: Path) -> np.ndarray:
    """Return the array of an idx file: two zeros, 8 for bytes, the number of dimensions, their sizes, the values."""
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
            content = stream.read(MAX_BYTES)
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(f"cannot read {file}: {error}") from None
    rank = content[3] if len(content) > 3 else 0
    if content[:3] != b"\x00\x00\x08" or not 1 <= rank <= 3:
        raise BadInput(f"{file} is not an idx file of bytes in one to three dimensions")
    shape = tuple(int.from_bytes(content[4 + 4 * n : 8 + 4 * n], "big") for n in range(rank))
    values = np.frombuffer(content, np.uint8, offset=min(len(content), 4 + 4 * rank))
    if len(values) != math.prod(shape):
        size = " x ".join(map(str, shape))
        raise BadInput(f"{file} has {len(values):,} values; its header says {size}")
    return values.reshape(shape)


# -- pickled batches ---------------------------------------------------------------------------------------------------


class PickledArray:
    """The state of an array in a pickle."""

    def __init__(self, *_: object) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def bytes(self, file: Path) -> np.ndarray:
        """Return the array, which must be of bytes in C order."""
        try:
            _, shape, dtype, is_fortran, content = self.state
            if dtype.name not in ("u1", "|u1") or is_fortran or not isinstance(content, bytes):
                raise ValueError
            return np.frombuffer(content, np.uint8).reshape(tuple(map(int, shape)))
        except (TypeError, ValueError, AttributeError, OverflowError):
            raise BadInput(f"{file} holds an array that is not one of bytes") from None


class PickledType:
    """The type of an array in a pickle."""

    def __init__(self, name: object = "", *_: object) -> None:
        self.name = name.decode("latin-1") if isinstance(name, bytes) else name

    def __setstate__(self, state: Any) -> None:
        """Ignore byte order and the like: bytes have none."""


class ArrayClass:
    """Stands for numpy.ndarray, which is named as an argument and never called."""

    __slots__ = ()  # a pickle can set attributes of whatever it names


class Encode:
    """Stands for the function that makes bytes of what Python 2 pickled as a text."""

    __slots__ = ()

    def __call__(self, text: object, encoding: object = "latin1") -> bytes:
        """Return the bytes of a text."""
        if not isinstance(text, str) or encoding not in ("latin1", b"latin1"):
            raise pickle.UnpicklingError("a text that is no bytes")
        return text.encode("latin1")


KNOWN: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): PickledArray,
    ("numpy._core.multiarray", "_reconstruct"): PickledArray,
    ("numpy", "ndarray"): ArrayClass(),
    ("numpy", "dtype"): PickledType,
    ("_codecs", "encode"): Encode(),
}


class SafeUnpickler(pickle._Unpickler):
    """Unpickles dicts, lists, numbers, texts and arrays of bytes, the last as `PickledArray`; refuses all else."""

    # without bytearrays, which take the memory that the program asks for
    dispatch = {code: read for code, read in pickle._Unpickler.dispatch.items() if code != pickle.BYTEARRAY8[0]}  # noqa: RUF012

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__(stream, encoding="bytes")

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in KNOWN:
            raise pickle.UnpicklingError(f"it names {shorten(ascii(f'{module}.{name}'))}, which no array needs")
        return KNOWN[module, name]

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it refers to something outside the file")


def _read_cifar_batch(file: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the pixels N 3072 and labels N of a batch."""
    content = read_within(file, MAX_BYTES)
    try:
        found = SafeUnpickler(BytesIO(content)).load()  # which reads no more than there is
    except Exception as error:  # a damaged pickle raises all kinds of errors
        raise BadInput(f"{file} is not a batch of CIFAR-10: {error}") from None
    pixels, labels = (found.get(key) for key in (b"data", b"labels")) if isinstance(found, dict) else (None, None)
    if not isinstance(pixels, PickledArray) or not isinstance(labels, list):
        raise BadInput(f"{file} is not a batch of CIFAR-10: it has no data and labels")
    array = pixels.bytes(file)
    is_valid = all(isinstance(label, int) and 0 <= label < 10 for label in labels)
    if array.shape != (len(labels), 3072) or not is_valid:
        raise BadInput(
            f"{file}: expected {len(labels):,} rows of 3,072 bytes with labels from 0 to 9, got {array.shape}"
        )
    return array, np.array(labels, np.int64)
