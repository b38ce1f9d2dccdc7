"""Clothes in composed scenes with a small DETR, on a CPU.

task       find pieces of clothing: a box and one of ten classes for each
data       scenes of 64 x 64 pixels, composed from a seed: one to three pieces of Fashion-MNIST over a wall and a floor
licence    Fashion-MNIST: MIT
paper      Carion et al., DETR, ECCV 2020, arXiv:2005.12872
machine    one CPU core; 30,000 updates of 16 scenes
expected   plain DETR learns slowly: the paper trains for 300 to 500 epochs of COCO
measured   AP 0.3 %, AP50 0.9 % on validation after 3,000 updates of train.steps=4000 train.warmup_steps=200
           (2026-11-18, 14 minutes of one core of a busy machine): boxes begin to fit (GIoU loss 0.69 to 0.51), classes
           do not yet
command    regard train scenes_detr_cpu --out runs/scenes
           regard detect scene.png --model runs/scenes --draw boxes.png
"""

from _scenes import DATA, TRAIN

from regard.models.detr import Config
from regard.models.resnet import Config as ResNet
from regard.tasks.image import object_detection
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    model = Config(
        num_classes=12,
        num_queries=12,
        backbone=ResNet(num_classes=0, layers=(1, 1), width=32),
        frozen_stages=0,
        width=64,
        heads=4,
        ffn=256,
        encoder_layers=2,
        decoder_layers=2,
        dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
    )
    return Recipe(model, object_detection.Config(), DATA, TRAIN)
