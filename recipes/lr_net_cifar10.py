"""CIFAR-10 with LR-Net: attention to the 7 x 7 cells around in place of convolution, by the recipe of the others.

task       classify small images into ten classes
data       CIFAR-10, lossless: 45,000 training, 5,000 validation and 10,000 test images
licence    CIFAR-10's licence is not stated, so no model is shipped
paper      Hu et al., Local Relation Networks, ICCV 2019, arXiv:1904.11491 (narrower, and with a stem for small images);
           trained as Compact-Transformers trains CCT-7/3x1, like the other recipes for CIFAR-10
machine    one GPU; 100 epochs (17,500 updates of 256 images), 2.8 million parameters
expected   not known at this size; about as many multiply-adds as a ResNet-18 of 36 channels (88.4 %)
measured   not yet: waits for a GPU
command    regard train lr_net_cifar10 --out runs/lr_net
           regard eval runs/lr_net
"""

from _cifar10 import DATA, TASK, TRAIN

from regard.models.lr_net import SIZES, Config
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(model=Config(**SIZES["26-cifar-narrow"]), task=TASK, data=DATA, train=TRAIN)
