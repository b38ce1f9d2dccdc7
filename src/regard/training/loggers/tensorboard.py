"""TensorBoard, through torch.utils.tensorboard (``pip install 'regard[tensorboard]'``).

The event file is written anew when a run is resumed, from metrics.jsonl, which has just been cut to the checkpoint's
step; rows keep the wall-clock times of the old file.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.core.errors import BadInput, Unsupported
from regard.see.training_curve import numeric_metrics


class TensorBoardLogger:
    """Writes the numbers of each row as scalars, and the recipe as text, to FOLDER/tensorboard."""

    def __init__(self, folder: Path, recipe: Mapping[str, Any], rows: list[dict[str, Any]]) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise Unsupported(
                "train.loggers names tensorboard, which is not installed: pip install 'regard[tensorboard]', "
                "or leave it out"
            ) from None
        self.folder = folder / "tensorboard"
        old = sorted(self.folder.glob("events.out.tfevents.*"))
        times = _wall_times(old)
        try:
            self.writer: Any = SummaryWriter(str(self.folder))
        except OSError as error:
            raise _cannot_write(self.folder, error) from None
        text = "    " + json.dumps(recipe, indent=2, ensure_ascii=False).replace("\n", "\n    ")
        self.writer.add_text("recipe", text, 0, walltime=times.get(0, time.time()))
        for row in rows:
            self._write(row, times.get(int(row["step"])))
        self.writer.flush()
        for file in old:
            file.unlink()

    def add(self, row: Mapping[str, Any]) -> None:
        try:
            self._write(row, None)
            self.writer.flush()
        except OSError as error:
            raise _cannot_write(self.folder, error) from None

    def close(self) -> None:
        self.writer.close()

    def _write(self, row: Mapping[str, Any], wall_time: float | None) -> None:
        null = {key: math.nan for key, value in row.items() if value is None}  # metrics.jsonl writes NaN as null
        for tag, value in numeric_metrics({**row, **null}).items():
            self.writer.add_scalar(tag, value, int(row["step"]), walltime=wall_time)


def _wall_times(files: list[Path]) -> dict[int, float]:
    """Return step -> wall-clock time of the events in files; damaged records are skipped."""
    if not files:
        return {}
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    return {event.step: event.wall_time for file in files for event in EventFileLoader(str(file)).Load()}


def _cannot_write(folder: Path, error: OSError) -> BadInput:
    return BadInput(f"cannot write to {folder}: {(error.strerror or str(error)).lower()}")
