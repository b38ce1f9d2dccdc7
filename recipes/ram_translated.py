"""Translated MNIST by glimpses: a digit anywhere on 60 x 60 pixels, eight glimpses of 12 x 12 at three scales.

task       find a handwritten digit on a large canvas and classify it
data       MNIST at random places, new ones in each epoch: 57,000 training, 3,000 validation and 10,000 test images
licence    not stated with the data (recalled: CC BY-SA 3.0), so no model is shipped
paper      Mnih et al., Recurrent Models of Visual Attention, 2014, arXiv:1406.6247 (table 1b: 8 glimpses of 12 x 12)
machine    one GPU, or one thread of a CPU for some hours; 300,000 updates of 128 images, 0.3 million parameters
expected   1.20 % wrong with eight glimpses, as published
measured   not yet
command    regard train ram_translated --out runs/ram_translated
           regard eval runs/ram_translated
"""

from dataclasses import replace

from _ram import TASK, TRAIN

from regard.data.images.translated_images import TranslatedImages
from regard.models.ram import SIZES, Config
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=Config(**SIZES["large"]),
        task=TASK,
        data=TranslatedImages("mnist", batch_size=128, val_fraction=0.05),
        train=replace(TRAIN, steps=300_000, device="auto"),
    )
