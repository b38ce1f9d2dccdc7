"""A network alone, tensors in and tensors out: of a model without a task, and of predictors that are not exported."""

from __future__ import annotations

from inspect import signature
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from regard.core.shapes import Tensor
from regard.cost.meta_model import InputShape, make_batch
from regard.export.plan import TRACED, Graph, Plan

# one zero of every input, with the free axes at a size of two
SCRIPT = """\
model = load("model")
inputs = config["graphs"]["model"]["inputs"]
arrays = np.load(sys.argv[1])  # by name, as np.savez writes them
for name, found in zip(config["graphs"]["model"]["outputs"], model(*(arrays[each["name"]] for each in inputs))):
    print(name, *found.shape, f"{found.astype(float).mean():.6f}", sep="\\t")
"""
EXAMPLE = "example.npz"


def plan_network(model: nn.Module, has_free_length: bool) -> Plan:
    """Return the plan of a model's `forward`; without `has_free_length` the batch alone is free."""
    config: Any = getattr(model, "config", None)
    longest = int(getattr(config, "length", 0) or getattr(config, "max_sentences", 0) or 10**6)

    def batch(rows: int, length: int) -> dict[str, Tensor]:
        length = min(length if has_free_length else TRACED[1], longest)
        made = make_batch(model, InputShape(rows, length, source=length, target=length))
        found = {}
        for name, x in made.items():
            if x.is_floating_point():
                found[name] = torch.randn(x.shape)
            elif name.endswith("lengths"):
                found[name] = torch.cat([x[:1], torch.randint(1, int(x[0]) + 1, (rows - 1,))])
            elif x.dtype == torch.uint8:
                found[name] = torch.randint(0, int(getattr(config, "levels", 2)), x.shape, dtype=torch.uint8)
            else:
                found[name] = torch.randint(2, 1 + max(3, int(x.max())), x.shape)
        if "lengths" in signature(model.forward).parameters and "lengths" not in found and "tokens" in found:
            found["lengths"] = torch.tensor([length, *torch.randint(1, length + 1, (rows - 1,)).tolist()])
        return found

    names = tuple(batch(2, 3))

    def run(*inputs: Tensor) -> tuple[Tensor, ...]:
        return tuple(x for x in tree_leaves(model(**dict(zip(names, inputs, strict=True)))) if isinstance(x, Tensor))

    with torch.no_grad():
        count = len(run(*batch(*TRACED).values()))
    outputs = ("output",) if count == 1 else tuple(f"output_{n}" for n in range(count))
    graph = Graph(
        "model", model, run, names, outputs, lambda rows, length: tuple(batch(rows, length).values()), longest
    )

    def answer(file: str) -> str:
        import numpy as np

        arrays = np.load(file)
        with torch.no_grad():
            found = run(*(torch.from_numpy(arrays[name]) for name in names))
        rows = zip(outputs, found, strict=True)
        return "\n".join("\t".join([name, *map(str, x.shape), f"{float(x.double().mean()):.6f}"]) for name, x in rows)

    return Plan((graph,), SCRIPT, "ARRAYS.npz", examples=[(EXAMPLE,)], answer=answer)
