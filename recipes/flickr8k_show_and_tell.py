"""Captions of photographs without attention: Show and Tell, the baseline of flickr8k_attention.

task       a photograph in, a sentence out; BLEU-1 to BLEU-4 and CIDEr-D against five references, beam search
data       Flickr8k, as in flickr8k_attention: the same stored vectors of the same frozen encoder, here their mean
licence    the photographs are for research: what is trained on them does not ship
paper      Vinyals et al., Show and Tell, CVPR 2015, arXiv:1411.4555
machine    one CPU core, half an hour
expected   the paper's, with an Inception network: 63 / 41 / 27 (BLEU-1 to BLEU-3)
measured   train.steps=2600, seed 1, test, beam 5: 53.7 / 35.0 / 22.7 / 15.2, CIDEr-D 0.341; 33 minutes on one core
command    regard train flickr8k_show_and_tell --out runs/show-and-tell
           regard eval runs/show-and-tell
"""

from _flickr8k import DATA, TRAIN

from regard.models.show_and_tell import Config
from regard.tasks.image import captioning
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(Config(vocab=0), captioning.Config(), DATA, TRAIN)
