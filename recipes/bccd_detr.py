"""Blood cells in microscope images with a small Deformable DETR, from scratch.

task       find red cells, white cells and platelets: a box and a class for each
data       BCCD, 205 training, 87 validation and 72 test images with at most 28 cells each, resized to 320 x 240
licence    BCCD: MIT
paper      Zhu et al., Deformable DETR, ICLR 2021, arXiv:2010.04159
machine    one GPU; 20,000 updates of 8 images
expected   not known yet
measured   not yet
command    regard train bccd_detr --out runs/cells
           regard detect smear.jpg --model runs/cells --draw cells.png
           regard see smear.jpg --model runs/cells
"""

from regard.data.images.coco import BCCD
from regard.models.deformable_detr import SIZES, Config
from regard.tasks.image import object_detection
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    model = Config(**{**SIZES["small"], "num_classes": 3, "num_queries": 50})
    task = object_detection.Config(augment=("flip", "affine(degrees=10)", "color_jitter"))
    train = Train(
        steps=20_000,
        learning_rate=2e-4,
        schedule="cosine",
        warmup_steps=500,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=1e-4,
        clip_grad_norm=0.1,
        eval_interval=500,
        save_interval=500,
        log_interval=20,
        metric="ap50",
    )
    return Recipe(model, task, BCCD(image_size=(240, 320), batch_size=8), train)
