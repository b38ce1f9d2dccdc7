"""What tests of checkpoints start under torchrun: every process notes what it saw, the test reads the notes."""

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
from regard.data.parallel import Parallel
from regard.models.transformer import Config
from regard.tasks import translation
from regard.training import loop, train
from regard.training.average import MovingAverage, put, tensors
from regard.training.checkpoint import Checkpoints, read_weights, restore, save_weights
from regard.training.recipe import Recipe, Train
from regard.training.slices import fill, local, region, whole
from regard.training.world import join


class Model(nn.Module):
    """Odd sizes, tensors of one element, a buffer."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(7, 5), nn.Linear(5, 7)
        self.one = nn.LayerNorm(1)
        self.register_buffer("count", torch.tensor(3))


def values(seed=0):
    """The whole tensors that everybody can make again."""
    torch.manual_seed(seed)
    model = tensors(Model())
    moments = {f"moments/{name}/exp_avg": torch.randn(x.shape) for name, x in model.items() if x.is_floating_point()}
    steps = {f"moments/{name}/step": torch.tensor(4.0) for name, x in model.items() if x.is_floating_point()}
    return {"model": {n: x.detach().clone() for n, x in model.items()}, "optimiser": moments | steps}


def spread(world, fsdp=True):
    """A model over all processes and its groups, everything zero."""
    model = Model()
    if world.tensor > 1:
        plan = {"a": ColwiseParallel(), "b": RowwiseParallel()}
        parallelize_module(model, world.mesh["tensor"], plan)
    if fsdp:
        fully_shard(model, mesh=world.mesh["data"])
    groups = {"model": tensors(model), "optimiser": {}}
    for name, p in groups["model"].items():
        if p.is_floating_point():
            groups["optimiser"][f"moments/{name}/exp_avg"] = torch.zeros_like(p.detach())
            groups["optimiser"][f"moments/{name}/step"] = torch.tensor(0.0)
    with torch.no_grad():
        for group in groups.values():
            for x in group.values():
                x.zero_()
    return model, groups


def same(groups, expected):
    """Whether the part that is here is to the bit that of the whole."""
    return all(
        torch.equal(local(x), expected[group][name][region(x)]) for group in groups for name, x in groups[group].items()
    )


def filled(groups, source):
    for group in groups:
        for name, x in groups[group].items():
            fill(x, source[group][name])


def two(world, folder):
    """Save sliced, restore sliced, restore sliced from whole; a disk that is full for one of the two; averages."""
    seen, source = {}, values()
    _, groups = spread(world)
    seen["sliced"] = sum(isinstance(x, DTensor) for x in groups["model"].values())
    seen["empty"] = any(local(x).numel() == 0 for x in groups["model"].values())
    filled(groups, source)
    seen["fills"] = same(groups, source)
    kept = Checkpoints(folder / "two", keep=2, average=2, world=world)
    kept.save(4, groups, {"step": 4, "x": torch.arange(3)}, {"rank": world.rank})
    _, groups = spread(world)
    state, own = restore(folder / "two" / "step-00000004", groups, world)
    seen |= {"back": same(groups, source), "step": state["step"], "own": own}
    _, groups = spread(world)
    _, own = restore(folder / "whole" / "step-00000004", groups, world)
    seen |= {"from whole": same(groups, source), "own of one": own}
    seen["another model"] = said(lambda: restore(folder / "other" / "step-00000001", groups, world))
    if world.rank == 1:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (500, limits[1]))
    seen["full"] = said(lambda: kept.save(6, groups, {"step": 6}, {}))
    plain = {"model": source["model"]}
    seen["full, for what is its own"] = said(lambda: kept.save(6, plain, {}, {"much": torch.zeros(1000)}))
    if world.rank == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    nowhere = Checkpoints(folder / "file", world=world)
    seen["nowhere"] = said(lambda: nowhere.save(6, groups, {"step": 6}, {}))
    kept.save(8, plain, {"step": 8}, {"rank": world.rank})  # whole on every process, as under ddp
    seen |= averages(world, folder, source)
    return seen


def resumed(world, folder, toy):
    """Train ten updates; train five, stop, and go on for five. The processes stay, and their world with them."""

    @contextmanager
    def here(device, tensor):
        yield world

    loop.join, loop._Run._draw = here, lambda self, force=False: None
    recipe = Recipe(
        Config(vocab=300, width=16, heads=2, ffn=32, encoder_layers=1, decoder_layers=1, dropout=0.2),
        translation.Config(beams=1),
        Parallel(toy, vocabulary=300, tokens=96, multiple=1),
        Train(steps=10, accumulate=2, rate=3e-3, warmup=5, clip=1.0, ema=0.9, evaluate=3, score=0, save=4, log=4,
              device="cpu", spread="fsdp"),
    )  # fmt: skip
    train(recipe, folder / "straight")
    train(recipe, folder / "stopped", settings=["train.steps=5"])
    train(recipe, folder / "stopped", settings=["train.steps=10"], resume=True)


def averages(world, folder, source):
    """A moving average of slices is the slice of the moving average; weights go in whole and come out whole."""
    model, _ = spread(world)
    put(model, source["model"])
    seen = {"put": same({"model": tensors(model)}, source)}
    alone = Model()
    put(alone, source["model"])
    ema, twin = MovingAverage(model, 0.9), MovingAverage(alone, 0.9)
    other = values(1)["model"]
    put(model, other)
    put(alone, other)
    for average in (ema, twin):
        average.update(3)
    seen["average"] = same({"ema": ema.kept}, {"ema": twin.kept})
    seen["average is sliced"] = all(isinstance(x, DTensor) for x in ema.kept.values())
    restored, _ = spread(world)
    put(restored, {name: x.detach() for name, x in tensors(model).items()})  # slices into slices
    seen["slices"] = same({"model": tensors(restored)}, {"model": other})
    put(alone, tensors(model))  # slices into whole
    seen["gathered"] = all(torch.equal(whole(x), other[name]) for name, x in tensors(alone).items())
    save_weights(folder / "gathered.safetensors", tensors(model), {"step": "3"}, world)
    world.wait()
    seen["saved whole"] = all(
        torch.equal(x, other[n]) for n, x in read_weights(folder / "gathered.safetensors").items()
    )
    return seen


def four(world, folder):
    """What two wrote is read by four, in a row and in a grid; and the grid writes its own."""
    source = values()
    seen = {"grid": world.tensor}
    _, groups = spread(world)
    seen["placements"] = sorted({str(x.placements) for x in groups["model"].values() if isinstance(x, DTensor)})
    state, own = restore(folder / "two" / "step-00000004", groups, world)
    seen |= {"back": same(groups, source), "step": state["step"], "own": own}
    kept = Checkpoints(folder / f"four{world.tensor}", world=world)
    kept.save(4, groups, state, {"rank": world.rank})
    return seen


def grid(world):
    """The same processes as rows of two, which share the matrices of one copy."""
    mesh = init_device_mesh("cpu", (world.size // 2, 2), mesh_dim_names=("data", "tensor"))
    return replace(world, tensor=2, mesh=mesh)


def said(action):
    try:
        action()
    except BadInput as error:
        return str(error)
    return None


def main():
    job, folder = sys.argv[1], Path(sys.argv[2])
    with join(torch.device("cpu")) as world:
        seen = [two(world, folder)] if job == "two" else [four(world, folder), four(grid(world), folder)]
        (folder / f"{job}-{world.rank}.json").write_text(json.dumps(seen))
        if job == "two":
            resumed(world, folder, sys.argv[3])


if __name__ == "__main__":
    main()
