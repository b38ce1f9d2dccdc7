"""CIFAR-10 with a small Swin: windows of 4 x 4 over grids of 16, 8 and 4, 3.0 million parameters, 100 epochs.

task       say which of ten things is in a small picture
data       CIFAR-10 as JPEG of quality 75: 45,000 images to train on, 5,000 to choose by, 10,000 to test
licence    CIFAR-10's licence is not stated: a recipe, and no model that ships
paper      Liu et al., Swin Transformer, ICCV 2021, arXiv:2103.14030;
           trained as Compact-Transformers trains CCT-7/3x1 (its yml for 300 epochs: RandAugment m9-mstd0.5-inc1,
           mixup 0.8, cutmix 1.0 up to epoch 175, smoothing 0.1, AdamW), but for batches twice as large and a moving
           average of the weights
machine    one GPU; 100 epochs (17,500 updates of 256 images), 3.0 million parameters
expected   between the plain ViT and the compact one
measured   80.8 % on the test part and on validation (seed 1; 18 minutes of an H200 beside ten other runs): below
           the plain ViT (82.0), not between it and the compact one (88.3)
command    regard train swin_cifar10 --out runs/swin_cifar10
           regard eval runs/swin_cifar10
"""

from regard.data.images import ImageSet
from regard.models.swin import Config
from regard.tasks import images
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=Config(
            classes=10, image=32, patch=2, width=64, heads=(2, 4, 8), layers=(2, 6, 2), window=4, drop_path=0.1
        ),
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
