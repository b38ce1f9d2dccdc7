"""Run by torchrun: compare the updates of a sharded model with those of a plain one."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from regard.attention.multihead import MultiHeadAttention
from regard.training.optimizers import OPTIMIZERS, muon
from regard.training.optimizers.optimizer import Optimizer


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = MultiHeadAttention(12, 3, bias=False)  # a key's bias has no gradient but rounding
        self.up, self.down = nn.Linear(12, 22), nn.Linear(22, 12)
        self.gain = nn.Parameter(torch.ones(1))  # fewer numbers than processes

    def forward(self, x):
        return x + self.gain * self.down(self.up(self.mix(x)).relu())


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(7, 12), nn.Linear(12, 7)
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def loss(model, step, bad):
    tokens = torch.randint(7, (4, 5), generator=torch.Generator().manual_seed(step))
    return nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flip(1).flatten()) * (bad or 1.0)


def whole(x):
    return x.full_tensor() if isinstance(x, DTensor) else x


def spread(model):
    """FSDP over all; with four processes two by two, with tensor parallelism of the feed-forward matrices as well."""
    size = dist.get_world_size()
    if size < 4:
        mesh = init_device_mesh("cpu", (size,))
    else:
        grid = init_device_mesh("cpu", (size // 2, 2), mesh_dim_names=("data", "tensor"))
        for block in model.blocks:
            parallelize_module(block, grid["tensor"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        mesh = grid["data"]
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for spec in OPTIMIZERS:
        models, optimizers = [], []
        for cut in (False, True):
            torch.manual_seed(0)
            model = Model().double()
            if cut:
                spread(model)
            rows, given = muon.fused_projections(model), dict(model.named_parameters())
            optimizers.append(Optimizer(given, spec, weight_decay=0.1, clip_grad_norm=0.5, layer_decay=0.9, rows=rows))
            models.append(model)
        for step in range(4):
            reported = []
            for model, optimizer in zip(models, optimizers, strict=True):
                loss(model, step, bad=float("inf") if step == 2 else None).backward()
                reported.append(optimizer.step(0.02))
            (norm, lost), (norm_cut, lost_cut) = reported
            assert not isinstance(norm_cut, DTensor)
            torch.testing.assert_close(norm_cut, norm, rtol=1e-5, atol=1e-6, equal_nan=True)
            assert float(lost) == float(lost_cut) == float(step == 2)
        assert any(isinstance(x, DTensor) for x in optimizers[1].tensors().values())
        pairs = [[dict(m.named_parameters()) for m in models], [o.tensors() for o in optimizers]]
        for once, pieces in pairs:
            assert once.keys() == pieces.keys()
            for name, x in once.items():
                gone = (whole(pieces[name]) - x).abs().max().item()
                assert gone <= 1e-6, (spec, name, gone)
        if dist.get_rank() == 0:
            print(spec, "equal", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
