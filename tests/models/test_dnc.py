"""The differentiable neural computer against a loop over cells written from the paper's equations."""

import pytest
import torch

import regard
from regard.core.errors import BadInput
from regard.models.dnc import DNC, Config

SETTINGS = {"input_dim": 3, "output_dim": 2, "cells": 5, "word": 4, "hidden": 6, "read_heads": 2}
IMPROVED = {"masking": True, "deallocation": True, "sharpening": True}


def build(seed=0, **settings):
    torch.manual_seed(seed)
    model = DNC(Config(**SETTINGS | settings)).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    return model


def one_plus(x):
    return 1 + (1 + x.exp()).log()


def content(c, raw, memory):
    key, mask, strength = raw.split([c.word, c.word if c.masking else 0, 1])
    mask = mask.sigmoid() if c.masking else torch.ones_like(key)
    length = ((key * mask) @ (key * mask) + 1e-6).sqrt()
    similar = [(key * mask) @ (m * mask) / (length * ((m * mask) @ (m * mask) + 1e-6).sqrt()) for m in memory]
    scores = [(one_plus(strength) * s).exp() for s in similar]
    return [s / sum(scores) for s in scores]


def paper(model, inputs):
    """Return the logits of one tape T C, cell by cell."""
    c, cells = model.config, range(model.config.cells)
    zero = torch.zeros(()).double()
    memory = [torch.zeros(c.word).double() for _ in cells]
    usage, last, write = [zero] * c.cells, [zero] * c.cells, [zero] * c.cells
    links = [[zero] * c.cells for _ in cells]
    read = [[zero] * c.cells for _ in range(c.read_heads)]
    reads = [torch.zeros(c.word).double() for _ in range(c.read_heads)]
    state, outputs = model.controller.start(1), []
    key = (2 * c.word if c.masking else c.word) + 1
    modes = 0 if not c.temporal_links else 5 if c.sharpening else 3
    for x in inputs:
        h, state = model.controller(model.controller.inputs(x[None, None])[0], torch.cat(reads)[None], state)
        h, each = h[0], key + modes + int(c.allocation)
        heads, own = model.interface(h).tensor_split([c.read_heads * each])
        heads = [raw.split([key, modes, int(c.allocation)]) for raw in heads.split(each)]
        write_key, ga, gw, erase, add = own.split([key, 1, 1, c.word, c.word])
        found = content(c, write_key, memory)
        kept = [torch.ones(()).double()] * c.cells
        if c.allocation:
            for (_, _, free), w in zip(heads, read, strict=True):
                kept = [kept[n] * (1 - free.sigmoid() * w[n]) for n in cells]
            usage = [(usage[n] + write[n] - usage[n] * write[n]) * kept[n] for n in cells]
            order = sorted(cells, key=lambda n: usage[n].item())
            free_cells, left = [zero] * c.cells, torch.ones(()).double()
            for n in order:
                free_cells[n] = (1 - usage[n]) * left
                left = left * usage[n]
            found = [ga.sigmoid() * free_cells[n] + (1 - ga.sigmoid()) * found[n] for n in cells]
        write = [gw.sigmoid() * w for w in found]
        for n in cells:
            old = memory[n] * kept[n] if c.deallocation else memory[n]
            memory[n] = old * (1 - write[n] * erase.sigmoid()) + write[n] * add
        links = [
            [(1 - write[n] - write[m]) * links[n][m] + write[n] * last[m] if n != m else zero for m in cells]
            for n in cells
        ]
        last = [(1 - sum(write)) * last[n] + write[n] for n in cells]
        new = []
        for (own_key, raw, _), w in zip(heads, read, strict=True):
            by_content = content(c, own_key, memory)
            if c.temporal_links:
                ahead = [sum(links[n][m] * w[m] for m in cells) for n in cells]
                back = [sum(links[m][n] * w[m] for m in cells) for n in cells]
                if c.sharpening:
                    back, ahead = (
                        [(v + 1e-6) ** one_plus(power) / sum((u + 1e-6) ** one_plus(power) for u in side) for v in side]
                        for side, power in ((back, raw[3]), (ahead, raw[4]))
                    )
                odds = raw[:3].exp() / raw[:3].exp().sum()
                by_content = [odds[0] * back[n] + odds[1] * by_content[n] + odds[2] * ahead[n] for n in cells]
            new.append(by_content)
        read = new
        reads = [sum(w[n] * memory[n] for n in cells) for w in read]
        reads = [r.reshape(c.word) for r in reads]
        outputs.append(model.head(torch.cat([h, *reads])))
    return torch.stack(outputs)


@pytest.mark.parametrize("settings", [{}, IMPROVED, {"allocation": False, "temporal_links": False}])
def test_five_steps_equal_the_loop_over_cells_in_value_and_gradient(settings):
    model = build(**settings)
    inputs = torch.randn(2, 5, 3, dtype=torch.float64)
    found, expected = model(inputs), torch.stack([paper(model, tape) for tape in inputs])
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)
    weights, parameters = torch.randn_like(found), list(model.parameters())
    grads = [torch.autograd.grad((out * weights).sum(), parameters, allow_unused=True) for out in (found, expected)]
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, torch.zeros_like(one) if other is None else other, rtol=1e-7, atol=1e-9)


def test_watch_shows_reads_beside_writes_and_parts_equal_the_whole():
    model = build(**IMPROVED).eval()
    inputs = torch.randn(2, 6, 3, dtype=torch.float64)
    with regard.watch(model) as seen:
        whole = model(inputs)
    assert {name: tuple(trace.weights.shape) for name, trace in seen.items()} == {
        "read_address": (2, 2, 6, 5),
        "write_address": (2, 1, 6, 5),
    }
    first, state = model.read(inputs[:, :2], model.start(2))
    torch.testing.assert_close(torch.cat([first, model.read(inputs[:, 2:], state)[0]], 1), whole)


def test_options_that_need_another_are_refused():
    with pytest.raises(BadInput, match="allocation=True"):
        DNC(Config(allocation=False, deallocation=True))
    with pytest.raises(BadInput, match="temporal_links=True"):
        DNC(Config(temporal_links=False, sharpening=True))
