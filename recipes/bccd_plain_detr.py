"""Blood cells in microscope images with a small plain DETR: what deformable attention and anchors are worth.

task       find red cells, white cells and platelets: a box and a class for each
data       BCCD, 205 training, 87 validation and 72 test images with at most 28 cells each, resized to 320 x 240
encoder    as in bccd_detr
licence    BCCD: MIT
paper      Carion et al., DETR, ECCV 2020, arXiv:2005.12872; Li et al., DN-DETR, CVPR 2022, arXiv:2203.01305; Chen et
           al., Group DETR, ICCV 2023, arXiv:2207.13085
machine    one GPU; 3,000 updates of 16 images
expected   less than bccd_detr
measured   not yet
command    regard train bccd_plain_detr train.init_from=runs/lite0 --out runs/plain-cells
"""

from _bccd import BACKBONE, DATA, TASK, TRAIN

from regard.models.detr import SIZES, Config
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    parts = {"encoder_layers": 2, "denoising": True, "query_groups": 3}
    model = Config(**{**SIZES["small"], "num_classes": 3, "num_queries": 50, "backbone": BACKBONE, **parts})
    return Recipe(model, TASK, DATA, TRAIN)
