"""Checkpoints: everything a run needs to go on to the bit, written whole or not at all.

    checkpoints/step-00000540/model.safetensors   the weights after update 540
                              state.pt            optimiser, moving average, random streams, place in the data, task
    checkpoints/stop-00000543/...                 the same, where a run was stopped between two regular ones
    checkpoints/best.safetensors                  the weights that did best on validation
    checkpoints/final.safetensors                 the weights chosen at the end

Regular checkpoints are the ones that are averaged, so that an interruption changes no result. A folder is written under
another name, flushed, and renamed. Old ones lose their state first, then go.
"""

from __future__ import annotations

import os
import pickle
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save

from regard.core.errors import BadInput
from regard.core.files import write
from regard.core.shapes import Tensor


class Checkpoints:
    """The checkpoints of one run: the newest `keep` with their state, the newest `average` for averaging."""

    def __init__(self, folder: Path, keep: int = 2, average: int = 1) -> None:
        self.folder, self.keep, self.average = folder, max(1, keep), average

    def save(self, step: int, weights: Mapping[str, Tensor], state: Mapping[str, Any], regular: bool = True) -> Path:
        """Write a checkpoint, then let go of old ones."""
        final = self.folder / f"{'step' if regular else 'stop'}-{step:08d}"
        part = self.folder / f".{secrets.token_hex(8)}.part"
        try:
            part.mkdir(parents=True)
            with open(part / "state.pt", "wb") as file:
                torch.save(dict(state), file)
                file.flush()
                os.fsync(file.fileno())
            save_weights(part / "model.safetensors", weights)
            if final.exists():
                shutil.rmtree(final)
            os.replace(part, final)
            _flush(self.folder)
        except (OSError, RuntimeError, BadInput) as error:  # torch reports a full disk as a RuntimeError
            shutil.rmtree(part, ignore_errors=True)
            full = isinstance(error, RuntimeError) and "unexpected pos" in str(error)  # its way of saying so
            why = "the disk is full, or the file too large" if full else getattr(error, "strerror", None) or str(error)
            why = why.splitlines()[0]
            newest = self.latest()
            safe = f"the run is safe up to {newest}" if newest else "nothing of the run is saved yet"
            raise BadInput(f"cannot save a checkpoint in {self.folder}: {why.lower()}; {safe}") from error
        self._let_go()
        return final

    def latest(self) -> Path | None:
        """The newest checkpoint that a run can go on from."""
        whole = [path for path in self._all() if (path / "state.pt").is_file()]
        return whole[-1] if whole else None

    def last(self, n: int) -> list[Path]:
        """The weight files of the newest n regular checkpoints, oldest first."""
        regular = [path for path in self._all() if path.name.startswith("step-")]
        return [path / "model.safetensors" for path in regular[max(0, len(regular) - n) :]] if n > 0 else []

    def _all(self) -> list[Path]:
        """Oldest first."""
        found = [path for kind in ("step", "stop") for path in self.folder.glob(f"{kind}-*") if path.is_dir()]
        return sorted(found, key=lambda path: int(path.name.split("-")[1]))

    def _let_go(self) -> None:
        every = self._all()
        kept_whole = every[-self.keep :]
        kept = {*kept_whole, *(file.parent for file in self.last(self.average))}
        for path in every:
            if path not in kept:
                shutil.rmtree(path, ignore_errors=True)
            elif path not in kept_whole:
                (path / "state.pt").unlink(missing_ok=True)


def read(checkpoint: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The weights and the state of a checkpoint, on the host. Nothing in the file is run."""
    file = checkpoint / "state.pt"
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError, pickle.UnpicklingError) as error:
        why = str(error).splitlines()[0]
        raise BadInput(f"cannot read {file}: {why}; remove {checkpoint} to go on from the one before") from None
    return read_weights(checkpoint / "model.safetensors"), state


def save_weights(file: Path, weights: Mapping[str, Tensor], about: Mapping[str, str] | None = None) -> None:
    """Weights to a safetensors file, atomically, with a few words about them."""
    file.parent.mkdir(parents=True, exist_ok=True)
    host = {name: x.detach().to("cpu").contiguous() for name, x in weights.items()}
    write(save(host, metadata=dict(about or {})), file)


def read_weights(file: Path) -> dict[str, Tensor]:
    """The weights of a safetensors file."""
    try:
        found: dict[str, Tensor] = load_file(file)
    except (OSError, SafetensorError) as error:
        raise BadInput(f"cannot read {file}: {error}") from None
    return found


def _flush(folder: Path) -> None:
    """Make a rename last; not every file system lets a folder be opened for it."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)
