"""The Neural Turing machine against a loop over cells written from the paper's equations."""

import pytest
import torch

import regard
from regard.core.errors import BadInput
from regard.models.ntm import NTM, Config, erase_and_add

SETTINGS = {"input_dim": 3, "output_dim": 2, "cells": 5, "word": 4, "hidden": 6, "read_heads": 2, "write_heads": 2}


def build(seed=0, **settings):
    torch.manual_seed(seed)
    model = NTM(Config(**SETTINGS | settings)).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    return model


def paper(model, inputs):
    """Return the logits of one tape T C, cell by cell: equations 2 to 9, heads one after the other."""
    c, cells = model.config, range(model.config.cells)
    memory = [model.memory for _ in cells]
    before = [[torch.tensor(float(n == 0)).double() for n in cells] for _ in range(c.read_heads + c.write_heads)]
    reads = [torch.zeros(c.word).double() for _ in range(c.read_heads)]
    state, outputs = model.controller.start(1), []
    for x in inputs:
        h, state = model.controller(model.controller.inputs(x[None, None])[0], torch.cat(reads)[None], state)
        h = h[0]
        addresses, width = [], c.word + 4 + 2 * c.max_shift
        for head, raw in enumerate(model.address(h).split(width)):
            key, strength, gate, shifts, power = raw.split([c.word, 1, 1, 2 * c.max_shift + 1, 1])
            beta, gamma, gate = 1 + (1 + strength.exp()).log(), 1 + (1 + power.exp()).log(), 1 / (1 + (-gate).exp())
            similar = [(beta * (key @ m) / ((key @ key + 1e-6).sqrt() * (m @ m + 1e-6).sqrt())).exp() for m in memory]
            content = [s / sum(similar) for s in similar]
            kept = [gate * w + (1 - gate) * old for w, old in zip(content, before[head], strict=True)]
            odds = [s.exp() for s in shifts]
            moved = [
                sum(odd / sum(odds) * kept[(n - shift) % c.cells] for shift, odd in enumerate(odds, -c.max_shift))
                for n in cells
            ]
            sharp = [w**gamma for w in moved]
            addresses.append([w / sum(sharp) for w in sharp])
        if c.top_k:
            for head in range(c.read_heads):
                least = sorted(w.item() for w in addresses[head])[-min(c.top_k, c.cells)]
                some = [w if w.item() >= least else 0 * w for w in addresses[head]]
                addresses[head] = [w / sum(some) for w in some]
        reads = [sum(addresses[r][n] * memory[n] for n in cells) for r in range(c.read_heads)]
        told = model.write(h).split(2 * c.word)
        for w, raw in zip(addresses[c.read_heads :], told, strict=True):  # all erase ...
            memory = [m * (1 - w[n] * raw[: c.word].sigmoid()) for n, m in enumerate(memory)]
        for w, raw in zip(addresses[c.read_heads :], told, strict=True):  # ... then all add
            memory = [m + w[n] * raw[c.word :] for n, m in enumerate(memory)]
        before = addresses
        outputs.append(model.head(torch.cat([h, *reads])))
    return torch.stack(outputs)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"controller": "feedforward"},
        {"write_heads": 1, "max_shift": 2, "layers": 2},
        {"top_k": 2},
        {"top_k": 2, "cells": 1},
    ],
)
def test_five_steps_equal_the_loop_over_cells_in_value_and_gradient(settings):
    model = build(**settings)
    inputs = torch.randn(2, 5, 3, dtype=torch.float64)
    found, expected = model(inputs), torch.stack([paper(model, tape) for tape in inputs])
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)
    weights = torch.randn_like(found)
    parameters = list(model.parameters())
    grads = [torch.autograd.grad((out * weights).sum(), parameters, allow_unused=True) for out in (found, expected)]
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, torch.zeros_like(one) if other is None else other, rtol=1e-7, atol=1e-9)


def test_erasing_and_adding_nothing_leaves_the_memory_unchanged_to_the_bit():
    memory, nothing = torch.randn(2, 7, 5), torch.zeros(2, 3, 5)
    for heads in (1, 3):
        address = torch.rand(2, heads, 7).softmax(-1)
        assert torch.equal(erase_and_add(memory, address, nothing[:, :heads], nothing[:, :heads]), memory)


def test_a_tape_read_in_parts_equals_the_whole():
    model = build().eval()
    inputs = torch.randn(2, 6, 3, dtype=torch.float64)
    first, state = model.read(inputs[:, :2], model.start(2))
    rest, _ = model.read(inputs[:, 2:], state)
    torch.testing.assert_close(torch.cat([first, rest], 1), model(inputs))


def test_watch_shows_reads_beside_writes():
    model = build()
    with regard.watch(model) as seen:
        model(torch.randn(2, 6, 3, dtype=torch.float64))
    assert list(seen) == ["read_address", "write_address"]
    for name, kind in (("read_address", "read"), ("write_address", "write")):
        trace = seen[name]
        assert trace.kind == kind
        assert trace.weights.shape == (2, 2, 6, 5)
        torch.testing.assert_close(trace.weights.sum(-1), torch.ones(2, 2, 6, dtype=torch.float64))


def test_half_precision_does_not_reach_the_loop():
    model = build().float()
    inputs = torch.randn(2, 5, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(model(inputs), model(inputs.float()))


def test_strengths_that_overflow_give_finite_gradients():
    model = build().float()
    with torch.no_grad():
        model.address.weight.mul_(1e4)
    logits = model(torch.randn(2, 30, 3))
    logits.square().sum().backward()
    assert logits.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_bad_settings_and_an_empty_tape_are_one_sentence():
    with pytest.raises(BadInput, match="max_shift must be at most cells=2"):
        NTM(Config(cells=2, max_shift=3))
    with pytest.raises(BadInput, match="no steps"):
        build()(torch.zeros(1, 0, 3, dtype=torch.float64))
    assert NTM(Config(cells=1))(torch.ones(1, 3, 9)).isfinite().all()
