"""CIFAR-10 at equal cost: a Transformer on 64 tokens of two convolutions, pooled by attention.

task       classify small images into ten classes
data       CIFAR-10, lossless: 45,000 training, 5,000 validation and 10,000 test images
licence    CIFAR-10's licence is not stated, so no model is shipped
paper      Hassani et al., Compact Transformers, 2021, arXiv:2104.05704
machine    one GPU; 40 epochs (7,000 updates of 256 images), 2.3 million parameters
expected   not known at this size
measured   not yet
command    regard train equal_cost_compact --out runs/equal-compact
           regard eval runs/equal-compact
"""

from _equal_cost import equal_cost

from regard.models.cct import Config
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    model = Config(
        num_classes=10,
        image_size=32,
        kernel=3,
        convolutions=2,
        width=256,
        heads=4,
        layers=4,
        mlp_ratio=2.0,
        attention_dropout=0.0,
        drop_path=0.05,
    )
    return equal_cost(model)
