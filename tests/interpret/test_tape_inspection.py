"""Tapes inspected: the cells that every head read and wrote at every step, in one picture and as maps."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from regard.attention.capture.watch import watch
from regard.interpret.figures import make_figure
from regard.interpret.inspection import inspect
from regard.models import build
from regard.tasks.memory.tapes import TapePredictor

TAPE = "101 011 000"


@pytest.mark.parametrize("name", ["ntm", "dnc"])
def test_addresses_over_time_are_maps_of_steps_and_cells(name, tmp_path):
    torch.manual_seed(0)
    settings = {"input_dim": 4, "output_dim": 3, "cells": 6, "word": 5, "hidden": 8, "read_heads": 2}
    copy = TapePredictor(build(name, **settings), "copy_tape", {"bits": 3})
    seen = inspect(copy, {"text": TAPE})
    with watch(copy.model) as traces, torch.no_grad():
        copy.model(copy.tape.read_line(TAPE).inputs)
    assert {held.kind for held in seen.store.values()} == {"read", "write"}
    for key, held in seen.store.items():
        weights = traces[key].weights[0].numpy()
        assert weights.shape == (2 if held.kind == "read" else 1, 7, 6)  # heads, steps, cells
        for head, step in ((0, 0), (0, 6), (len(weights) - 1, 3)):
            np.testing.assert_allclose(seen.row(key, head, step), weights[head, step], rtol=1e-3, atol=1e-6)
        steps, cells = seen.labels_of(key)
        assert list(steps[:4]) == ["101", "011", ".", "|"]
        assert list(steps[4:]) == [f"→ {word}" for word in copy.answer(TAPE).split()]
        assert list(cells) == ["1", "2", "3", "4", "5", "6"]
    figure = make_figure(seen)
    assert TAPE in figure.text()
    figure.save(tmp_path / "tape.png")
    assert plt.imread(tmp_path / "tape.png").std() > 0.05
