"""CIFAR-10 with a small MViT v2: keys and values are pooled, 3.6 million parameters, 100 epochs.

task       say which of ten things is in a small picture
data       CIFAR-10 as JPEG of quality 75: 45,000 images to train on, 5,000 to choose by, 10,000 to test
licence    CIFAR-10's licence is not stated: a recipe, and no model that ships
paper      Li et al., MViTv2, CVPR 2022, arXiv:2112.01526;
           trained as Compact-Transformers trains CCT-7/3x1 (its yml for 300 epochs: RandAugment m9-mstd0.5-inc1,
           mixup 0.8, cutmix 1.0 up to epoch 175, smoothing 0.1, AdamW), but for batches twice as large and a moving
           average of the weights
machine    one GPU; 100 epochs (17,500 updates of 256 images), 3.6 million parameters
expected   about as the compact one: its stem and its pools are convolutions
measured   87.2 % on the test part, 87.5 on validation (seed 1; 23 minutes of an H200 beside ten other runs); the
           compact one in as many epochs: 88.3
command    regard train mvit_cifar10 --out runs/mvit_cifar10
           regard eval runs/mvit_cifar10
"""

from regard.data.images import ImageSet
from regard.models.mvit import Config
from regard.tasks import images
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=Config(classes=10, image=32, patch=2, width=48, layers=(1, 2, 4, 1), keys=2, drop_path=0.1),
        task=images.Config(
            smoothing=0.1,
            augment=("resized_crop(least=0.8)", "flip", "randaugment(many=2, strength=9, spread=0.5, chance=0.5)"),
            mixup=0.8,
            cutmix=1.0,
            mix_until=10_200,
        ),
        data=ImageSet("cifar10", rows=256),
        train=Train(
            steps=17_500,
            rate=8e-4,
            schedule="cosine",
            warmup=1000,
            floor=0.02,
            betas=(0.9, 0.999),
            eps=1e-8,
            decay=0.06,
            ema=0.9995,
            evaluate=1750,
            save=1750,
            log=100,
            metric="accuracy",
        ),
    )
