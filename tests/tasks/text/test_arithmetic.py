"""Adding: measured by length, exactly resumed, saved, and asked in text."""

import re

import pytest
import torch
from torch import nn

import regard
from regard import cli
from regard.core.errors import BadInput
from regard.data.synthetic.arithmetic import EOS, FIRST_DIGIT, Arithmetic
from regard.models.neural_gpu import Config, NeuralGPU
from regard.tasks.text import arithmetic
from regard.tasks.text.arithmetic import Calculator
from regard.training import train


class Adder(nn.Module):
    """Adds by the rules: what a model that has learned everything would write, one digit a step."""

    eos = EOS

    def __init__(self, wrong=()):
        super().__init__()
        self.parameter, self.wrong = nn.Parameter(torch.zeros(())), wrong

    def forward(self, source, target, source_lengths=None, target_lengths=None):
        pairs = source[:, :-1] - FIRST_DIGIT
        digits, carry = [], torch.zeros(len(source), dtype=torch.long)
        for place in range(pairs.shape[1]):
            here = pairs[:, place] // 2 + pairs[:, place] % 2 + carry
            digits.append(FIRST_DIGIT + here % 2)
            carry = here // 2
        written = torch.stack([*digits, FIRST_DIGIT + carry, torch.full_like(carry, EOS)], 1)
        if pairs.shape[1] in self.wrong:
            written[:, 0] = 2 * FIRST_DIGIT + 1 - written[:, 0]
        return nn.functional.one_hot(written, 7).double() * 20 + self.parameter

    def start(self, source, source_lengths=None, *, capacity):
        return torch.ones(len(source), 1, dtype=torch.long), (self.forward(source, None), 0)

    def step(self, tokens, state):
        logits, time = state
        return logits[:, time : time + 1].expand(-1, tokens.shape[1], -1).clone(), (logits, time + 1)

    def select(self, state, rows, beams):
        return state if rows is None else (state[0][rows], state[1])


def test_right_and_wrong_sums_are_counted_by_length():
    task = arithmetic.Config(eval_examples=20).build(Arithmetic(digits=5, test_digits=(3, 7)))
    found = task.evaluate(Adder(), "test")
    assert (found["exact_match"], found["exact_match_3"], found["exact_match_7"], found["accuracy"]) == (1, 1, 1, 1)
    found = task.evaluate(Adder(wrong=(7,)), "test")
    assert (found["exact_match"], found["exact_match_3"], found["exact_match_7"]) == (0.5, 1, 0)
    assert found["accuracy"] == pytest.approx(1 - 20 / (20 * (5 + 9)))
    assert "exact_match" not in task.evaluate(Adder(), "val", effort=0)


def test_a_calculator_reads_and_writes_numbers():
    add = Calculator(Adder())
    assert add(["1011+110", "0 + 0", "1+1111"]) == ["10001", "0", "10000"]
    assert add("11+1") == "100"
    for line in ("", "1+", "12+1", "1+1+1", "one+two", "-1+1"):
        with pytest.raises(BadInput, match="expected for example 101"):
            add([line])


def test_an_untrained_calculator_writes_something_and_comes_back_from_a_folder(tmp_path):
    add = Calculator(NeuralGPU(Config(vocab=7, width=4, rows=1, decoder="image", length_offset=2.0)))
    regard.save(add, tmp_path / "add")
    again = regard.load(tmp_path / "add")
    assert isinstance(again, Calculator)
    assert again("101+1") == add("101+1")
    assert set(add("101+1")) <= set("01?")


def test_train_stop_resume_is_train(tmp_path):
    settings = ["train.device=cpu", "train.steps=8", "train.save_interval=4", "data.initial_digits=1", "model.width=4"]
    train("neural_gpu_addition", tmp_path / "whole", settings=settings, quick=True)
    train("neural_gpu_addition", tmp_path / "half", settings=[*settings, "train.steps=4"], quick=True)
    train(None, tmp_path / "half", settings=["train.steps=8"], resume=True)
    whole, half = (regard.load(tmp_path / name / "model").model.state_dict() for name in ("whole", "half"))
    assert all(torch.equal(whole[key], half[key]) for key in whole)


def test_eval_says_how_many_sums_are_right(tmp_path, capsys):
    settings = ["train.device=cpu", "train.steps=2", "model.width=4"]
    train("neural_gpu_addition", tmp_path / "run", settings=settings, quick=True)
    capsys.readouterr()
    assert cli.main(["eval", str(tmp_path / "run"), "--device", "cpu"]) == 0
    assert re.search(
        r"digit accuracy \d+\.\d+ %, exact match \d+\.\d+ %, exact match 4 \d+\.\d+ %", capsys.readouterr().out
    )
