"""Tiny Shakespeare, character by character, with a small GPT: nanoGPT's first example.

task       say the next character of a play
data       tinyshakespeare: 1,003,854 characters to train on, 111,540 to validate (the last tenth), 65 kinds
licence    not stated; the text is in the public domain
paper      Radford et al., Language Models are Unsupervised Multitask Learners, 2019; karpathy/nanoGPT
machine    one GPU, a few minutes (H200); 10.7 million parameters
expected   1.4697 nats a character on validation, nanoGPT's best (of random windows; here every character once)
measured   not measured yet
command    regard train gpt_shakespeare_char --out runs/shakespeare
           regard eval runs/shakespeare --split val
"""

from regard.data.plain import PlainText
from regard.models.gpt import SIZES, Config
from regard.tasks import language
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=69, ffn=1536, **SIZES["char"]),
        task=language.Config(),
        data=PlainText("tinyshakespeare", context=256, rows=64, kind="char"),
        # It learns the training part by heart after some 2,000 updates: the best on validation is kept.
        train=Train(
            steps=5000,
            rate=1e-3,
            schedule="cosine",
            warmup=100,
            floor=0.1,
            betas=(0.9, 0.99),
            eps=1e-8,
            decay=0.1,
            clip=1.0,
            evaluate=250,
            save=1000,
            metric="loss",
        ),
    )
