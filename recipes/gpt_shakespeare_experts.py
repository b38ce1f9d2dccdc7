"""Experts in a GPT at the cost of a dense one: Tiny Shakespeare, character by character.

task       say the next character of a play
data       tinyshakespeare: 1,003,854 characters to train on, 111,540 to validate (the last tenth), 65 kinds
licence    not stated; the text is in the public domain
paper      Fedus, Zoph, Shazeer, Switch Transformers, 2021, arXiv:2101.03961; Jiang et al., Mixtral, 2024,
           arXiv:2401.04088
what       gpt_shakespeare_cpu with its feed-forward cut in two halves of which a token takes its best two of eight: as
           many active parameters, and the router's 1,024 a layer; four times as many in the feed-forwards all told
machine    one CPU core, minutes
expected   a lower validation loss than the dense twin after the same number of updates; no expert idle
measured   1.549 nats a character on validation, 6.7 minutes of one core; no expert idle (10 to 15 % each);
           the dense twin 1.585, 3.2 minutes (seed 1)
command    regard train gpt_shakespeare_experts --out runs/experts
           regard train gpt_shakespeare_experts --out runs/dense model.feed=swiglu model.ffn=352 task.balance=0
"""

from regard.data.plain import PlainText
from regard.models.gpt import Config
from regard.tasks import language
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=Config(
            vocab=69,
            width=128,
            heads=4,
            layers=4,
            ffn=176,
            length=64,
            dropout=0.0,
            attention_dropout=0.0,
            bias=False,
            norm_kind="rms",
            qk_norm="rms",
            positions="rotary",
            feed="experts(8, top=2, expert='swiglu')",
        ),
        task=language.Config(balance=0.01),
        data=PlainText("tinyshakespeare", context=64, rows=12, kind="char"),
        train=Train(
            steps=1500,
            device="cpu",
            optimiser="muon",
            rate=4e-3,
            schedule="cosine",
            warmup=100,
            floor=0.02,
            betas=(0.9, 0.99),
            eps=1e-8,
            decay=0.1,
            clip=1.0,
            evaluate=500,
            save=500,
            metric="loss",
        ),
    )
