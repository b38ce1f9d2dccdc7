"""bAbI 10k, 19 tasks in one model: three hops of attention over the sentences of a story, with ten times the questions.

task       choose the answer to a question about a story
data       bAbI 10k without task 3, whose training part is not at hand: 171,000 questions to train on, 19,000 of
           held-out training stories for validation, 19,000 to test
licence    CC BY 3.0 (Facebook, 2015)
paper      Sukhbaatar et al., End-To-End Memory Networks, NeurIPS 2015, arXiv:1503.08895
machine    one GPU, or an hour of a CPU thread
expected   mean error 7.5 %, 6 tasks failed (recalled from the paper: 20 tasks, joint, 3 hops)
measured   not yet
command    regard train memn2n_babi_10k --out runs/memn2n-10k
           regard eval runs/memn2n-10k
"""

from dataclasses import replace

from _babi import DATA_10K, TRAIN

from regard.models.memn2n import Config
from regard.tasks.memory import stories
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=0, width=100, hops=3),
        task=stories.Config(linear_start=10_000, time_noise=0.1),
        data=replace(DATA_10K, similar_lengths=False),
        train=replace(TRAIN, steps=100_000, learning_rate=1e-3),
    )
