"""Storage of torch.distributed.checkpoint for the shards of one process: a safetensors file, streamed and hashed.

Torch's planner decides which process writes what (each its own shards, replicated ones once) and reports failures to
all. The file has the layout of torch's HuggingFaceStorageWriter, with the table of shard offsets, so that its readers
can read it. That writer builds the file in memory first; this one streams and hashes it.
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
    """Writes this process's shards to `file`; `sum` is then its sha256, or None if there was nothing to write."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.sum: str | None = None

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
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
        pass

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        pass

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        return plans

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Nothing to do: the headers of the files are enough."""

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return True
