"""Experts on several processes: gradients and curves equal those of one."""

import json

import pytest
import torch

from regard.training import train
from tests.training.test_ranks import close, launch

RECIPE = """
'''A toy mixture, for ranks.'''
from regard.data.text.text_file import TextFile
from regard.models.gpt import Config
from regard.tasks.text import language_modeling
from regard.training.recipe import Recipe, Train

def recipe():
    return Recipe(
        Config(vocab=1, width=16, heads=2, layers=2, ffn=24, length=16, dropout=0.0, attention_dropout=0.0,
               feedforward="moe(num_experts=4, top_k=2)"),
        language_modeling.Config(balance={balance}),
        TextFile({file!r}, context_length=8, batch_size=6),
        Train(steps=6, learning_rate=3e-3, warmup_steps=2, gradient_accumulation_steps=2, clip_grad_norm=1.0,
              eval_interval=3, save_interval=3, log_interval=1, device="cpu"),
    )
"""


@pytest.fixture(scope="module")
def recipes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("experts")
    (folder / "text.txt").write_text("the cat sat on a mat; the dog ate the cat and the mat.\n" * 40)
    for name, balance in (("plain", 0.0), ("even", 0.1)):
        file = folder / f"{name}.py"
        file.write_text(RECIPE.format(balance=balance, file=str(folder / "text.txt")))
    return folder


def rows(out):
    return [
        row for line in (out / "metrics.jsonl").read_text().splitlines() if "grad_norm" in (row := json.loads(line))
    ]


@pytest.mark.long
def test_two_processes_train_experts_as_one_does(recipes, monkeypatch):
    """Up to rounding without the balancing loss; nearly with it, since each process balances its own tokens."""
    monkeypatch.setattr("regard.training.loop.TrainingRun._draw", lambda self, force=False: None)
    ways = {
        "ddp": ["train.data_parallel=ddp"],
        "fsdp": ["train.data_parallel=fsdp", "train.gradient_checkpointing=true"],
    }
    jobs = [
        {"recipe": str(recipes / f"{name}.py"), "out": str(recipes / f"{name}-{way}"), "settings": settings}
        for name in ("plain", "even")
        for way, settings in ways.items()
    ]
    launch(2, jobs, recipes / "jobs")
    for name in ("plain", "even"):
        train(str(recipes / f"{name}.py"), recipes / name)
    for way in ways:
        close(recipes / "plain", recipes / f"plain-{way}")
        for one, two in zip(rows(recipes / "even"), rows(recipes / f"even-{way}"), strict=True):
            assert two["loss"] == pytest.approx(one["loss"], rel=5e-3)
            assert two["balance"] == pytest.approx(one["balance"], rel=0.1)
    assert rows(recipes / "even")[-1]["loss"] != rows(recipes / "plain")[-1]["loss"]
    gone = torch.tensor([[row[key] for row in rows(recipes / f"even-{way}")] for way in ways for key in ("loss",)])
    torch.testing.assert_close(gone[0], gone[1], rtol=1e-5, atol=0)  # copies and slices are one thing
