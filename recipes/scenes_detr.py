"""Clothes and emoji in composed scenes with a small Deformable DETR, from scratch, small enough to ship.

task       find clothes and emoji: a box and one of twenty classes for each
data       scenes of 96 x 96 pixels, composed from a seed: one to four of Fashion-MNIST and emoji over wall and floor
licence    Fashion-MNIST: MIT; Noto Emoji: Apache-2.0
paper      Zhu et al., Deformable DETR, ICLR 2021, arXiv:2010.04159; Liu et al., DAB-DETR, ICLR 2022, arXiv:2201.12329;
           Li et al., DN-DETR, CVPR 2022, arXiv:2203.01305; Chen et al., Group DETR, ICCV 2023, arXiv:2207.13085
machine    one GPU; 30,000 updates of 32 scenes
expected   not known: nobody else has these scenes
measured   not yet
command    regard train scenes_detr --out runs/scenes
           regard detect scene.png --model runs/scenes --draw boxes.png
"""

from dataclasses import replace

from _scenes import GPU_DATA, GPU_TRAIN

from regard.models.deformable_detr import Config
from regard.models.resnet import Config as ResNet
from regard.tasks.image import object_detection
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    model = Config(
        num_classes=22,
        num_queries=12,
        backbone=ResNet(num_classes=0, layers=(1, 2, 1), width=32),
        frozen_stages=0,
        backbone_levels=3,
        pyramid_levels=3,
        width=64,
        heads=4,
        ffn=192,
        encoder_layers=2,
        decoder_layers=3,
        dropout=0.0,
        anchor_boxes=True,
        denoising=True,
        query_groups=3,
    )
    data = replace(GPU_DATA, annotations="boxes")
    task = object_detection.Config(noised_groups=4, augment=("flip", "color_jitter(hue=0.05)"))
    return Recipe(model, task, data, replace(GPU_TRAIN, save_dtype="float16"))
