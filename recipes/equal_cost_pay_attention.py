"""CIFAR-10 at equal cost: a VGG that pools three grids by attention.

task       classify small images into ten classes
data       CIFAR-10, lossless: 45,000 training, 5,000 validation and 10,000 test images
licence    CIFAR-10's licence is not stated, so no model is shipped
paper      Jetley et al., Learn to Pay Attention, ICLR 2018, arXiv:1804.02391
machine    one GPU; 40 epochs (7,000 updates of 256 images), 1.0 million parameters
expected   not known at this size
measured   not yet
command    regard train equal_cost_pay_attention --out runs/equal-pay-attention
           regard eval runs/equal-pay-attention
"""

from _equal_cost import equal_cost

from regard.models.learn_to_pay_attention import SIZES, Config
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return equal_cost(Config(**SIZES["narrow"]))
