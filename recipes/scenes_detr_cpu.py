"""Clothes in composed scenes with a small Deformable DETR, on a CPU.

task       find pieces of clothing: a box and one of ten classes for each
data       scenes of 64 x 64 pixels, composed from a seed: one to three pieces of Fashion-MNIST over a wall and a floor
licence    Fashion-MNIST: MIT
paper      Zhu et al., Deformable DETR, ICLR 2021, arXiv:2010.04159; Liu et al., DAB-DETR, ICLR 2022, arXiv:2201.12329;
           Li et al., DN-DETR, CVPR 2022, arXiv:2203.01305
machine    one CPU core; 8,000 updates of 16 scenes
expected   not known: nobody else has these scenes
measured   AP 29.1 %, AP50 43.9 % on 200 test scenes, 30.9 and 44.3 % on validation (seed 1; 9 minutes of one CPU
           thread, 2026-11-18); plain DETR had AP 0.3 % after 3,000 updates, 14 minutes of a busier machine
command    regard train scenes_detr_cpu --out runs/scenes
           regard detect scene.png --model runs/scenes --draw boxes.png
"""

from dataclasses import replace

from _scenes import DATA, TRAIN

from regard.models.deformable_detr import Config
from regard.models.resnet import Config as ResNet
from regard.tasks.image import object_detection
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    model = Config(
        num_classes=12,
        num_queries=10,
        backbone=ResNet(num_classes=0, layers=(1, 1, 1), width=32),
        frozen_stages=0,
        backbone_levels=2,
        pyramid_levels=2,
        points=2,
        width=64,
        heads=4,
        ffn=128,
        encoder_layers=1,
        decoder_layers=2,
        dropout=0.0,
        anchor_boxes=True,
        denoising=True,
    )
    train = replace(TRAIN, steps=8000, learning_rate=1e-3, warmup_steps=100, clip_grad_norm=1.0, eval_interval=2000)
    return Recipe(model, object_detection.Config(noised_groups=3, augment=("flip",)), DATA, train)
