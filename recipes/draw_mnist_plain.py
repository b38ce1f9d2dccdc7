"""x"""

from _draw import DATA, TRAIN

from regard.models.draw import SIZES, Config
from regard.tasks.image import variational_image_generation
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(Config(**SIZES["mnist-plain"]), variational_image_generation.Config(), DATA, TRAIN)
