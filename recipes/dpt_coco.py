"""A folder of photos in COCO's format with DPT (ViT-L), from the weights of transformers.

task       the class of every pixel: the categories, and "background" where nothing was annotated
data       data.path, a folder in COCO's format with segmentations (see regard.data.images.coco); photos are fitted into
           384 x 384 pixels
licence    that of the photos; the weights of Intel/dpt-large-ade are Apache 2.0
paper      Ranftl et al., DPT, ICCV 2021, arXiv:2103.13413
machine    one GPU; 2,000 updates of 8 photos
expected   not known yet
measured   not on a GPU yet
command    regard train dpt_coco data.path=FOLDER train.init_from=dpt-large-ade --out runs/mine
           regard segment photo.jpg --model runs/mine --draw segments.png
"""

from regard.data.images.coco import COCO
from regard.models.dpt import SIZES, Config
from regard.tasks.image import semantic_segmentation
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    train = Train(
        steps=2000,
        learning_rate=3e-5,
        schedule="cosine",
        warmup_steps=100,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0.01,
        clip_grad_norm=1.0,
        eval_interval=500,
        save_interval=500,
        log_interval=20,
        metric="miou",
    )
    task = semantic_segmentation.Config(augment=("flip", "random_resized_crop(min_area=0.3)", "color_jitter"))
    data = COCO(image_size=384, batch_size=8, class_maps=True)
    return Recipe(Config(**SIZES["large"], fusion_norm=True), task, data, train)
