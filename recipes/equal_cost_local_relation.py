"""CIFAR-10 at equal cost: LR-Net: local attention in place of convolution.

task       classify small images into ten classes
data       CIFAR-10, lossless: 45,000 training, 5,000 validation and 10,000 test images
licence    CIFAR-10's licence is not stated, so no model is shipped
paper      Hu et al., Local Relation Networks, ICCV 2019, arXiv:1904.11491
machine    one GPU; 40 epochs (7,000 updates of 256 images), 2.9 million parameters
expected   not known at this size
measured   not yet
command    regard train equal_cost_local_relation --out runs/equal-local-relation
           regard eval runs/equal-local-relation
"""

from _equal_cost import equal_cost

from regard.models.lr_net import SIZES, Config
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return equal_cost(Config(**SIZES["26-cifar-narrow"]))
