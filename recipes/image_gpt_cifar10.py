"""Grey CIFAR-10 drawn pixel by pixel: an ImageGPT of 1,024 tokens, pre-trained to predict the next one.

task       model small grey images of 16 levels; bits per dimension
data       CIFAR-10, lossless, as grey: 45,000 training, 5,000 validation and 10,000 test images, 32 x 32
licence    CIFAR-10's licence is not stated, so no model is shipped
paper      Chen et al., Generative Pretraining from Pixels, ICML 2020 (512 colours, 76 million parameters and more)
machine    one GPU; 20,000 updates of 64 images, 1.3 million parameters
expected   not known for grey images; less than the 2.19 bits that the pixel to the left leaves of the 3.84 bits of a
           pixel by itself (counted on the validation images)
measured   not yet
command    regard train image_gpt_cifar10 --out runs/image-gpt
           regard eval runs/image-gpt
           regard run runs/image-gpt 0 1 2 3 --out drawn
           regard train image_gpt_cifar10_classes train.init_from=runs/image-gpt --out runs/image-gpt-classes
"""

from _image_gpt import DATA, MODEL, TRAIN

from regard.tasks.image import image_generation
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(model=MODEL, task=image_generation.Config(), data=DATA, train=TRAIN)
