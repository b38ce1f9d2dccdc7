"""What an update costs the host, counted on a CPU: graphs that the compiler makes, and operations that are launched.

    python benchmarks/update_counts.py RECIPE [key=value ...]       a recipe in small, 30 updates, one evaluation
    python benchmarks/update_counts.py RECIPE --operations          the operations of an update by name, eager

Graphs are those of torch.compile with a backend that traces forward and backward and generates no code ("aot_eager"):
how many there are, how often a graph did not fit and was made again, how often one broke, how many calls were traced
for them, and the seconds of that. `whole` compiles the model as one graph, `blocks` every kind of block once
(train.compile_blocks).

Operations are counted below autograd in an update after the first: forward, backward, clipping, optimizer, moving
average, sums for the log. On a GPU each one but a view is a kernel or more; small models wait for their launches.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import harness
import torch
from torch.utils._python_dispatch import TorchDispatchMode

SMALL = (
    "train.device=cpu",
    "train.precision=float32",
    "train.score_interval=0",
    "train.eval_interval=1000000",
    "train.save_interval=1000000",
)


class Operations(TorchDispatchMode):
    """Count operations by name, views apart."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()
        self.views = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.is_view or func is torch.ops.aten._unsafe_view.default:
            self.views += 1
        else:
            self.found[func._schema.name.removeprefix("aten::")] += 1
        return func(*args, **(kwargs or {}))


@contextmanager
def training(name: str, settings: list[str]) -> Any:
    """Give a run of a recipe that is shrunk to seconds, and its batches."""
    from regard.data.batching import prefetch
    from regard.training.checkpoint.checkpoints import Checkpoints
    from regard.training.loop import TrainingRun
    from regard.training.parallel.distributed import distributed_context
    from regard.training.recipe import load_recipe, override_recipe, quick_recipe

    recipe = override_recipe(quick_recipe(load_recipe(name)), [*SMALL, *settings])
    with tempfile.TemporaryDirectory() as folder, distributed_context(torch.device("cpu"), 1) as world:
        run = TrainingRun(recipe, Path(folder), world, Checkpoints(Path(folder) / "checkpoints", 1, 1, world), None)
        run.model.train()
        stream = run.task.batches().start(run.position, world.replica, world.num_replicas)
        with prefetch(stream, workers=1) as batches:
            yield run, batches
        run.loggers.close()


def count_graphs(name: str, settings: list[str], updates: int, blocks: bool) -> dict[str, Any]:
    """Return how many graphs the first updates make, and one evaluation after them."""
    import torch._dynamo
    from torch._dynamo.utils import compilation_time_metrics, counters

    torch._dynamo.reset()
    counters.clear()
    compilation_time_metrics.clear()
    again: list[str] = []
    logger = logging.getLogger("torch._dynamo.guards.__recompiles")
    torch._logging.set_logs(recompiles=True)
    for handler in [*logger.handlers]:
        logger.removeHandler(handler)
    logger.propagate = False
    logger.addHandler(handler := logging.Handler())
    handler.emit = lambda record: again.append(record.getMessage())  # type: ignore[method-assign]
    real, found = torch.compile, {"compile": "blocks" if blocks else "whole"}
    torch.compile = lambda call, **options: real(call, backend="aot_eager", **options)  # type: ignore[assignment]

    def read(when: str) -> dict[str, Any]:
        stats = counters["stats"]
        values = {"graphs": stats["unique_graphs"], "calls": stats["calls_captured"], "made again": len(again)}
        values["breaks"] = sum(counters["graph_break"].values())
        values["seconds"] = round(sum(compilation_time_metrics["_compile.compile_inner"]), 1)
        return {f"{what}, {when}": value for what, value in values.items()}

    try:
        compiled = ["train.compile=true", f"train.compile_blocks={str(blocks).lower()}"]
        with training(name, [*settings, *compiled]) as (run, batches):
            for _ in range(updates):
                run._update(batches)
            found |= read("updates")
            run.measure(0)
            found |= read("then evaluated")
    finally:
        torch.compile = real
        logger.removeHandler(handler)
    return found | {"reasons": again}


def count_operations(name: str, settings: list[str]) -> Operations:
    """Return the operations of the third update."""
    with training(name, [*settings, "train.compile=false"]) as (run, batches):
        for _ in range(2):
            run._update(batches)
        with Operations() as operations:
            run._update(batches)
    return operations


def main() -> None:
    """Read the arguments, count, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("settings", nargs="*", help="group.key=value")
    parser.add_argument("--updates", type=int, default=30)
    parser.add_argument("--operations", action="store_true", help="count operations instead of graphs")
    parser.add_argument("--reasons", action="store_true", help="print why graphs were made again")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.operations:
        found = count_operations(args.recipe, args.settings)
        rows = [["operation", "number"], *found.found.most_common()]
        print(harness.table([*rows, ["all", found.found.total()], ["views, not counted", found.views]]))
        return
    both = [count_graphs(args.recipe, args.settings, args.updates, blocks) for blocks in (False, True)]
    reasons = [found.pop("reasons") for found in both]
    print(harness.table([[*both[0]], *([*found.values()] for found in both)]))
    if args.reasons:
        print(*(reason for some in reasons for reason in some), sep="\n")


if __name__ == "__main__":
    main()
