"""Grey CIFAR-10, pixel by pixel: images as sequences of 1,024 tokens, with any attention by name.

task       classify small images into ten classes
data       CIFAR-10, lossless, as grey: 45,000 training, 5,000 validation and 10,000 test images. A pixel is a
           token: its intensity through a linear map (Long Range Arena: an embedding of 256 values)
licence    CIFAR-10's licence is not stated, so no model is shipped
paper      Tay et al., Long Range Arena, ICLR 2021, arXiv:2011.04006 (image)
machine    one GPU; 0.9 million parameters
expected   42.4 % for the arena's Transformer (recalled)
measured   not yet: waits for a GPU (docs/variants.md)
command    regard train lra_pixels --out runs/pixels
           regard train lra_pixels "model.attention=linear" --out runs/pixels-linear
"""

from dataclasses import replace

from _long_range import PIXELS, TRAIN

from regard.data.images.image_dataset import ImageDataset
from regard.tasks.image import image_classification
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=PIXELS,
        task=image_classification.Config(),
        data=ImageDataset("cifar10", grayscale=True, batch_size=64),
        train=replace(TRAIN, steps=10_000, warmup_steps=500, eval_interval=1000),
    )
