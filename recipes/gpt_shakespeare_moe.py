"""Experts in a GPT at the cost of a dense one: Tiny Shakespeare, character by character.

task       predict the next character of a play
data       tinyshakespeare: 1,003,854 characters to train on, 111,540 to validate (the last tenth), 65 kinds
licence    not stated; the text is in the public domain
paper      Fedus, Zoph, Shazeer, Switch Transformers, 2021, arXiv:2101.03961; Jiang et al., Mixtral, 2024,
           arXiv:2401.04088
what       gpt_shakespeare_cpu with its feed-forward cut in two halves of which a token takes its best two of eight: as
           many active parameters, and the router's 1,024 a layer; four times as many in the feed-forwards all told
machine    one CPU core, minutes
expected   a lower validation loss than the dense model after the same number of updates; no expert idle
measured   1.549 nats per character on validation, 6.7 minutes of one core; no expert idle (10 to 15 % each);
           the dense model 1.585, 3.2 minutes (seed 1)
command    regard train gpt_shakespeare_moe --out runs/experts
           regard train gpt_shakespeare_moe --out runs/dense model.feedforward=swiglu model.ffn=352 task.balance=0
"""

from dataclasses import replace

from _shakespeare import DATA, MODEL, TRAIN

from regard.tasks.text import language_modeling
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=replace(MODEL, ffn=176, feedforward="moe(8, top_k=2, expert='swiglu')"),
        task=language_modeling.Config(balance=0.01),
        data=DATA,
        train=TRAIN,
    )
