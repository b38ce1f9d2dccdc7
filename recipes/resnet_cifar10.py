"""CIFAR-10 with a ResNet-18, by the recipe of the Transformers: the baseline, and the teacher of DeiT.

task       classify small images into ten classes
data       CIFAR-10, lossless: 45,000 training, 5,000 validation and 10,000 test images
licence    CIFAR-10's licence is not stated, so no model is shipped
paper      He et al., Deep Residual Learning, CVPR 2016, arXiv:1512.03385;
           trained as Compact-Transformers trains CCT-7/3x1 (its yml for 300 epochs: RandAugment m9-mstd0.5-inc1,
           mixup 0.8, cutmix 1.0 up to epoch 175, smoothing 0.1, AdamW), but for batches twice as large and a moving
           average of the weights
machine    one GPU; 100 epochs (17,500 updates of 256 images), 11.2 million parameters
expected   95 % and more: mixing helps a ResNet too
shares     the lecture's figure, ViT against ResNet: 5, 20 and 50 % of the training images, and of every class.
           Updates, batches, schedule and mixing stay as they are, so that only the images are fewer: in equal epochs
           5 % of them would give 800 updates, too few to tell what the images lacked. They are seen more often instead
measured   on the JPEG copy of the images (data.path=cifar10_jpeg):
           89.8 % on the test split, 90.5 on validation (seed 1; 7 minutes of an H200 shared with five other runs);
           of 36 channels 88.4 and 88.7; 300 epochs, mixed to the end, 92.1 and 92.3 (17 minutes beside others);
           100 epochs on 5, 20 and 50 % of the images 75.5, 84.5 and 88.1 on the test split
command    regard train resnet_cifar10 --out runs/resnet
           regard train resnet_cifar10 --out runs/resnet-small model.width=36          # of equal size: 3.5 million
           regard train resnet_cifar10 --out runs/resnet-300 train.steps=52500 train.warmup_steps=1750 task.mix_until=0
           regard train resnet_cifar10 --out runs/fraction-resnet-5 data.train_fraction=0.05  # and 0.2, 0.5: shares
           regard eval runs/resnet
"""

from _cifar10 import DATA, TASK, TRAIN

from regard.models.resnet import Config
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=Config(num_classes=10, image_size=32, layers=(2, 2, 2, 2), width=64, stem="small"),
        task=TASK,
        data=DATA,
        train=TRAIN,
    )
