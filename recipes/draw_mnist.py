"""DRAW on binarised MNIST: reading through 2 x 2 and writing through 5 x 5 Gaussian filters.

task       model binarised images of handwritten digits; the variational bound in nats
data       MNIST, every pixel drawn once with the probability of its intensity: 50,000 training, 10,000 validation and
           10,000 test images, 28 x 28 (the same distribution as Salakhutdinov and Murray's file, other bits)
licence    not stated with the data (recalled: CC BY-SA 3.0), so no model is shipped
paper      Gregor et al., DRAW, 2015, arXiv:1502.04623, Tables 2 and 3; optimiser and updates are ours, as the paper
           does not give them
machine    one GPU; 150,000 updates of 100 images, 1.0 million parameters
expected   bound <= 80.97 nats (Table 2, DRAW with attention)
measured   not yet at this size; 105.01 nats after 4,500 updates with 12 steps and a 5 x 5 read (20 minutes of one core)
command    regard train draw_mnist --out runs/draw
           regard eval runs/draw
           regard run runs/draw 7 --out seven.gif
"""

from _draw import DATA, TRAIN

from regard.models.draw import SIZES, Config
from regard.tasks.image import variational_image_generation
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(Config(**SIZES["mnist"]), variational_image_generation.Config(), DATA, TRAIN)
