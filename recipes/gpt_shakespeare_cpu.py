"""Tiny Shakespeare, character by character, in three minutes on two cores: a small GPT of today's parts.

task       predict the next character of a play
data       tinyshakespeare: 1,003,854 characters to train on, 111,540 to validate (the last tenth), 65 kinds
licence    not stated; the text is in the public domain
paper      Radford et al., Language Models are Unsupervised Multitask Learners, 2019; karpathy/nanoGPT; its parts:
           RMSNorm, rotary positions, QK-norm, Muon
machine    two CPU cores, three minutes; 0.8 million parameters
expected   better than 1.88 nats per character on validation, nanoGPT's with this size (4 layers of 128, context 64)
measured   1.602 after all 1,500 updates, two minutes of two quiet cores (seed 1, 2026-11-15); cut off by three minutes
           of a busy machine, after 606 and 617 updates, 1.802 and 1.797
command    regard train gpt_shakespeare_cpu --out runs/small
           regard eval runs/small --split val
"""

from dataclasses import replace

from _shakespeare import DATA, MODEL, TRAIN

from regard.tasks.text import language_modeling
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(model=MODEL, task=language_modeling.Config(), data=DATA, train=replace(TRAIN, max_minutes=3.0))
