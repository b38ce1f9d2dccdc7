"""Checkpoints: everything a run needs to resume to the bit, written atomically and verified by checksums.

    checkpoints/step-00000540/manifest.json          step, processes, recipe, size and sha256 of every file below
                              model.safetensors      the weights after update 540
                              optimizer.safetensors  its moments; likewise every other group of tensors
                              state.pt               plain values: position in the data, counts, the task's state
                              own-00000.pt           per-process state: random streams
    checkpoints/step-00000540/model/shard-*          a sharded group (shard_reader.py)
    checkpoints/stop-00000543/...                    the same, where a run was stopped between two regular ones
    checkpoints/best.safetensors                     the best weights on validation
    checkpoints/final.safetensors                    the weights chosen at the end

A folder is written under a temporary name, flushed to disk, the manifest last, and then renamed: a killed process
leaves the old checkpoints and a stray `.part`, which the next start removes. Only regular checkpoints are averaged, so
that an interruption changes no result. Old ones are reduced to their weights, then deleted.
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
    """The checkpoints of one run: the newest `keep` in full, the weights of the newest `average`."""

    def __init__(self, folder: Path, keep: int = 2, average: int = 1, world: DistributedContext | None = None) -> None:
        self.folder, self.keep, self.average = folder, max(1, keep), average
        self.world = world or DistributedContext(torch.device("cpu"))
        self.damaged: set[Path] = set()  # deleted when there is a newer checkpoint

    def save(
        self,
        step: int,
        groups: TensorGroups,
        state: Mapping[str, Any],
        own: Mapping[str, Any],
        regular: bool = True,
        recipe: Mapping[str, Any] | None = None,
    ) -> Path:
        """Write a checkpoint, then delete old ones; every process calls.

        `groups` are named tensors, plain or sharded; `state` is the same on all processes; `own` is this process's.
        `recipe` goes into the manifest, under its seal.
        """
        world = self.world
        final = self.folder / f"{'step' if regular else 'stop'}-{step:08d}"
        part = self.folder / world.broadcast(f".{secrets.token_hex(8)}.part")
        try:
            self._on_all_ranks(lambda: part.mkdir(parents=True) if world.is_main_process else None)
            slices = self._write_sharded(part, groups)
            found = self._on_all_ranks(lambda: slices | self._write(part, step, groups, state, own))
            files = {name: entry for some in found for name, entry in some.items()}
            manifest = {"format": FORMAT, "step": step, "ranks": world.size, "recipe": recipe, "files": files}
            self._on_all_ranks(lambda: self._commit(part, final, manifest, groups) if world.is_main_process else None)
        except (OSError, BadInput) as error:
            saved = next((path for path in reversed(self._all()) if (path / STATE_FILE).is_file()), None)
            safe = f"the run is saved up to {saved}" if saved else "nothing of the run is saved yet"
            raise BadInput(f"cannot save a checkpoint in {self.folder}: {error_message(error)}; {safe}") from error
        finally:
            if world.is_main_process:  # renamed by now, unless something went wrong
                shutil.rmtree(part, ignore_errors=True)
        if world.is_main_process:
            self._delete_old(step, final)
        world.barrier()  # all processes see the same folder
        return final

    def newest(self, say: Callable[[str], None] | None = None) -> Path | None:
        """Return the newest checkpoint that a run can resume from, with all checksums verified; None if there is none.

        Damaged ones are skipped and reported through `say`. If all are damaged that is an error: a new run in this
        folder would overwrite what may be repairable.
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
                say(f"{path} is skipped: {problem}")
        if wrong:
            raise BadInput(
                f"no checkpoint in {self.folder} can be resumed from ({wrong[0]}); delete the folder to start again"
            )
        return None

    def last(self, n: int) -> list[Path]:
        """Return the newest n regular checkpoints with intact weights, oldest first."""
        found: list[Path] = []
        for path in reversed(self._all()):
            if len(found) < n and _is_regular(path) and find_damage(path, ["model"]) is None:
                found.append(path)
        return found[::-1]

    def clear(self, *others: Path) -> None:
        """Remove files that a killed process left half-written here and in `others`; restore what it had moved away.

        Call only while no other process writes here: the loop holds the run's lock.
        """
        for folder in (self.folder, *self._all(), *others):
            for path in folder.glob(".*") if folder.is_dir() else ():
                moved = re.fullmatch(r"\.(.+)\.[0-9a-f]{8}\.old", path.name)
                if moved and not (folder / moved[1]).exists():
                    with suppress(OSError):
                        os.replace(path, folder / moved[1])
                elif moved or re.fullmatch(r"\.[0-9a-f]{16}\.part|\..+\.[0-9a-f]{8}\.new", path.name):
                    _remove(path)

    # -- saving --------------------------------------------------------------------------------------------------------

    def _on_all_ranks(self, action: Callable[[], T]) -> list[T]:
        """Return the results of every process's action; if one fails, all raise and none waits for it."""
        if self.world.size == 1:
            return [action()]
        done, problem = None, None
        try:
            done = action()
        except (OSError, BadInput) as error:
            problem = f"process {self.world.rank}: {error_message(error)}"
        results: list[Any] = [None] * self.world.size
        dist.all_gather_object(results, (done, problem))
        for _, failure in results:
            if failure is not None:
                raise BadInput(failure)
        return [one for one, _ in results]

    def _write(
        self, part: Path, step: int, groups: TensorGroups, state: Mapping[str, Any], own: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Write this process's files except shards."""
        name, sums = RANK_FILE.format(self.world.rank), {}
        if self.world.is_main_process:
            for group, tensors in groups.items():
                if not is_sharded(tensors):
                    sums[f"{group}.safetensors"] = write_tensors(part / f"{group}.safetensors", tensors)
            sums[STATE_FILE] = write_bytes(part / STATE_FILE, _serialize(dict(state)))
        sums[name] = write_bytes(part / name, _serialize({"step": step, "own": dict(own)}))
        return _entries(part, sums)

    def _write_sharded(self, part: Path, groups: TensorGroups) -> dict[str, Any]:
        """Write this process's shards of the sharded groups."""
        sums = {}
        for group, tensors in groups.items():
            if is_sharded(tensors):
                name = f"{group}/shard-{self.world.rank + 1:05d}-of-{self.world.size:05d}.safetensors"
                if (found := write_shards(part / name, tensors)) is not None:
                    sums[name] = found
        return _entries(part, sums)

    def _commit(self, part: Path, final: Path, manifest: dict[str, Any], groups: TensorGroups) -> None:
        """Verify that all files are there, write the manifest and rename the folder."""
        for name, entry in manifest["files"].items():
            if not (part / name).is_file() or (part / name).stat().st_size != entry["size"]:
                raise BadInput(f"{name} of another process is missing; all processes must write into one shared folder")
        for group, tensors in groups.items():  # headers only
            check_shapes(
                "what was written", group, tensors, find_shards(part / x for x in group_files(group, manifest["files"]))
            )
        write_bytes(part / MANIFEST, seal_manifest(manifest))
        for folder in (*(path for path in part.iterdir() if path.is_dir()), part):
            fsync_path(folder)
        old = final.with_name(f".{final.name}.{secrets.token_hex(4)}.old")
        if final.exists():  # a damaged one; it is deleted when the new one is in place
            os.replace(final, old)
        os.replace(part, final)
        fsync_path(self.folder)
        shutil.rmtree(old, ignore_errors=True)

    def _delete_old(self, step: int, new: Path) -> None:
        """Delete checkpoints beyond `keep` and `average`, and those after this step (of an abandoned run)."""
        self.damaged.discard(new)
        intact = [path for path in self._all() if _step(path) <= step and path not in self.damaged]
        keep, weights = intact[-self.keep :], [path for path in intact if _is_regular(path)]
        weights = weights[max(0, len(weights) - self.average) :]
        for path in self._all():
            if path not in keep and path not in weights:
                _remove(path)
            elif path not in keep:
                with suppress(OSError, BadInput):
                    _strip_to_weights(path)

    def _all(self) -> list[Path]:
        """Return all checkpoints, oldest first."""
        found = [path for path in self.folder.glob("*") if re.fullmatch(r"st[eo]p-\d+", path.name) and path.is_dir()]
        return sorted(found, key=lambda path: (_step(path), path.name))


# -- reading -----------------------------------------------------------------------------------------------------------


def restore_checkpoint(
    checkpoint: Path, groups: TensorGroups, world: DistributedContext
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Fill tensors in place from a checkpoint of any number of processes, sharded or plain on either side.

    Returns the state and this process's own state, None if the number of processes differs. Checksums are verified by
    `Checkpoints.newest`.
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
    """Return the weights of a safetensors file or a checkpoint (or another group of it) on the host, verified."""
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
        raise BadInput(f"{path} is damaged: its checksum does not match")
    return found


def save_weights(
    file: Path,
    weights: Mapping[str, Tensor],
    about: Mapping[str, str] | None = None,
    world: DistributedContext | None = None,
) -> None:
    """Write weights to a safetensors file atomically, with metadata and a checksum.

    With `world` every process calls, shards are gathered, and the main process writes.
    """
    is_main_process, host = world is None or world.is_main_process, {}
    for name, x in weights.items():
        gathered = to_full(x)
        if is_main_process:
            host[name] = gathered.to("cpu").contiguous()
    if not is_main_process:
        return
    metadata = dict(about or {})
    part = file.with_name(f".{secrets.token_hex(8)}.part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(part, host, metadata | {"sha256": content_checksum(host, metadata)})
        os.replace(part, file)
        fsync_path(file.parent)
    except OSError as error:
        raise BadInput(f"cannot write {str(file)!r}: {error_message(error)}") from error
    finally:
        with suppress(OSError):  # renamed by now, unless something went wrong
            part.unlink()


# -- helpers -----------------------------------------------------------------------------------------------------------


def _files(checkpoint: Path, manifest: Mapping[str, Any], group: str) -> list[Path]:
    found = [checkpoint / name for name in group_files(group, manifest["files"])]
    if not found:
        raise BadInput(f"{checkpoint} holds no '{group}'")
    return found


def _entries(part: Path, sums: Mapping[str, str]) -> dict[str, Any]:
    """Return the manifest entries of files."""
    return {name: {"size": (part / name).stat().st_size, "sha256": found} for name, found in sums.items()}


def _has_only_weights(checkpoint: Path) -> bool:
    """Return whether a checkpoint was reduced to its weights."""
    try:
        return STATE_FILE not in read_manifest(checkpoint)["files"]
    except BadInput:
        return False


def _strip_to_weights(checkpoint: Path) -> None:
    """Delete everything but the model: first from the manifest, so that it never lists a missing file."""
    manifest = read_manifest(checkpoint)
    names = group_files("model", manifest["files"])
    if len(names) < len(manifest["files"]):
        manifest["files"] = {name: manifest["files"][name] for name in names}
        atomic_write(seal_manifest(manifest), checkpoint / MANIFEST)
    for path in checkpoint.iterdir():
        if path.name not in (MANIFEST, *(name.split("/")[0] for name in names)):
            _remove(path)


def _remove(path: Path) -> None:
    """Remove a file or folder; a folder is renamed first, so that a half-deleted one is never read."""
    with suppress(OSError):
        if path.is_dir() and not path.name.startswith("."):
            path = path.rename(path.with_name(f".{secrets.token_hex(8)}.part"))
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _serialize(values: dict[str, Any]) -> bytes:
    """Return plain values and tensors as bytes; values that could not be read back raise now."""
    to = io.BytesIO()
    torch.save(values, to)
    try:
        torch.load(io.BytesIO(to.getbuffer()), weights_only=True)
    except pickle.UnpicklingError as error:
        raise BadInput(f"the state holds more than plain values and tensors: {error_message(error)}") from None
    return to.getvalue()


def _deserialize(file: Path) -> dict[str, Any]:
    """Load plain values and tensors on the host, without running code from the file."""
    try:
        found: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError, KeyError, pickle.UnpicklingError) as error:
        raise BadInput(f"cannot read {file}: {error_message(error)}") from None
    return found


def _step(path: Path) -> int:
    return int(path.name.split("-")[1])


def _is_regular(path: Path) -> bool:
    return path.name.startswith("step-")
