"""Groups of named tensors in files, plain or sharded, read into tensors that are plain or sharded.

    written  read     plain                                sharded
    plain             model.safetensors                    each process copies its shard out of it
    sharded           model/shard-*: shards joined         each process copies what overlaps with its own

Shards are written through torch.distributed.checkpoint, each process its own, replicated ones once; their offsets are
in the header of the file. Reading needs no process group and no communication: a process opens the files it needs and
reads directly into the memory of its tensors where that is contiguous (three times as fast as through a memory map).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import torch
from torch.distributed.tensor import DTensor

from regard.core.errors import BadInput
from regard.core.shapes import Tensor
from regard.training.checkpoint.safetensors_file import DTYPE_CODES, error_message, read_header, read_into, tensor_bytes
from regard.training.parallel.sharded_tensor import local_region, to_local

DTYPES = {name: dtype for dtype, name in DTYPE_CODES.items()}


@dataclass(frozen=True)
class TensorShard:
    """A shard of a tensor: its file and offset there, its start in the whole tensor, its shape."""

    file: Path
    offset: int
    start: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: torch.dtype


def is_sharded(tensors: Mapping[str, Tensor]) -> bool:
    """Return whether any of these tensors is sharded."""
    return any(isinstance(x, DTensor) for x in tensors.values())


def write_shards(file: Path, tensors: Mapping[str, Tensor]) -> str | None:
    """Write the shards of every process, each to its own file; an error on one is raised on all.

    Returns the sha256 of the file, None if this process had nothing to write.
    """
    from torch.distributed.checkpoint import CheckpointException, save

    from regard.training.checkpoint.shard_writer import ShardWriter

    storage = ShardWriter(file)
    try:
        save({name: x.detach() for name, x in tensors.items()}, storage_writer=storage)
    except CheckpointException as error:  # not an Exception, with a very long message
        rank, (cause, _) = next(iter(error.failures.items()))
        raise BadInput(f"process {rank}: {error_message(cause)}") from error
    return storage.sum


def find_shards(files: Iterable[Path]) -> dict[str, list[TensorShard]]:
    """Return all shards of every tensor, from the headers of files; missing parts are an error."""
    found: dict[str, list[TensorShard]] = {}
    for file in files:
        header, base = read_header(file)
        try:
            begins = json.loads(header.pop("__metadata__", {}).get("DCP_SHARDING_INFO", "{}"))  # written by torch
            for name, one in header.items():
                dtype, shape, (first, last) = DTYPES[one["dtype"]], tuple(one["shape"]), one["data_offsets"]
                if last - first != dtype.itemsize * math.prod(shape):
                    raise ValueError
                begin = tuple(begins[name]["saved_offsets"]) if name in begins else (0,) * len(shape)
                found.setdefault(name, []).append(TensorShard(file, base + first, begin, shape, dtype))
        except (AttributeError, KeyError, TypeError, ValueError):
            raise BadInput(f"cannot read {file}: its header is damaged or of an unknown kind") from None
    for name, shards in found.items():
        present, needed = sum(math.prod(shard.shape) for shard in shards), math.prod(full_shape(shards))
        if present != needed:
            raise BadInput(f"{shards[0].file.parent} has {present} of the {needed} numbers of {name}")
    return found


def full_shape(shards: Iterable[TensorShard]) -> tuple[int, ...]:
    """Return the shape of the tensor that these are the shards of."""
    ends = [[b + n for b, n in zip(shard.start, shard.shape, strict=True)] for shard in shards]
    return tuple(max(axis) for axis in zip(*ends, strict=True))


def check_shapes(
    where: object, group: str, tensors: Mapping[str, Tensor], stored: Mapping[str, list[TensorShard]]
) -> None:
    """Raise if the stored names, shapes or dtypes are those of another model, before anything is read."""
    missing, unknown = sorted(tensors.keys() - stored.keys()), sorted(stored.keys() - tensors.keys())
    if missing or unknown:
        raise BadInput(
            f"{where} is of another model: its {group} lacks {_format_names(missing)}, and has unknown "
            f"{_format_names(unknown)}"
        )
    for name, x in tensors.items():
        shards = stored[name]
        there, here = full_shape(shards), tuple(x.shape)
        if there != here:
            raise BadInput(f"{where} is of another model: {name} is {there} in its {group}, and {here} here")
        if shards[0].dtype != x.dtype:
            raise BadInput(
                f"{where} is of another model: {name} is {shards[0].dtype} in its {group}, and {x.dtype} here"
            )


class ShardReader:
    """``with ShardReader() as reader: reader.read_into(x, shards)``; files are opened once."""

    def __enter__(self) -> ShardReader:
        self.files, self.opened = ExitStack(), dict[Path, BinaryIO]()
        return self

    def __exit__(self, *_: object) -> None:
        self.files.close()

    def read_full(self, shards: Mapping[str, list[TensorShard]]) -> dict[str, Tensor]:
        """Return all tensors joined, on the host."""
        found = {name: torch.empty(full_shape(some), dtype=some[0].dtype) for name, some in shards.items()}
        for name, x in found.items():
            self.read_into(x, shards[name])
        return found

    @torch.no_grad()
    def read_into(self, x: Tensor, shards: Iterable[TensorShard]) -> None:
        """Copy what the shards contain of the local part of a tensor."""
        region, to = local_region(x), to_local(x)
        for shard in shards:
            low = [max(s.start, b) for s, b in zip(region, shard.start, strict=True)]
            high = [min(s.stop, b + n) for s, b, n in zip(region, shard.start, shard.shape, strict=True)]
            if any(a >= b for a, b in zip(low, high, strict=True)):
                continue
            there = tuple(slice(a - b, e - b) for a, e, b in zip(low, high, shard.start, strict=True))
            here = tuple(slice(a - s.start, e - s.start) for a, e, s in zip(low, high, region, strict=True))
            self._copy(to[here], shard, there)

    def _copy(self, to: Tensor, shard: TensorShard, part: tuple[slice, ...]) -> None:
        """Read part of a shard: all rows it is in, since those are contiguous in the file."""
        shape, at = shard.shape, shard.offset
        if part:
            at += part[0].start * math.prod(shape[1:]) * shard.dtype.itemsize
            shape = (part[0].stop - part[0].start, *shape[1:])
        direct = to.shape == shape and to.is_contiguous() and to.device.type == "cpu"
        rows = to if direct else torch.empty(shape, dtype=shard.dtype)
        try:
            if shard.file not in self.opened:
                self.opened[shard.file] = self.files.enter_context(shard.file.open("rb", buffering=0))
            read_into(self.opened[shard.file], at, tensor_bytes(rows))
        except OSError as error:
            raise BadInput(f"cannot read {shard.file}: {error_message(error)}") from None
        if not direct:
            to.copy_(rows[(slice(None), *part[1:])] if part else rows)


def _format_names(names: list[str]) -> str:
    """Format the first few names of a list."""
    return f"{names[:4]} and {len(names) - 4} more" if len(names) > 4 else str(names or "none")
