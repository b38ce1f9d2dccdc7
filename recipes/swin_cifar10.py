"""CIFAR-10 with a small Swin: windows of 4 x 4 over grids of 16, 8 and 4, 3.0 million parameters, 100 epochs.

task       classify small images into ten classes
data       CIFAR-10, lossless: 45,000 training, 5,000 validation and 10,000 test images
licence    CIFAR-10's licence is not stated, so no model is shipped
paper      Liu et al., Swin Transformer, ICCV 2021, arXiv:2103.14030;
           trained as Compact-Transformers trains CCT-7/3x1 (its yml for 300 epochs: RandAugment m9-mstd0.5-inc1,
           mixup 0.8, cutmix 1.0 up to epoch 175, smoothing 0.1, AdamW), but for batches twice as large and a moving
           average of the weights
machine    one GPU; 100 epochs (17,500 updates of 256 images), 3.0 million parameters
expected   between the plain ViT and the compact one
measured   on the JPEG copy of the images (data.path=cifar10_jpeg):
           80.8 % on the test split and on validation (seed 1; 18 minutes of an H200 shared with ten other runs): below
           the plain ViT (82.0), not between it and the compact one (88.3)
command    regard train swin_cifar10 --out runs/swin_cifar10
           regard eval runs/swin_cifar10
"""

from _cifar10 import DATA, TASK, TRAIN

from regard.models.swin import Config
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=Config(
            num_classes=10,
            image_size=32,
            patch_size=2,
            width=64,
            heads=(2, 4, 8),
            layers=(2, 6, 2),
            window_size=4,
            drop_path=0.1,
        ),
        task=TASK,
        data=DATA,
        train=TRAIN,
    )
