"""Weights & Biases. A W&B run cannot be rewritten: rows that were logged before a resume are not logged again."""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from regard.core.errors import BadInput, Unsupported
from regard.core.files import atomic_write
from regard.see.training_curve import numeric_metrics


class WandbLogger:
    """A W&B run; FOLDER/wandb.json stores its id and the number of rows logged."""

    def __init__(self, folder: Path, recipe: Mapping[str, Any], rows: list[dict[str, Any]]) -> None:
        if find_spec("wandb") is None:
            raise Unsupported("train.loggers names wandb, which is not installed: pip install wandb, or leave it out")
        import wandb

        self.state_file, self.rows = folder / "wandb.json", len(rows)
        state: dict[str, Any] = {"id": secrets.token_hex(4), "rows": 0}
        if self.state_file.is_file():
            try:
                state = json.loads(self.state_file.read_text(encoding="utf-8"))
            except ValueError as error:
                raise BadInput(f"cannot read {self.state_file}: {error}; delete it to begin a new W&B run") from None
        self.id, self.logged = str(state["id"]), int(state["rows"])
        mode = os.environ.get("WANDB_MODE") or ("online" if _is_reachable(wandb.Settings().base_url) else "offline")
        try:
            self.run: Any = wandb.init(
                project="regard", name=folder.name, id=self.id, resume="allow", mode=mode, dir=str(folder),
                config=dict(recipe),
            )  # fmt: skip
        except Exception as error:  # raised by wandb: no API key, no write access, a server that is down
            first = (str(error).splitlines() or [type(error).__name__])[0]
            raise BadInput(f"W&B rejected the run: {first}; set WANDB_MODE=offline to log locally") from None
        for i, row in enumerate(rows[self.logged :], self.logged):
            self._log(i, row)

    def add(self, row: Mapping[str, Any]) -> None:
        self._log(self.rows, row)
        self.rows += 1

    def _log(self, i: int, row: Mapping[str, Any]) -> None:
        """Log row i unless W&B has it already."""
        if i < self.logged:
            return
        self.run.log(numeric_metrics(row), step=int(row["step"]))
        self.logged = i + 1
        atomic_write(json.dumps({"id": self.id, "rows": self.logged}).encode(), self.state_file)

    def close(self) -> None:
        self.run.finish()


def _is_reachable(address: str, seconds: float = 3.0) -> bool:
    """Return whether a server accepts connections."""
    url = urlparse(address)
    port = url.port or (80 if url.scheme == "http" else 443)
    try:
        with socket.create_connection((url.hostname or "", port), timeout=seconds):
            return True
    except OSError:
        return False
