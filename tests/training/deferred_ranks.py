"""Run by test_deferred_init in several processes: sharded tensors are those of the ordinary initialisation."""

import os

import torch
from torch.distributed.device_mesh import init_device_mesh

from regard.models.gpt import GPT, Config
from regard.models.rnnsearch import Config as RNNSearchConfig
from regard.models.rnnsearch import RNNSearch
from regard.models.vit import Config as ViTConfig
from regard.models.vit import ViT
from regard.training.parallel import deferred_init
from regard.training.parallel.deferred_init import build_deferred
from regard.training.parallel.distributed import DistributedContext, init_process_group
from regard.training.parallel.parallelize import apply_fsdp, apply_tensor_parallel
from regard.training.parallel.sharded_tensor import to_full, to_local


def main() -> int:
    init_process_group("gloo")
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    deferred_init.MIN_DEFERRED = 20
    for build, tensor in (
        (lambda: GPT(Config(vocab=37, width=12, heads=2, layers=3, length=9)), 1),
        (lambda: GPT(Config(vocab=37, width=12, heads=2, layers=3, length=9)), size),
        (lambda: ViT(ViTConfig(num_classes=5, image_size=8, patch_size=4, width=12, heads=2, layers=1)), 1),
        (lambda: RNNSearch(RNNSearchConfig(vocab=37, width=7, hidden=9)), 1),
    ):
        mesh = init_device_mesh("cpu", (size // tensor, tensor), mesh_dim_names=("data", "tensor"))
        world = DistributedContext(torch.device("cpu"), rank, size, tensor, mesh)
        torch.manual_seed(5)
        expected = build()
        next_numbers = torch.rand(3)
        torch.manual_seed(5)
        model, deferred = build_deferred(build)
        assert torch.equal(torch.rand(3), next_numbers)
        assert sum(p.numel() for p in model.parameters() if p.is_meta) > 0.8 * sum(
            p.numel() for p in model.parameters()
        )
        if tensor > 1:
            apply_tensor_parallel(model, world)
        apply_fsdp([model], world, "float32")
        assert all(to_local(p).is_meta or p.numel() < 20 for p in model.parameters())
        deferred.materialize(model, torch.device("cpu"))
        own = dict(model.named_parameters()) | dict(model.named_buffers())
        plain = dict(expected.named_parameters()) | dict(expected.named_buffers())
        assert own.keys() == plain.keys()  # tied tensors are still tied
        for name, x in plain.items():
            assert torch.equal(to_full(own[name]), x), name
        held = sum(to_local(p).numel() for p in model.parameters())
        total = sum(p.numel() for p in expected.parameters())
        assert held < 0.75 * total
    torch.distributed.destroy_process_group()
    return 0
