"""CIFAR-10 at equal cost: a Transformer on 1,024 grey pixels.

task       classify small images into ten classes
data       CIFAR-10, lossless, as grey: 45,000 training, 5,000 validation and 10,000 test images
licence    CIFAR-10's licence is not stated, so no model is shipped
paper      after Chen et al., Generative Pretraining from Pixels, ICML 2020 (bidirectional, pixels through a linear map)
machine    one GPU; 40 epochs (7,000 updates of 256 images), 0.06 million parameters
expected   not known at this size
measured   not yet
command    regard train equal_cost_pixels --out runs/equal-pixels
           regard eval runs/equal-pixels
"""

from _equal_cost import equal_cost

from regard.models.vit import Config
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    model = Config(
        num_classes=10,
        image_size=32,
        channels=1,
        patch_size=1,
        num_prefix_tokens=0,
        pool="mean",
        width=32,
        heads=2,
        layers=2,
        ffn=128,
    )
    return equal_cost(model, grayscale=True)
