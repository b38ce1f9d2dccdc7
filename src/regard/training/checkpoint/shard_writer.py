"""Where torch.distributed.checkpoint puts the slices of one process: a safetensors file, streamed and hashed.

Its planner says who writes what (each process its own slices, what several hold only once) and tells everybody when one
of them fails. The file is laid out as by its own HuggingFaceStorageWriter, with the table of where in the whole each
slice begins, and its readers read it. That one builds the file in memory first; this one streams, and hashes meanwhile.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult
from torch.futures import Future

from regard.training.checkpoint.safetensors_file import write_tensors


class ShardWriter(StorageWriter):
    """Writes this process's slices to `page_file`; `sum` is its sha256 then, or None where it had none to write."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.sum: str | None = None

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write what the plan gives to this process."""
        tensors = {item.index.fqn: planner.resolve_data(item) for item in plan.items}
        begins = {item.index.fqn: {"saved_offsets": list(item.tensor_data.chunk.offsets)} for item in plan.items}  # type: ignore[union-attr]
        about = {"DCP_SHARDING_INFO": json.dumps(begins), "DCP_VERSION": "1.0", "format": "pt"}
        if tensors:
            self.file.parent.mkdir(exist_ok=True)
            self.sum = write_tensors(self.file, tensors, about)  # type: ignore[arg-type]
        done: Future[list[WriteResult]] = Future()
        done.set_result([])
        return done

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Nothing to forget."""

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Nothing to set up."""

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """As planned."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """As planned."""
        return plans

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """The heads of the files say it all."""

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Any will do: it is not used."""
        return True
