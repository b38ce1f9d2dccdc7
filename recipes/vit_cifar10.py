"""CIFAR-10 with a plain Vision Transformer: patches of 4 pixels, 3.7 million parameters, 100 epochs.

task       classify small images into ten classes
data       CIFAR-10, lossless: 45,000 training, 5,000 validation and 10,000 test images
licence    CIFAR-10's licence is not stated, so no model is shipped
paper      Dosovitskiy et al., An Image is Worth 16x16 Words, ICLR 2021, arXiv:2010.11929 (the size is
           ViT-Lite-7/4 of Hassani et al.);
           trained as Compact-Transformers trains CCT-7/3x1 (its yml for 300 epochs: RandAugment m9-mstd0.5-inc1,
           mixup 0.8, cutmix 1.0 up to epoch 175, smoothing 0.1, AdamW), but for batches twice as large and a moving
           average of the weights
machine    one GPU; 100 epochs (17,500 updates of 256 images), 3.7 million parameters
expected   below the convolutional ones: nothing tells it that neighbours belong together
shares     the lecture's figure, ViT against ResNet: 5, 20 and 50 % of the training images, and of every class.
           Updates, batches, schedule and mixing stay as they are, so that only the images are fewer: in equal epochs
           5 % of them would give 800 updates, too few to tell what the images lacked. They are seen more often instead
measured   on the JPEG copy of the images (data.path=cifar10_jpeg):
           82.0 % on the test split (81.6 to 82.6, seeds 1 to 3), 82.0 on validation; 7 minutes of an H200 beside five
           other runs, 14 beside ten; on 5, 20 and 50 % of the images 64.4, 74.8 and 79.8 on the test split
command    regard train vit_cifar10 --out runs/vit-100
           regard train vit_cifar10 --out runs/fraction-vit-5 data.train_fraction=0.05           # and 0.2, 0.5: shares
           regard eval runs/vit-100
"""

from _cifar10 import DATA, TASK, TRAIN

from regard.models.vit import Config
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=Config(
            num_classes=10,
            image_size=32,
            patch_size=4,
            width=256,
            heads=4,
            layers=7,
            ffn=512,
            attention_dropout=0.1,
            drop_path=0.1,
        ),
        task=TASK,
        data=DATA,
        train=TRAIN,
    )
