"""Checkpoints: everything a run needs to go on to the bit, written whole or not at all, and never believed unchecked.

    checkpoints/step-00000540/manifest.json          step, number of processes, size and sha256 of every file below
                              model.safetensors      the weights after update 540
                              optimizer.safetensors  its moments; likewise every other group of tensors
                              state.pt               plain values: place in the data, counts, the task's own
                              own-00000.pt           what each process has for itself: random streams
    checkpoints/step-00000540/model/shard-*          a group of which each process holds slices (pieces.py)
    checkpoints/stop-00000543/...                    the same, where a run was stopped between two regular ones
    checkpoints/best.safetensors                     the weights that did best on validation
    checkpoints/final.safetensors                    the weights chosen at the end

A folder is written under another name, all of it is flushed to the disk, the manifest last, and then it is renamed: a
process that is killed leaves what was there and a stray `.part`, which the next start removes. Regular checkpoints are
the ones that are averaged, so that an interruption changes no result. Old ones lose all but their weights, then go.
"""

from __future__ import annotations

import io
import os
import pickle
import re
import secrets
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from regard.core.errors import BadInput
from regard.core.files import atomic_write
from regard.core.shapes import Tensor
from regard.training.checkpoint.manifest import FORMAT, MANIFEST, find_damage, group_files, read_manifest, seal_manifest
from regard.training.checkpoint.safetensors_file import (
    content_checksum,
    error_message,
    fsync_path,
    read_header,
    write_bytes,
    write_tensors,
)
from regard.training.checkpoint.shard_reader import ShardReader, check_shapes, find_shards, is_sharded, write_shards
from regard.training.parallel.distributed import DistributedContext
from regard.training.parallel.sharded_tensor import to_full

STATE_FILE, RANK_FILE = "state.pt", "own-{:05d}.pt"
T = TypeVar("T")
TensorGroups = Mapping[str, Mapping[str, Tensor]]


