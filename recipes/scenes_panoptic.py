"""Clothes and emoji in composed scenes with a small panoptic DETR: every piece by itself, and wall and floor.

task       the class of every pixel, and which object it belongs to
data       scenes of 96 x 96 pixels, composed from a seed: one to four of Fashion-MNIST and emoji over wall and floor
licence    Fashion-MNIST: MIT; Noto Emoji: Apache-2.0
paper      Carion et al., DETR, ECCV 2020, arXiv:2005.12872, section 4.4 (the masks); Zhu et al., Deformable DETR, ICLR
           2021, arXiv:2010.04159. Boxes, classes and masks are trained at once, which the first paper found to be as
           good as one after the other
machine    one GPU; 20,000 updates of 32 scenes
expected   not known yet
measured   not yet
command    regard train scenes_panoptic --out runs/panoptic
           regard segment scene.png --model runs/panoptic --draw segments.png
           regard see scene.png --model runs/panoptic
"""

from dataclasses import replace

from _scenes import GPU_DATA, GPU_TRAIN

from regard.models.deformable_detr import Config
from regard.models.resnet import Config as ResNet
from regard.tasks.image import panoptic_segmentation
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    model = Config(
        num_classes=22,
        num_queries=12,
        backbone=ResNet(num_classes=0, layers=(1, 2, 1, 1), width=32, stem="small"),
        frozen_stages=0,
        backbone_levels=3,
        pyramid_levels=3,
        width=64,
        heads=8,
        ffn=256,
        encoder_layers=2,
        decoder_layers=3,
        dropout=0.0,
        anchor_boxes=True,
        denoising=True,
        masks=True,
    )
    data = replace(GPU_DATA, annotations="panoptic")
    task = panoptic_segmentation.Config(noised_groups=4, augment=("flip",))
    return Recipe(model, task, data, replace(GPU_TRAIN, steps=20_000, metric="pq"))
