"""CIFAR-10 at equal cost: a Transformer on 64 patches of 4 x 4 pixels.

task       classify small images into ten classes
data       CIFAR-10, lossless: 45,000 training, 5,000 validation and 10,000 test images
licence    CIFAR-10's licence is not stated, so no model is shipped
paper      Dosovitskiy et al., An Image is Worth 16x16 Words, ICLR 2021, arXiv:2010.11929
machine    one GPU; 40 epochs (7,000 updates of 256 images), 2.7 million parameters
expected   not known at this size
measured   not yet
command    regard train equal_cost_patches --out runs/equal-patches
           regard eval runs/equal-patches
"""

from _equal_cost import equal_cost

from regard.models.vit import Config
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    model = Config(num_classes=10, image_size=32, patch_size=4, width=256, heads=4, layers=5, ffn=512, drop_path=0.1)
    return equal_cost(model)
