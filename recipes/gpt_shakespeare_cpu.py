"""Tiny Shakespeare, character by character, in three minutes on two cores: a small GPT of today's parts.

task       say the next character of a play
data       tinyshakespeare: 1,003,854 characters to train on, 111,540 to validate (the last tenth), 65 kinds
licence    not stated; the text is in the public domain
paper      Radford et al., Language Models are Unsupervised Multitask Learners, 2019; karpathy/nanoGPT; its parts:
           RMSNorm, rotary positions, QK-norm, Muon
machine    two CPU cores, three minutes; 0.8 million parameters
expected   better than 1.88 nats a character on validation, nanoGPT's with this size (4 layers of 128, context 64)
measured   1.602 after all 1,500 updates, two minutes of two quiet cores (seed 1, 2026-11-15); cut off by three minutes
           of a busy machine, after 606 and 617 updates, 1.802 and 1.797
command    regard train gpt_shakespeare_cpu --out runs/small
           regard eval runs/small --split val
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
            ffn=512,
            length=64,
            dropout=0.0,
            attention_dropout=0.0,
            bias=False,
            norm_kind="rms",
            qk_norm="rms",
            positions="rotary",
        ),
        task=language.Config(),
        data=PlainText("tinyshakespeare", context=64, rows=12, kind="char"),
        train=Train(
            steps=1500,
            minutes=3.0,
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
