"""CIFAR-10 with a VGG that pools three grids by attention, by the recipe of the others.

task       classify small images into ten classes
data       CIFAR-10, lossless: 45,000 training, 5,000 validation and 10,000 test images
licence    CIFAR-10's licence is not stated, so no model is shipped
paper      Jetley et al., Learn to Pay Attention, ICLR 2018, arXiv:1804.02391 (narrower);
           trained as Compact-Transformers trains CCT-7/3x1, like the other recipes for CIFAR-10
machine    one GPU; 100 epochs (17,500 updates of 256 images), 1.0 million parameters
expected   not known at this size; about as many multiply-adds as a ResNet-18 of 36 channels (88.4 %)
measured   not yet: waits for a GPU
command    regard train learn_to_pay_attention_cifar10 --out runs/learn_to_pay_attention
           regard eval runs/learn_to_pay_attention
"""

from _cifar10 import DATA, TASK, TRAIN

from regard.models.learn_to_pay_attention import SIZES, Config
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(model=Config(**SIZES["narrow"]), task=TASK, data=DATA, train=TRAIN)
