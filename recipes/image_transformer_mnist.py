"""MNIST drawn pixel by pixel: an Image Transformer with local attention over 784 intensities.

task       model the images of handwritten digits; bits per dimension
data       MNIST: 54,000 training, 6,000 validation and 10,000 test images, 28 x 28, 256 intensities
licence    not stated with the data (recalled: CC BY-SA 3.0), so no model is shipped
paper      Parmar et al., Image Transformer, 2018, arXiv:1802.05751 (smaller; the paper has CIFAR-10 and ImageNet)
machine    one GPU; 50,000 updates of 64 images, 6.4 million parameters
expected   not known: neither the paper nor we have measured this model on MNIST
measured   not yet
command    regard train image_transformer_mnist --out runs/mnist-pixels
           regard eval runs/mnist-pixels
           regard run runs/mnist-pixels 0 1 2 3 --out digits
           regard train image_transformer_mnist task.classes=true model.mixtures=10 --out runs/mnist-classes
"""

from _image_transformer import DATA, MODEL, TRAIN

from regard.tasks.image import image_generation
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(model=MODEL, task=image_generation.Config(), data=DATA, train=TRAIN)
