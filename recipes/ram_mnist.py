"""MNIST by glimpses: seven squares of 8 x 8 pixels, one after the other.

task       classify handwritten digits, looking at a few places of each
data       MNIST: 57,000 training, 3,000 validation and 10,000 test images
licence    not stated with the data (recalled: CC BY-SA 3.0), so no model is shipped
paper      Mnih et al., Recurrent Models of Visual Attention, 2014, arXiv:1406.6247 (table 1a: 8 x 8 pixels)
machine    one thread of a CPU; 100,000 updates of 128 images, 0.2 million parameters
expected   1.07 % wrong with seven glimpses, 1.12 % with six (model.glimpses=6), as published
measured   1.14 % wrong on the test split with six glimpses, after 88,013 of the 100,000 updates (one seed, 49 minutes)
command    regard train ram_mnist --out runs/ram_mnist
           regard eval runs/ram_mnist
"""

from _ram import TASK, TRAIN

from regard.data.images.image_dataset import ImageDataset
from regard.models.ram import Config
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=Config(glimpses=7, location_std=0.2),
        task=TASK,
        data=ImageDataset("mnist", batch_size=128, val_fraction=0.05),
        train=TRAIN,
    )
