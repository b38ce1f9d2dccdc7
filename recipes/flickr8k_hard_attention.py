"""Captions of photographs with hard attention: the place to look at is sampled for every word.

task       as flickr8k_attention; places learn by REINFORCE with the moving-average baseline and an entropy term
data       Flickr8k, as in flickr8k_attention
licence    the photographs are for research: what is trained on them does not ship
paper      Xu et al., Show, Attend and Tell, ICML 2015, arXiv:1502.03044
machine    one CPU core, about an hour
expected   the paper's, with VGG: hard 67 / 45.7 / 31.4 / 21.3 (BLEU-1 to BLEU-4)
measured   1,475 updates (train.steps=1500 train.max_minutes=32), seed 1, test, beam 5: 59.0 / 40.6 / 27.0 / 18.0,
           CIDEr-D 0.428; 32 minutes on one shared core
command    regard train flickr8k_hard_attention --out runs/hard-captions
           regard eval runs/hard-captions
"""

from _flickr8k import DATA, TRAIN

from regard.models.show_attend_and_tell import Config
from regard.tasks.image import reinforced_captioning
from regard.tasks.reinforce import Reinforce
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    how = Reinforce(entropy=0.01, credit="whole", baseline="moving_average(decay=0.9)")
    model = Config(vocab=0, aligner="hard(soft_fraction=0.5)")
    return Recipe(model, reinforced_captioning.Config(reinforce=how), DATA, TRAIN)
