"""CIFAR-10 at equal cost: a ResNet with self-attention between its stages: non-local blocks.

task       classify small images into ten classes
data       CIFAR-10, lossless: 45,000 training, 5,000 validation and 10,000 test images
licence    CIFAR-10's licence is not stated, so no model is shipped
paper      Wang et al., Non-local Neural Networks, CVPR 2018, arXiv:1711.07971
machine    one GPU; 40 epochs (7,000 updates of 256 images), 3.6 million parameters
expected   not known at this size
measured   not yet
command    regard train equal_cost_self_attention --out runs/equal-self-attention
           regard eval runs/equal-self-attention
"""

from _equal_cost import equal_cost

from regard.models.resnet import SIZES, Config
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return equal_cost(Config(**SIZES["18-cifar-narrow"], non_local=(1, 2)))
