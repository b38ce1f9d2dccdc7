"""A folder of photos in COCO's format with DETR (ResNet-50), from the weights of transformers.

task       find objects: a box and a class for each
data       data.path, a folder in COCO's format (annotations as JSON, see regard.data.images.coco); photos are fitted
           into 640 x 640 pixels
licence    that of the photos; the weights of facebook/detr-resnet-50 are Apache 2.0
paper      Carion et al., DETR, ECCV 2020, arXiv:2005.12872
machine    one GPU; 5,000 updates of 8 photos
expected   not known yet
measured   not on a GPU yet
command    regard train detr_coco data.path=FOLDER train.init_from=detr-resnet-50 --out runs/mine
           regard detect photo.jpg --model runs/mine --draw boxes.png
"""

from regard.data.images.coco import COCO
from regard.models.detr import SIZES, Config
from regard.tasks.image import object_detection
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    train = Train(
        steps=5000,
        learning_rate=5e-5,
        schedule="cosine",
        warmup_steps=200,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=1e-4,
        clip_grad_norm=0.1,
        eval_interval=500,
        save_interval=500,
        log_interval=20,
        metric="ap",
    )
    data = COCO(image_size=640, batch_size=8)
    return Recipe(Config(**SIZES["r50"]), object_detection.Config(augment=("flip", "color_jitter")), data, train)
