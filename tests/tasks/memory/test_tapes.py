"""The tape task: what it measures, what a predictor answers, and that a machine learns."""

import torch

import regard
from regard.data.synthetic.tapes import CopyTape, RecallTape, RepeatCopyTape
from regard.interpret.figures import make_figure
from regard.models.lstm import LSTM
from regard.models.lstm import Config as LSTMConfig
from regard.models.ntm import NTM, Config
from regard.tasks.memory.tapes import Config as TaskConfig
from regard.tasks.memory.tapes import TapePredictor
from regard.training import train
from regard.training.recipe import Recipe, Train


class Knows(torch.nn.Module):
    """Copies by looking; wrong in the first bit."""

    def __init__(self):
        super().__init__()
        self.unused = torch.nn.Parameter(torch.zeros(1))

    def forward(self, inputs):
        half = inputs.shape[1] // 2
        logits = torch.zeros(*inputs.shape[:2], inputs.shape[2] - 1)
        logits[:, half + 1 :] = 20 * inputs[:, :half, :-1] - 10
        logits[:, half + 1, 0] *= -1
        return logits


def test_wrong_bits_are_counted_per_sequence_and_by_length():
    task = TaskConfig().build(CopyTape(bits=4, max_length=5, test_lengths=(5, 9), eval_examples=7))
    found = task.evaluate(Knows(), "test")
    assert {key: found[key] for key in ("wrong_bits", "wrong_bits_5", "wrong_bits_9", "sequences")} == {
        "wrong_bits": 1.0,
        "wrong_bits_5": 1.0,
        "wrong_bits_9": 1.0,
        "sequences": 14,
    }
    assert abs(found["loss"] - 10 * 2 / (4 * 14)) < 1e-3


def test_models_fit_the_data_and_answer_tapes_of_all_three():
    for data, line, words in (
        (CopyTape(bits=3), "101 011", 2),
        (RepeatCopyTape(bits=3), "101 011 x2", 5),
        (RecallTape(bits=2, item_vectors=1), "00 , 01 , 11 ? 01", 1),
    ):
        task = TaskConfig().build(data)
        for model in (NTM(task.fit(Config(cells=24, word=4, hidden=8))), LSTM(task.fit(LSTMConfig(hidden=8)))):
            described = task.describe()
            described.pop("name")
            answer = TapePredictor(model, **described)(line)
            assert len(answer.split()) == words
            assert {*answer} <= {*"01 "}


def test_a_tape_longer_than_the_memory_is_said(caplog):
    TaskConfig().build(CopyTape()).fit(Config(cells=8))
    assert "a tape of 20 vectors does not fit a memory of 8 cells" in caplog.text
    predict = TapePredictor(NTM(Config(cells=2, hidden=4)), settings={"bits": 8})
    predict("10101010 11110000 00001111")
    assert "a tape of 3 vectors does not fit" in caplog.text
    caplog.clear()
    task = TaskConfig().build(RecallTape(bits=2, item_vectors=1))
    described = {name: value for name, value in task.describe().items() if name != "name"}
    TapePredictor(NTM(task.fit(Config(cells=18, hidden=4))), **described)("00 , 01 , 11 ? 01")
    assert not caplog.text


def test_a_machine_learns_to_copy_and_is_loaded_again(tmp_path):
    data = CopyTape(bits=3, max_length=2, test_lengths=(2,), batch_size=32, eval_examples=50)
    settings = Train(
        steps=150, learning_rate=2e-2, schedule="cosine", warmup_steps=10, clip_grad_norm=1.0, eval_interval=150
    )
    train(Recipe(Config(cells=6, word=5, hidden=24), TaskConfig(), data, settings), tmp_path / "run")
    copy = regard.load(tmp_path / "run")
    assert isinstance(copy, TapePredictor)
    lines = [f"{first:03b} {second:03b}" for first in range(8) for second in range(8)]
    right = sum(line == answer for line, answer in zip(lines, copy(lines), strict=True))
    assert right > 48  # of 64; by chance 1


def test_a_picture_shows_reads_beside_writes(tmp_path):
    predict = TapePredictor(NTM(Config(input_dim=4, output_dim=3, cells=6, hidden=8)), settings={"bits": 3})
    seen = regard.inspect(predict, {"text": "101 011"})
    assert seen.labels_of("write_address")[0] == ["101", "011", "|", *(f"→ {word}" for word in seen.prediction.split())]
    assert len(seen.labels_of("read_address")[1]) == 6
    make_figure(seen).save(tmp_path / "tape.png")
    assert (tmp_path / "tape.png").stat().st_size > 1000
