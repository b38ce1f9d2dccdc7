"""bAbI 10k, 19 tasks in one model: a DNC writes the sentences of a story to its memory and reads along them.

task       choose the answer to a question about a story
data       bAbI 10k without task 3, whose training part is not at hand: 171,000 questions to train on, 19,000 of
           held-out training stories for validation, 19,000 to test
licence    CC BY 3.0 (Facebook, 2015)
paper      Graves et al., Hybrid computing using a neural network with dynamic external memory, Nature 538, 2016;
           Csordás, Schmidhuber, ICLR 2019, arXiv:1904.10278 (masking, de-allocation, sharpened links)
machine    one GPU: a loop over the sentences
expected   mean error 16.7 % (deviation 7.6), 11.2 tasks failed over 20 tasks, word by word (the paper, as listed by
           JoergFranke/ADNC)
measured   not yet
command    regard train dnc_babi --out runs/dnc-babi
           regard eval runs/dnc-babi
           regard train dnc_babi model.temporal_links=false model.sharpening=false --out runs/dnc-no-links
"""

from dataclasses import replace

from _babi import DATA_10K, TRAIN

from regard.models.story_dnc import Config
from regard.tasks.memory import stories
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=0),
        task=stories.Config(),
        data=DATA_10K,
        train=replace(TRAIN, steps=40_000, learning_rate=1e-3),
    )
