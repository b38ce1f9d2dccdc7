"""Symbol prediction: an encoder and a decoder learn to copy and to recall; a predictor answers in text."""

import pytest
import torch

import regard
from regard.core.errors import BadInput
from regard.data.synthetic.symbols import AssociativeRecall, Copying
from regard.models import build
from regard.tasks.text import symbol_prediction
from regard.tasks.text.symbol_prediction import SymbolPredictor
from regard.training import evaluate, train
from regard.training.recipe import Recipe, Train, config_class

SIZES = {"width": 32, "heads": 2, "layers": 2, "length": 16}


class Perfect(torch.nn.Module):
    """Knows the answers of recall: the token after the first occurrence of the key."""

    def __init__(self, vocab):
        super().__init__()
        self.parameter, self.vocab = torch.nn.Parameter(torch.zeros(())), vocab

    def forward(self, tokens, pass_state=None):
        out = torch.zeros(*tokens.shape, self.vocab)
        for row, line in enumerate(tokens.tolist()):
            for n, token in enumerate(line):
                if token > 2 and line.index(token) < n:
                    out[row, n, line[line.index(token) + 1]] = 20.0
        return out + self.parameter


def test_accuracy_and_loss_are_those_of_the_answers():
    data = AssociativeRecall(context_length=24, symbols=16, pairs=4, eval_examples=10)
    task = symbol_prediction.Config().build(data)
    found = task.evaluate(Perfect(data.vocab_size))
    assert found["accuracy"] == 1
    assert found["loss"] < 1e-6
    assert found["rows"] == 10
    blind = task.evaluate(lambda_model(data.vocab_size))
    assert blind["loss"] == pytest.approx(torch.log(torch.tensor(float(data.vocab_size))).item())
    assert task.count(next(task.dataset("val").eval_batches(3))) == 12


def lambda_model(vocab):
    model = Perfect(vocab)
    model.forward = lambda tokens, pass_state=None: torch.zeros(*tokens.shape, vocab)
    return model


@pytest.mark.parametrize("family", ["bert", "gpt"])
def test_a_small_model_learns_to_copy_and_is_used_as_text(family, tmp_path):
    config = config_class(family)(vocab=0, dropout=0.0, attention_dropout=0.0, **SIZES)
    data = Copying(context_length=7, symbols=4, train_examples=4000, eval_examples=50)
    settings = Train(steps=120, learning_rate=5e-3, warmup_steps=20, schedule="cosine", device="cpu", save_interval=0)
    train(Recipe(config, symbol_prediction.Config(), data, settings), tmp_path / "run")
    fill = regard.load(tmp_path / "run" / "model")
    assert isinstance(fill, SymbolPredictor)
    assert fill("3 1 2 . ? ? ?") == "3 1 2"


@pytest.mark.long
@pytest.mark.parametrize("family", ["bert", "gpt"])
def test_a_small_model_learns_recall(family, tmp_path):
    sizes = SIZES | {"width": 64, "initializer_range": 0.1}
    config = config_class(family)(vocab=0, dropout=0.0, attention_dropout=0.0, **sizes)
    data = AssociativeRecall(context_length=12, symbols=8, pairs=2, batch_size=64, eval_examples=200)
    settings = Train(
        steps=700,
        learning_rate=1e-3,
        warmup_steps=50,
        schedule="cosine",
        clip_grad_norm=1.0,
        device="cpu",
        save_interval=0,
    )
    train(Recipe(config, symbol_prediction.Config(), data, settings), tmp_path / "run")
    assert evaluate(tmp_path / "run", ["val"])["results"]["val"]["accuracy"] > 0.8  # 0.5 by guessing among the values
    assert len(regard.load(tmp_path / "run" / "model")("0 6 3 4 . . 3? . 0?").split()) == 2


def test_bad_rows_are_refused():
    fill = SymbolPredictor(build("gpt", vocab=10, **SIZES))
    for line, message in (
        ("3 1 .", "at least one of them a blank"),
        ("9 ?", "0 to 6"),
        ("a ?", "no symbol"),
        ("1 " * 16 + "?", "1 to 16"),
    ):
        with pytest.raises(BadInput, match=message):
            fill(line)
