"""bAbI 10k, 19 tasks in one model: a small BERT from scratch, to compare memory networks with.

task       choose the answer to a question about a story
data       bAbI 10k without task 3, whose training part is not at hand: 171,000 questions to train on, 19,000 of
           held-out training stories for validation, 19,000 to test
licence    CC BY 3.0 (Facebook, 2015)
paper      Devlin et al., BERT, NAACL 2019; Weston et al. 2015, arXiv:1502.05698
machine    one GPU
expected   no number is known for this protocol
measured   not yet
command    regard train story_bert_babi --out runs/story-bert
           regard eval runs/story-bert
"""

from dataclasses import replace

from _babi import DATA_10K, TRAIN

from regard.models.story_bert import Config
from regard.tasks.memory import stories
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=0),
        task=stories.Config(),
        data=DATA_10K,
        train=replace(TRAIN, precision="auto", steps=40_000, learning_rate=5e-4, weight_decay=0.01, warmup_steps=1000),
    )
