"""Grey CIFAR-10 classified by an ImageGPT: the mean of the features of 1,024 pixels, of which each sees those before.

task       classify small grey images into ten classes
data       CIFAR-10, lossless, as grey: 45,000 training, 5,000 validation and 10,000 test images, 32 x 32
licence    CIFAR-10's licence is not stated, so no model is shipped
paper      Chen et al., Generative Pretraining from Pixels, ICML 2020 (fine-tuning of all weights)
machine    one GPU; 10,000 updates of 64 images, 1.3 million parameters
expected   better from pre-trained weights (train.init_from=runs/image-gpt) than from scratch
measured   not yet
command    regard train image_gpt_cifar10_classes train.init_from=runs/image-gpt --out runs/image-gpt-classes
           regard train image_gpt_cifar10_classes --out runs/image-gpt-scratch
           regard eval runs/image-gpt-classes
"""

from dataclasses import replace

from _image_gpt import DATA, MODEL, TRAIN

from regard.tasks.image import image_classification
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=MODEL,
        task=image_classification.Config(augment=("random_crop(padding=4)", "flip")),
        data=DATA,
        train=replace(TRAIN, steps=10_000, learning_rate=5e-4, metric="accuracy"),
    )
