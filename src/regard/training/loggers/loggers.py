"""Others who are told what metrics.jsonl is told, by name in train.loggers:

    tensorboard   FOLDER/tensorboard/events...        tensorboard --logdir FOLDER
    wandb         Weights & Biases, where that package is installed; offline where its server is not reached

Each gets every row once, also in a run that was stopped and went on. TensorBoard's file is then written anew from
metrics.jsonl, which has just been cut to what the checkpoint knows. A W&B run cannot be rewritten: rows it has been
told of before are not told again.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import socket
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlparse

from regard.core.errors import BadInput, Unsupported
from regard.core.files import atomic_write
from regard.core.spec import Registry, resolve
from regard.see.training_curve import numeric_metrics
from regard.training.loggers import tensorboard_events
from regard.training.loggers.progress import read_rows

LOGGERS: Registry = {
    "tensorboard": ("regard.training.loggers.loggers", "TensorBoardLogger"),
    "wandb": ("regard.training.loggers.loggers", "WandbLogger"),
}


class Logger(Protocol):
    """Someone who is told."""

    def add(self, row: Mapping[str, Any]) -> None:
        """One more row."""
        ...

    def close(self) -> None:
        """That was all."""
        ...


class Loggers:
    """All who are told; the folder's metrics.jsonl holds the rows so far."""

    def __init__(self, folder: Path, names: tuple[str, ...], recipe: Mapping[str, Any]) -> None:
        classes = [resolve(LOGGERS, name, "writer") for name in dict.fromkeys(names)]
        rows = [row for row in read_rows(folder / "metrics.jsonl") if "step" in row] if classes else []
        self.writers: list[Logger] = [each(folder, recipe, rows) for each in classes]

    def add(self, row: Mapping[str, Any]) -> None:
        """Tell all of one more row."""
        for writer in self.writers:
            writer.add(row)

    def close(self) -> None:
        """That was all."""
        for writer in self.writers:
            writer.close()


class TensorBoardLogger:
    """An event file that TensorBoard reads while it grows."""

    def __init__(self, folder: Path, recipe: Mapping[str, Any], rows: list[dict[str, Any]]) -> None:
        place, now = folder / "tensorboard", time.time()
        place.mkdir(exist_ok=True)
        old = sorted(place.glob("events.out.tfevents.*.regard"))
        when = {step: at for file in old for step, at in tensorboard_events.read_steps_and_times(file.read_bytes())}
        words = "    " + json.dumps(recipe, indent=2, ensure_ascii=False).replace("\n", "\n    ")
        began = when.get(0, now)
        content = tensorboard_events.file_header(began) + tensorboard_events.text_record(began, "recipe", words)
        content += b"".join(_scalars_record(row, when.get(int(row["step"]), now)) for row in rows)
        self.file = place / f"events.out.tfevents.{int(now * 1000)}.regard"
        atomic_write(content, self.file)
        for file in old:
            if file != self.file:
                file.unlink()

    def add(self, row: Mapping[str, Any]) -> None:
        """Append a record, whole."""
        try:
            with open(self.file, "ab", buffering=0) as file:
                file.write(_scalars_record(row, time.time()))
        except OSError as error:
            raise BadInput(f"cannot write {self.file}: {(error.strerror or str(error)).lower()}") from None

    def close(self) -> None:
        """Nothing is held open."""


def _scalars_record(row: Mapping[str, Any], when: float) -> bytes:
    lost = {key: math.nan for key, value in row.items() if value is None}  # as metrics.jsonl says it
    return tensorboard_events.scalars_record(when, int(row["step"]), numeric_metrics({**row, **lost}))


class WandbLogger:
    """A run of Weights & Biases; FOLDER/wandb.json remembers which, and how many rows it has."""

    def __init__(self, folder: Path, recipe: Mapping[str, Any], rows: list[dict[str, Any]]) -> None:
        if find_spec("wandb") is None:
            raise Unsupported("train.loggers names wandb, which is not installed: pip install wandb, or leave it out")
        import wandb

        self.memory, self.rows = folder / "wandb.json", len(rows)
        told: dict[str, Any] = {"id": secrets.token_hex(4), "rows": 0}
        if self.memory.is_file():
            try:
                told = json.loads(self.memory.read_text(encoding="utf-8"))
            except ValueError as error:
                raise BadInput(f"cannot read {self.memory}: {error}; delete it to begin a new W&B run") from None
        self.id, self.told = str(told["id"]), int(told["rows"])
        mode = os.environ.get("WANDB_MODE") or ("online" if _is_reachable(wandb.Settings().base_url) else "offline")
        try:
            self.run: Any = wandb.init(
                project="regard", name=folder.name, id=self.id, resume="allow", mode=mode, dir=str(folder),
                config=dict(recipe),
            )  # fmt: skip
        except Exception as error:  # theirs: no key, no right to write, a server that is down
            first = (str(error).splitlines() or [type(error).__name__])[0]
            raise BadInput(f"W&B does not take the run: {first}; set WANDB_MODE=offline to keep it here") from None
        for i, row in enumerate(rows[self.told :], self.told):
            self._tell(i, row)

    def add(self, row: Mapping[str, Any]) -> None:
        """Tell it, unless it knows."""
        self._tell(self.rows, row)
        self.rows += 1

    def _tell(self, i: int, row: Mapping[str, Any]) -> None:
        if i < self.told:
            return
        self.run.log(numeric_metrics(row), step=int(row["step"]))
        self.told = i + 1
        atomic_write(json.dumps({"id": self.id, "rows": self.told}).encode(), self.memory)

    def close(self) -> None:
        """Let it send what it has."""
        self.run.finish()


def _is_reachable(address: str, seconds: float = 3.0) -> bool:
    """Whether a server answers."""
    found = urlparse(address)
    port = found.port or (80 if found.scheme == "http" else 443)
    try:
        with socket.create_connection((found.hostname or "", port), timeout=seconds):
            return True
    except OSError:
        return False
