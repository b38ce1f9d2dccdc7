"""Captions of photographs with a Transformer: cross-attention from words to the parts of the picture.

task       as flickr8k_attention
data       Flickr8k, as in flickr8k_attention: the same stored vectors of the same frozen encoder, one self-attention
           layer over them
licence    the photographs are for research: what is trained on them does not ship
paper      Sharma et al., Conceptual Captions, ACL 2018; Liu et al., CPTR, 2021, arXiv:2101.10804
machine    one GPU, minutes; or one CPU core, about an hour
expected   not known for these features; the table it belongs to has soft 67 / 44.8 / 29.9 / 19.5 (BLEU-1 to BLEU-4)
measured   not trained yet
command    regard train flickr8k_transformer --out runs/transformer-captions
           regard eval runs/transformer-captions
"""

from dataclasses import replace

from _flickr8k import DATA, TRAIN

from regard.models.caption_transformer import Config
from regard.tasks.image import captioning
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    task = captioning.Config(label_smoothing=0.1, doubly_stochastic=0.0)
    return Recipe(Config(vocab=0), task, DATA, replace(TRAIN, learning_rate=5e-4, clip_grad_norm=1.0))
