"""Run under torchrun by tests of checkpoints: every process writes down what it saw."""

import json
import resource
import signal
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from regard.core.errors import BadInput
from regard.data.text.parallel_corpus import ParallelCorpus
from regard.models.transformer import Config
from regard.tasks.text import translation
from regard.training import loop, train
from regard.training.checkpoint.checkpoints import Checkpoints, read_weights, restore_checkpoint, save_weights
from regard.training.parallel.distributed import distributed_context
from regard.training.parallel.sharded_tensor import copy_values, local_region, to_full, to_local
from regard.training.recipe import Recipe, Train
from regard.training.weight_averaging import ExponentialMovingAverage, copy_weights, named_tensors


class Model(nn.Module):
    """Odd sizes, tensors of one element, a buffer."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(7, 5), nn.Linear(5, 7)
        self.one = nn.LayerNorm(1)
        self.register_buffer("count", torch.tensor(3))


def values(seed=0):
    """The whole tensors, reproducible on every process."""
    torch.manual_seed(seed)
    model = named_tensors(Model())
    moments = {f"moments/{name}/exp_avg": torch.randn(x.shape) for name, x in model.items() if x.is_floating_point()}
    steps = {f"moments/{name}/step": torch.tensor(4.0) for name, x in model.items() if x.is_floating_point()}
    return {"model": {n: x.detach().clone() for n, x in model.items()}, "optimizer": moments | steps}


def spread(world, fsdp=True):
    """A model sharded over all processes and its groups, everything zero."""
    model = Model()
    if world.tensor_parallel > 1:
        plan = {"a": ColwiseParallel(), "b": RowwiseParallel()}
        parallelize_module(model, world.mesh["tensor"], plan)
    if fsdp:
        fully_shard(model, mesh=world.mesh["data"])
    groups = {"model": named_tensors(model), "optimizer": {}}
    for name, p in groups["model"].items():
        if p.is_floating_point():
            groups["optimizer"][f"moments/{name}/exp_avg"] = torch.zeros_like(p.detach())
            groups["optimizer"][f"moments/{name}/step"] = torch.tensor(0.0)
    with torch.no_grad():
        for group in groups.values():
            for x in group.values():
                x.zero_()
    return model, groups


def same(groups, expected):
    """Return whether the local part equals that of the whole, to the bit."""
    return all(
        torch.equal(to_local(x), expected[group][name][local_region(x)])
        for group in groups
        for name, x in groups[group].items()
    )


def filled(groups, source):
    for group in groups:
        for name, x in groups[group].items():
            copy_values(x, source[group][name])


def two(world, folder):
    """Save sharded, restore sharded, restore sharded from plain; a full disk on one of the two; averages."""
    seen, source = {}, values()
    _, groups = spread(world)
    seen["sliced"] = sum(isinstance(x, DTensor) for x in groups["model"].values())
    seen["empty"] = any(to_local(x).numel() == 0 for x in groups["model"].values())
    filled(groups, source)
    seen["fills"] = same(groups, source)
    stored = Checkpoints(folder / "two", keep=2, average=2, world=world)
    stored.save(4, groups, {"step": 4, "x": torch.arange(3)}, {"rank": world.rank})
    _, groups = spread(world)
    state, own = restore_checkpoint(folder / "two" / "step-00000004", groups, world)
    seen |= {"back": same(groups, source), "step": state["step"], "own": own}
    _, groups = spread(world)
    _, own = restore_checkpoint(folder / "whole" / "step-00000004", groups, world)
    seen |= {"from whole": same(groups, source), "own of one": own}
    seen["another model"] = error_of(lambda: restore_checkpoint(folder / "other" / "step-00000001", groups, world))
    if world.rank == 1:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (500, limits[1]))
    seen["full"] = error_of(lambda: stored.save(6, groups, {"step": 6}, {}))
    plain = {"model": source["model"]}
    seen["full, for what is its own"] = error_of(lambda: stored.save(6, plain, {}, {"much": torch.zeros(1000)}))
    if world.rank == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    nowhere = Checkpoints(folder / "file", world=world)
    seen["nowhere"] = error_of(lambda: nowhere.save(6, groups, {"step": 6}, {}))
    stored.save(8, plain, {"step": 8}, {"rank": world.rank})  # whole on every process, as under ddp
    seen |= averages(world, folder, source)
    return seen


def resumed(world, folder, toy):
    """Train ten updates; train five, stop, and resume for five. The processes and their group stay."""

    @contextmanager
    def here(device, tensor):
        yield world

    loop.distributed_context, loop.TrainingRun._draw = here, lambda self, force=False: None
    recipe = Recipe(
        Config(vocab=300, width=16, heads=2, ffn=32, encoder_layers=1, decoder_layers=1, dropout=0.2),
        translation.Config(beam_size=1),
        ParallelCorpus(toy, vocab_size=300, batch_tokens=96, pad_to_multiple_of=1),
        Train(steps=10, gradient_accumulation_steps=2, learning_rate=3e-3, warmup_steps=5, clip_grad_norm=1.0,
              ema_decay=0.9, eval_interval=3, score_interval=0, save_interval=4, log_interval=4,
              device="cpu", data_parallel="fsdp"),
    )  # fmt: skip
    train(recipe, folder / "straight")
    train(recipe, folder / "stopped", settings=["train.steps=5"])
    train(recipe, folder / "stopped", settings=["train.steps=10"], resume=True)


def averages(world, folder, source):
    """The moving average of shards is the shard of the moving average; weights go in and come out whole."""
    model, _ = spread(world)
    copy_weights(model, source["model"])
    seen = {"put": same({"model": named_tensors(model)}, source)}
    alone = Model()
    copy_weights(alone, source["model"])
    ema, whole = ExponentialMovingAverage(model, 0.9), ExponentialMovingAverage(alone, 0.9)
    other = values(1)["model"]
    copy_weights(model, other)
    copy_weights(alone, other)
    for average in (ema, whole):
        average.update(3)
    seen["average"] = same({"ema": ema.averages}, {"ema": whole.averages})
    seen["average is sliced"] = all(isinstance(x, DTensor) for x in ema.averages.values())
    restored, _ = spread(world)
    copy_weights(restored, {name: x.detach() for name, x in named_tensors(model).items()})  # slices into slices
    seen["slices"] = same({"model": named_tensors(restored)}, {"model": other})
    copy_weights(alone, named_tensors(model))  # slices into whole
    seen["gathered"] = all(torch.equal(to_full(x), other[name]) for name, x in named_tensors(alone).items())
    save_weights(folder / "gathered.safetensors", named_tensors(model), {"step": "3"}, world)
    world.barrier()
    seen["saved whole"] = all(
        torch.equal(x, other[n]) for n, x in read_weights(folder / "gathered.safetensors").items()
    )
    return seen


def four(world, folder):
    """Four processes read what two wrote, in a row and in a grid; and the grid writes its own."""
    source = values()
    seen = {"grid": world.tensor_parallel}
    _, groups = spread(world)
    seen["placements"] = sorted({str(x.placements) for x in groups["model"].values() if isinstance(x, DTensor)})
    state, own = restore_checkpoint(folder / "two" / "step-00000004", groups, world)
    seen |= {"back": same(groups, source), "step": state["step"], "own": own}
    stored = Checkpoints(folder / f"four{world.tensor_parallel}", world=world)
    stored.save(4, groups, state, {"rank": world.rank})
    return seen


def grid(world):
    """The same processes as rows of two, which share the matrices of one copy."""
    mesh = init_device_mesh("cpu", (world.size // 2, 2), mesh_dim_names=("data", "tensor"))
    return replace(world, tensor_parallel=2, mesh=mesh)


def error_of(action):
    try:
        action()
    except BadInput as error:
        return str(error)
    return None


def main():
    job, folder = sys.argv[1], Path(sys.argv[2])
    with distributed_context(torch.device("cpu")) as world:
        seen = [two(world, folder)] if job == "two" else [four(world, folder), four(grid(world), folder)]
        (folder / f"{job}-{world.rank}.json").write_text(json.dumps(seen))
        if job == "two":
            resumed(world, folder, sys.argv[3])


if __name__ == "__main__":
    main()