class Checkpoints:
    """The checkpoints of one run: the newest `keep` whole, of the newest `average` the weights."""

    def __init__(self, folder: Path, keep: int = 2, average: int = 1, world: DistributedContext | None = None) -> None:
        self.folder, self.keep, self.average = folder, max(1, keep), average
        self.world = world or DistributedContext(torch.device("cpu"))
        self.damaged: set[Path] = set()  # damaged ones, which go when there is something newer

    def save(
        self, step: int, groups: TensorGroups, state: Mapping[str, Any], own: Mapping[str, Any], regular: bool = True
    ) -> Path:
        """Write a checkpoint, then let go of old ones; every process calls.

        `groups` are named tensors, whole or sliced; `get_rng_state` is equal everywhere; `own` is this process's.
        """
        world = self.world
        final = self.folder / f"{'step' if regular else 'stop'}-{step:08d}"
        part = self.folder / world.broadcast(f".{secrets.token_hex(8)}.part")
        try:
            self._each(lambda: part.mkdir(parents=True) if world.is_main_process else None)
            slices = self._write_slices(part, groups)
            found = self._each(lambda: slices | self._write(part, step, groups, state, own))
            files = {name: entry for some in found for name, entry in some.items()}
            manifest = {"format": FORMAT, "step": step, "ranks": world.size, "files": files}
            self._each(lambda: self._put(part, final, manifest, groups) if world.is_main_process else None)
        except (OSError, BadInput) as error:
            kept = next((path for path in reversed(self._all()) if (path / STATE_FILE).is_file()), None)
            safe = f"the run is safe up to {kept}" if kept else "nothing of the run is saved yet"
            raise BadInput(f"cannot save a checkpoint in {self.folder}: {error_message(error)}; {safe}") from error
        finally:
            if world.is_main_process:  # it has its place by now, unless something went wrong
                shutil.rmtree(part, ignore_errors=True)
        if world.is_main_process:
            self._let_go(step, final)
        world.barrier()  # so that all see the same folder
        return final

    def newest(self, say: Callable[[str], None] | None = None) -> Path | None:
        """The newest checkpoint that a run can go on from, every file of it as it was written.

        Damaged ones are passed over, and `print_status` is told. Where there are only such, that is an error: a run that began
        anew there would write over what may be mended.
        """
        wrong = []
        for path in reversed(self._all()):
            if _has_only_weights(path):
                continue
            problem = find_damage(path)
            if problem is None:
                return path
            self.damaged.add(path)
            wrong.append(f"{path.name}: {problem}")
            if say is not None:
                say(f"{path} is passed over: {problem}")
        if wrong:
            raise BadInput(
                f"no checkpoint in {self.folder} can be gone on from ({wrong[0]}); remove the folder to begin anew"
            )
        return None

    def last(self, n: int) -> list[Path]:
        """The newest n regular checkpoints whose weights are as they were written, oldest first."""
        found: list[Path] = []
        for path in reversed(self._all()):
            if len(found) < n and _is_regular(path) and find_damage(path, ["model"]) is None:
                found.append(path)
        return found[::-1]

    def clear(self, *beside: Path) -> None:
        """Remove what a killed process left half-written here (and in folders `compare_outputs`), and put back what it had moved
        away. Only for one who knows that nobody writes here now: the loop holds the run's lock."""
        for folder in (self.folder, *self._all(), *beside):
            for path in folder.glob(".*") if folder.is_dir() else ():
                moved = re.fullmatch(r"\.(.+)\.[0-9a-f]{8}\.old", path.name)
                if moved and not (folder / moved[1]).exists():
                    with suppress(OSError):
                        os.replace(path, folder / moved[1])
                elif moved or re.fullmatch(r"\.[0-9a-f]{16}\.part|\..+\.[0-9a-f]{8}\.new", path.name):
                    _remove(path)

    # -- saving --------------------------------------------------------------------------------------------------------

    def _each(self, action: Callable[[], T]) -> list[T]:
        """What every process's action gave; where one fails, all do, and nobody waits for it."""
        if self.world.size == 1:
            return [action()]
        done, problem = None, None
        try:
            done = action()
        except (OSError, BadInput) as error:
            problem = f"process {self.world.rank}: {error_message(error)}"
        said: list[Any] = [None] * self.world.size
        dist.all_gather_object(said, (done, problem))
        for _, heard in said:
            if heard is not None:
                raise BadInput(heard)
        return [one for one, _ in said]

    def _write(
        self, part: Path, step: int, groups: TensorGroups, state: Mapping[str, Any], own: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Write what falls to this process beside its slices."""
        name, sums = RANK_FILE.format(self.world.rank), {}
        if self.world.is_main_process:
            for group, tensors in groups.items():
                if not is_sharded(tensors):
                    sums[f"{group}.safetensors"] = write_tensors(part / f"{group}.safetensors", tensors)
            sums[STATE_FILE] = write_bytes(part / STATE_FILE, _serialize(dict(state)))
        sums[name] = write_bytes(part / name, _serialize({"step": step, "own": dict(own)}))
        return _entries(part, sums)

    def _write_slices(self, part: Path, groups: TensorGroups) -> dict[str, Any]:
        """Write what this process holds of the groups that are sliced."""
        sums = {}
        for group, tensors in groups.items():
            if is_sharded(tensors):
                name = f"{group}/shard-{self.world.rank + 1:05d}-of-{self.world.size:05d}.safetensors"
                if (found := write_shards(part / name, tensors)) is not None:
                    sums[name] = found
        return _entries(part, sums)

    def _put(self, part: Path, final: Path, manifest: dict[str, Any], groups: TensorGroups) -> None:
        """Make sure that all is there, seal it and give it its name."""
        for name, entry in manifest["files"].items():
            if not (part / name).is_file() or (part / name).stat().st_size != entry["size"]:
                raise BadInput(f"{name} of another process is not here; all must write into one shared folder")
        for group, tensors in groups.items():  # heads only: what was written is what can be read
            check_shapes(
                "what was written", group, tensors, find_shards(part / x for x in group_files(group, manifest["files"]))
            )
        write_bytes(part / MANIFEST, seal_manifest(manifest))
        for folder in (*(path for path in part.iterdir() if path.is_dir()), part):
            fsync_path(folder)
        old = final.with_name(f".{final.name}.{secrets.token_hex(4)}.old")
        if final.exists():  # a damaged one that was passed over; it goes when its successor is there
            os.replace(final, old)
        os.replace(part, final)
        fsync_path(self.folder)
        shutil.rmtree(old, ignore_errors=True)

    def _let_go(self, step: int, new: Path) -> None:
        """Of what was saved up to this step keep what is to be kept; what is beyond is of a past that is not ours."""
        self.damaged.discard(new)
        sound = [path for path in self._all() if _step(path) <= step and path not in self.damaged]
        kept, weights = sound[-self.keep :], [path for path in sound if _is_regular(path)]
        weights = weights[max(0, len(weights) - self.average) :]
        for path in self._all():
            if path not in kept and path not in weights:
                _remove(path)
            elif path not in kept:
                with suppress(OSError, BadInput):
                    _strip_to_weights(path)

    def _all(self) -> list[Path]:
        """Oldest first."""
        found = [path for path in self.folder.glob("*") if re.fullmatch(r"st[eo]p-\d+", path.name) and path.is_dir()]
        return sorted(found, key=lambda path: (_step(path), path.name))


# -- reading -----------------------------------------------------------------------------------------------------------


def restore_checkpoint(
    checkpoint: Path, groups: TensorGroups, world: DistributedContext
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Fill tensors in place from a checkpoint of any number of processes, sliced or whole as they are on either side.

    Gives the state and what this process had for itself, None where there were more or fewer of them. The checksums are
    those that `newest` looks at.
    """
    manifest = read_manifest(checkpoint)
    stored = {group: find_shards(_files(checkpoint, manifest, group)) for group in groups}
    for group, tensors in groups.items():  # before anything is changed
        check_shapes(checkpoint, group, tensors, stored[group])
    with ShardReader() as read:
        for group, tensors in groups.items():
            for name, x in tensors.items():
                read.read_into(x, stored[group][name])
    state = _deserialize(checkpoint / STATE_FILE)
    if manifest["ranks"] != world.size:
        return state, None
    own: dict[str, Any] = _deserialize(checkpoint / RANK_FILE.format(world.rank))["own"]
    return state, own


def read_weights(path: Path, group: str = "model") -> dict[str, Tensor]:
    """The weights of a safetensors file, or of a checkpoint (or another group of it), whole and on the host.

    What is not as it was written is an error.
    """
    if path.is_dir():
        problem = find_damage(path, [group])
        if problem is not None:
            raise BadInput(f"cannot read {path}: {problem}")
        with ShardReader() as read:
            return read.read_full(find_shards(_files(path, read_manifest(path), group)))
    if not path.is_file():
        raise BadInput(f"cannot read {path}: there is no such file or checkpoint")
    about = dict(read_header(path)[0].get("__metadata__", {}))
    with ShardReader() as read:
        found = read.read_full(find_shards([path]))
    expected = about.pop("sha256", None)
    if expected is not None and content_checksum(found, about) != expected:
        raise BadInput(f"{path} is damaged: its weights are not those that were written")
    return found


def save_weights(
    file: Path,
    weights: Mapping[str, Tensor],
    about: Mapping[str, str] | None = None,
    world: DistributedContext | None = None,
) -> None:
    """Weights to a safetensors file, atomically, with a few words about them and a checksum.

    Where a world is given every process calls, slices are gathered, and the leader writes.
    """
    is_main_process, host = world is None or world.is_main_process, {}
    for name, x in weights.items():
        gathered = to_full(x)
        if is_main_process:
            host[name] = gathered.to("cpu").contiguous()
    if not is_main_process:
        return
    words = dict(about or {})
    part = file.with_name(f".{secrets.token_hex(8)}.part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(part, host, words | {"sha256": content_checksum(host, words)})
        os.replace(part, file)
        fsync_path(file.parent)
    except OSError as error:
        raise BadInput(f"cannot write {str(file)!r}: {error_message(error)}") from error
    finally:
        with suppress(OSError):  # in place by now, unless something went wrong
            part.unlink()


# -- small parts -------------------------------------------------------------------------------------------------------


def _files(checkpoint: Path, manifest: Mapping[str, Any], group: str) -> list[Path]:
    found = [checkpoint / name for name in group_files(group, manifest["files"])]
    if not found:
        raise BadInput(f"{checkpoint} holds no '{group}'")
    return found


def _entries(part: Path, sums: Mapping[str, str]) -> dict[str, Any]:
    """What the manifest says of files."""
    return {name: {"size": (part / name).stat().st_size, "sha256": found} for name, found in sums.items()}


def _has_only_weights(checkpoint: Path) -> bool:
    """Whether it was kept for its weights alone."""
    try:
        return STATE_FILE not in read_manifest(checkpoint)["files"]
    except BadInput:
        return False


def _strip_to_weights(checkpoint: Path) -> None:
    """Let go of everything but the model: first in the manifest, so that at no moment a file is missed."""
    manifest = read_manifest(checkpoint)
    names = group_files("model", manifest["files"])
    if len(names) < len(manifest["files"]):
        manifest["files"] = {name: manifest["files"][name] for name in names}
        atomic_write(seal_manifest(manifest), checkpoint / MANIFEST)
    for path in checkpoint.iterdir():
        if path.name not in (MANIFEST, *(name.split("/")[0] for name in names)):
            _remove(path)


def _remove(path: Path) -> None:
    """Remove a file or folder; a folder vanishes as one, so that a half of it is never taken for the whole."""
    with suppress(OSError):
        if path.is_dir() and not path.name.startswith("."):
            path = path.rename(path.with_name(f".{secrets.token_hex(8)}.part"))
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _serialize(values: dict[str, Any]) -> bytes:
    """Plain values and tensors as bytes; what could not be read back is refused now."""
    to = io.BytesIO()
    torch.save(values, to)
    try:
        torch.load(io.BytesIO(to.getbuffer()), weights_only=True)
    except pickle.UnpicklingError as error:
        raise BadInput(f"the state holds more than plain values and tensors: {error_message(error)}") from None
    return to.getvalue()


def _deserialize(file: Path) -> dict[str, Any]:
    """Plain values and tensors, on the host. Nothing in the file is run."""
    try:
        found: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError, KeyError, pickle.UnpicklingError) as error:
        raise BadInput(f"cannot read {file}: {error_message(error)}") from None
    return found


def _step(path: Path) -> int:
    return int(path.name.split("-")[1])


def _is_regular(path: Path) -> bool:
    return path.name.startswith("step-")
