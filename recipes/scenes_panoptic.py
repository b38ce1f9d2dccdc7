"""Clothes in composed scenes with a small panoptic DETR: every piece by itself, and wall and floor.

task       the class of every pixel, and which piece of clothing it belongs to
data       scenes of 128 x 128 pixels, composed from a seed: one to three pieces of Fashion-MNIST over wall and floor
licence    Fashion-MNIST: MIT
paper      Carion et al., DETR, ECCV 2020, arXiv:2005.12872, section 4.4; here boxes, classes and masks are trained at
           once, which the paper found to be as good as one after the other
machine    one GPU; 30,000 updates of 32 scenes
expected   not known yet
measured   not yet
command    regard train scenes_panoptic --out runs/panoptic
           regard segment scene.png --model runs/panoptic --draw segments.png
           regard see scene.png --model runs/panoptic
"""

from dataclasses import replace

from _scenes import DATA, TRAIN

from regard.models.detr import SIZES, Config
from regard.models.resnet import Config as ResNet
from regard.tasks.image import panoptic_segmentation
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    small = {**SIZES["small"], "num_classes": 12, "num_queries": 16, "masks": True}
    model = Config(**{**small, "backbone": ResNet(num_classes=0, layers=(1, 1, 1, 1), width=32)})
    data = replace(DATA, image_size=128, batch_size=32, annotations="panoptic", eval_examples=500)
    train = replace(TRAIN, metric="pq", device="auto")
    return Recipe(model, panoptic_segmentation.Config(augment=("flip",)), data, train)
