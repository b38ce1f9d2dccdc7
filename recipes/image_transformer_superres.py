"""Digits of 7 x 7 pixels enlarged to 28 x 28: an Image Transformer with an encoder of the small image.

task       4x super-resolution per side; bits per dimension of the large image given the small one
data       MNIST: 54,000 training, 6,000 validation and 10,000 test images; small ones are means of 4 x 4 pixels
licence    not stated with the data (recalled: CC BY-SA 3.0), so no model is shipped
paper      Parmar et al., Image Transformer, 2018, arXiv:1802.05751 (smaller; the paper enlarges 8 x 8 faces to 32 x 32)
machine    one GPU; 50,000 updates of 64 images, 11.7 million parameters
expected   not known: neither the paper nor we have measured this model on MNIST
measured   not yet
command    regard train image_transformer_superres --out runs/superres
           regard eval runs/superres
           regard run runs/superres small.png --temperature 0.8 --out large.png
           CIFAR-10, 8 x 8 to 32 x 32: model.width=512 model.layers=12 model.ffn=1024 model.heads=8 data.path=cifar10
"""

from dataclasses import replace

from _image_transformer import DATA, MODEL, TRAIN

from regard.tasks.image import image_generation
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=replace(MODEL, condition_size=7, encoder_layers=4),
        task=image_generation.Config(factor=4),
        data=DATA,
        train=TRAIN,
    )
