"""Loggers besides metrics.jsonl, by name in train.loggers.

    tensorboard   FOLDER/tensorboard/events...        tensorboard --logdir FOLDER
    wandb         Weights & Biases; offline where its server cannot be reached

Each logger gets every row once, also when a run is stopped and resumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from regard.core.spec import Registry, resolve
from regard.training.loggers.progress import read_rows

LOGGERS: Registry = {
    "tensorboard": ("regard.training.loggers.tensorboard", "TensorBoardLogger"),
    "wandb": ("regard.training.loggers.wandb", "WandbLogger"),
}


class Logger(Protocol):
    """Receives the rows of metrics.jsonl. Built with the run's folder, its recipe and the rows written so far."""

    def add(self, row: Mapping[str, Any]) -> None: ...

    def close(self) -> None: ...


class Loggers:
    """All loggers of a run; rows written so far are read from the folder's metrics.jsonl."""

    def __init__(self, folder: Path, names: tuple[str, ...], recipe: Mapping[str, Any]) -> None:
        classes = [resolve(LOGGERS, name, "logger") for name in dict.fromkeys(names)]
        rows = [row for row in read_rows(folder / "metrics.jsonl") if "step" in row] if classes else []
        self.loggers: list[Logger] = [each(folder, recipe, rows) for each in classes]

    def add(self, row: Mapping[str, Any]) -> None:
        for logger in self.loggers:
            logger.add(row)

    def close(self) -> None:
        for logger in self.loggers:
            logger.close()
