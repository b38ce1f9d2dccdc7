"""bAbI, all 20 tasks in one model, with gates trained on the supporting sentences: a Dynamic Memory Network.

task       choose the answer to a question about a story
data       bAbI 1k: 17,985 questions to train on, 2,015 of held-out training stories for validation, 20,000 to test
licence    CC BY 3.0 (Facebook, 2015)
paper      Kumar et al., Ask Me Anything: Dynamic Memory Networks, ICML 2016, arXiv:1506.07285
machine    one thread of a CPU: a recurrent network reads every word of a story
expected   mean accuracy 93.6 %, 2 tasks failed (recalled from the paper, which trains a model for each task); public
           implementations are far below it (67 % in the README of jhyuklee/dmn-pytorch)
measured   mean error 12.4 %, 7 tasks failed on the test stories (seed 1, 25,869 of the 30,000 updates in 50 minutes of
           one thread of a busy CPU; on validation 12.5 %; 2026-11-20)
command    regard train dmn_babi --out runs/dmn
           regard train dmn_babi "data.tasks=(1,)" --out runs/dmn-1
"""

from dataclasses import replace

from _babi import TRAIN

from regard.data.text.stories import Stories
from regard.models.dmn import Config
from regard.tasks.memory import stories
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=0, width=80, hops=3, dropout=0.1),
        task=stories.Config(gate_weight=1.0),
        data=Stories("babi", size="1k", max_sentences=70, batch_size=64, similar_lengths=True),
        train=replace(TRAIN, steps=30_000, learning_rate=1e-3),
    )
