"""CIFAR-10 with a small MViT v2: keys and values are pooled, 3.6 million parameters, 100 epochs.

task       classify small images into ten classes
data       CIFAR-10, lossless: 45,000 training, 5,000 validation and 10,000 test images
licence    CIFAR-10's licence is not stated, so no model is shipped
paper      Li et al., MViTv2, CVPR 2022, arXiv:2112.01526;
           trained as Compact-Transformers trains CCT-7/3x1 (its yml for 300 epochs: RandAugment m9-mstd0.5-inc1,
           mixup 0.8, cutmix 1.0 up to epoch 175, smoothing 0.1, AdamW), but for batches twice as large and a moving
           average of the weights
machine    one GPU; 100 epochs (17,500 updates of 256 images), 3.6 million parameters
expected   about as the compact one: its stem and its pools are convolutions
measured   on the JPEG copy of the images (data.path=cifar10_jpeg):
           87.2 % on the test split, 87.5 on validation (seed 1; 23 minutes of an H200 shared with ten other runs); the
           compact one in as many epochs: 88.3
command    regard train mvit_cifar10 --out runs/mvit_cifar10
           regard eval runs/mvit_cifar10
"""

from _cifar10 import DATA, TASK, TRAIN

from regard.models.mvit import Config
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=Config(
            num_classes=10, image_size=32, patch_size=2, width=48, layers=(1, 2, 4, 1), kv_stride=2, drop_path=0.1
        ),
        task=TASK,
        data=DATA,
        train=TRAIN,
    )
