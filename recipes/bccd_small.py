"""Blood cells in microscope images with a Deformable DETR of a small ResNet, small enough to ship.

task       find red cells, white cells and platelets: a box and a class for each
data       BCCD, 205 training, 87 validation and 72 test images with at most 28 cells each, resized to 320 x 240
encoder    from scratch, on these 205 images alone
licence    BCCD: MIT
paper      as in bccd_detr, which has an EfficientNet and ImageNet's weights
machine    one GPU; 6,000 updates of 16 images
expected   less than bccd_detr
measured   not yet
command    regard train bccd_small --out runs/cells
           regard detect smear.jpg --model runs/cells --draw cells.png
"""

from dataclasses import replace

from _bccd import DATA, TASK, TRAIN

from regard.models.deformable_detr import Config
from regard.models.resnet import Config as ResNet
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    model = Config(
        num_classes=3,
        num_queries=50,
        backbone=ResNet(num_classes=0, layers=(1, 2, 1), width=32),
        frozen_stages=0,
        backbone_levels=2,
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
    return Recipe(model, TASK, DATA, replace(TRAIN, steps=6000, learning_rate=1e-3))
